package email_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/mailserver"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestEachMechanismThatBothSidesSupportAuthenticates(t *testing.T) {
	for _, c := range []struct {
		offered string
		auth    string
		works   bool
	}{
		{"PLAIN", "", true}, {"PLAIN", mailserver.AuthPlain, true}, {"PLAIN", mailserver.AuthLogin, false},
		{"LOGIN", "", true}, {"LOGIN", mailserver.AuthLogin, true}, {"LOGIN", mailserver.AuthPlain, false},
		{"XOAUTH2", mailserver.AuthXOAUTH2, true}, {"PLAIN", mailserver.AuthXOAUTH2, false}, {"XOAUTH2", "", false},
	} {
		for _, tls := range []smtptest.TLS{smtptest.Plain, smtptest.StartTLS, smtptest.Implicit} {
			t.Run(fmt.Sprintf("%s with %q, TLS %d", c.offered, c.auth, tls), func(t *testing.T) {
				server := startServer(t, smtptest.Config{TLS: tls, Username: "shop@example.com", Password: "p@ss/1", Mechanisms: []string{c.offered}})
				sink := newSink(t, email.Config{SMTP: server.URL(), TLSConfig: server.TLSConfig(), Auth: c.auth})
				_, err := sink.Deliver(within(t), delivery(jane))
				if c.works {
					require.NoError(t, err)
					return
				}
				assert.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
				assert.NotContains(t, err.Error(), "p@ss")
			})
		}
	}
}

func TestATokenFileIsReadForEachConnection(t *testing.T) {
	var good sync.Map
	server := startServer(t, smtptest.Config{Mechanisms: []string{smtptest.XOAUTH2}, OnAuth: func(_ context.Context, user, token string) error {
		if _, known := good.Load(user + " " + token); !known {
			return smtptest.Reply(535, "token expired")
		}
		return nil
	}})
	file := filepath.Join(t.TempDir(), "token")
	sink := newSink(t, email.Config{SMTP: "smtp://shop@" + server.Address(), TokenFile: file})

	_, err := sink.Deliver(within(t), delivery(jane))
	assert.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))
	require.ErrorContains(t, err, "get a token: token_file: open "+file)

	require.NoError(t, os.WriteFile(file, []byte(" \n"), 0o600))
	_, err = sink.Deliver(within(t), delivery(jane))
	require.ErrorContains(t, err, "is empty")

	require.NoError(t, os.WriteFile(file, []byte("first\n"), 0o600))
	_, err = sink.Deliver(within(t), delivery(jane))
	assert.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))
	require.ErrorContains(t, err, "token expired")

	require.NoError(t, os.WriteFile(file, []byte("second\n"), 0o600))
	good.Store("shop second", true)
	for range 2 {
		_, err = sink.Deliver(within(t), delivery(jane))
		require.NoError(t, err)
		server.Disconnect() // the next delivery opens a connection and reads the file
	}
}

// authorization is an authorization server that issues numbered tokens.
type authorization struct {
	mu      sync.Mutex
	given   int
	expires int // seconds
	asked   []string
	broken  bool
}

func (a *authorization) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	user, secret, _ := r.BasicAuth()
	a.asked = append(a.asked, strings.TrimSpace(fmt.Sprint(user, ":", secret, " ", r.FormValue("grant_type"), " ", r.FormValue("refresh_token"), r.FormValue("scope"))))
	w.Header().Set("Content-Type", "application/json")
	if a.broken {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error": "invalid_grant", "error_description": "the account was closed"}`))
		return
	}
	a.given++
	_ = json.NewEncoder(w).Encode(map[string]any{
		"access_token": fmt.Sprint("token-", a.given), "token_type": "Bearer", "expires_in": a.expires, "refresh_token": fmt.Sprint("refresh-", a.given),
	})
}

// valid returns the only valid token.
func (a *authorization) valid() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprint("token-", a.given)
}

func (a *authorization) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

func TestTokensAreFetchedWhenTheyExpireOrAreRefused(t *testing.T) {
	for name, o := range map[string]mailserver.OAuth2{
		"refresh token":      {ClientID: "id", ClientSecret: "s3cret", RefreshToken: "refresh-0"},
		"client credentials": {ClientID: "id", ClientSecret: "s3cret", Scopes: []string{"mail"}},
	} {
		t.Run(name, func(t *testing.T) {
			tokens := &authorization{expires: 3600}
			web := httptest.NewServer(tokens)
			defer web.Close()
			server := startServer(t, smtptest.Config{Mechanisms: []string{smtptest.XOAUTH2}, OnAuth: func(_ context.Context, user, token string) error {
				if user != "shop@example.com" || token != tokens.valid() {
					return smtptest.Reply(535, "bad token")
				}
				return nil
			}})
			o.TokenURL = web.URL
			sink := newSink(t, email.Config{SMTP: "smtp://shop%40example.com@" + server.Address(), OAuth2: o})
			deliver := func() error {
				_, err := sink.Deliver(within(t), delivery(jane))
				server.Disconnect() // each delivery opens a connection
				return err
			}

			require.NoError(t, deliver())
			require.NoError(t, deliver())
			assert.Len(t, tokens.asked, 1, "a valid token is used again")

			tokens.set(func() { tokens.given++ }) // the token is revoked
			err := deliver()
			assert.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))
			require.ErrorContains(t, err, "bad token")
			tokens.set(func() { tokens.expires = 1 })
			require.NoError(t, deliver(), "a refused token is not used again")
			require.NoError(t, deliver(), "an expired token is not used again")
			assert.Len(t, tokens.asked, 3)
			if o.RefreshToken == "" {
				assert.Equal(t, "id:s3cret client_credentials mail", tokens.asked[2])
			} else {
				assert.Equal(t, "id:s3cret refresh_token refresh-0", tokens.asked[0])
				assert.Equal(t, "id:s3cret refresh_token refresh-3", tokens.asked[2], "the server's newest refresh token is used")
			}

			tokens.set(func() { tokens.broken = true })
			err = deliver()
			assert.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))
			require.ErrorContains(t, err, "get a token: oauth2: "+web.URL+": invalid_grant the account was closed")
			assert.NotContains(t, err.Error(), "s3cret")
		})
	}
}

func TestMistakesInAuthenticationAreNamed(t *testing.T) {
	oauth := mailserver.OAuth2{TokenURL: "https://example.com/token", ClientID: "id", ClientSecret: "s"}
	for _, c := range []struct {
		config email.Config
		want   string
	}{
		{email.Config{SMTP: "smtp://localhost", Auth: "magic"}, `auth: "magic" is unknown; use auto, scram-sha-256,`},
		{email.Config{SMTP: "smtp://localhost", Auth: "login"}, "auth: login needs user and password in smtp"},
		{email.Config{SMTP: "smtp://a:secret@localhost", Auth: "plain", TokenFile: "x"}, "auth: plain does not use a token"},
		{email.Config{SMTP: "smtp://a:secret@localhost", TokenFile: "x"}, "smtp: has a password"},
		{email.Config{SMTP: "smtp://localhost", TokenFile: "x"}, "smtp: has no user"},
		{email.Config{SMTP: "smtp://a@localhost", Auth: "xoauth2"}, "auth: xoauth2 needs a token"},
		{email.Config{SMTP: "smtp://a@localhost", TokenFile: "x", OAuth2: oauth}, "token_file: contradicts oauth2"},
		{email.Config{SMTP: "smtp://a@localhost", TokenFile: "x", TokenSource: new(source)}, "token_file: contradicts TokenSource"},
		{email.Config{SMTP: "smtp://a:secret@localhost", TokenSource: new(source)}, "smtp: has a password; with TokenSource"},
		{email.Config{SMTP: "smtp://a@localhost", OAuth2: mailserver.OAuth2{Scopes: []string{"x"}}}, "oauth2.token_url: is missing"},
		{email.Config{SMTP: "smtp://a@localhost", OAuth2: mailserver.OAuth2{TokenURL: "http://example.com"}}, "oauth2.token_url: is not https://"},
		{email.Config{SMTP: "smtp://a@localhost", OAuth2: mailserver.OAuth2{TokenURL: "nowhere"}}, "oauth2.token_url: is not a URL"},
		{email.Config{SMTP: "smtp://a@localhost", OAuth2: mailserver.OAuth2{Scopes: []string{"x"}}}, "oauth2.client_id: is missing"},
		{email.Config{SMTP: "smtp://a@localhost", OAuth2: mailserver.OAuth2{Scopes: []string{"x"}}}, "oauth2.client_secret: is missing"},
	} {
		c.config.From, c.config.Templates = "a@example.com", "x"
		c.config.SetDefaults()
		err := c.config.Validate()
		require.ErrorContains(t, err, c.want)
		assert.NotContains(t, err.Error(), "secret@")
	}
	good := email.Config{SMTP: "smtp://a@localhost", OAuth2: oauth, From: "a@example.com", Templates: "x"}
	good.SetDefaults()
	require.NoError(t, good.Validate())
}

// Servers may repeat a credential in a reply, unchanged or encoded.
func TestNoErrorRepeatsACredential(t *testing.T) {
	echo := func(_ context.Context, user, secret string) error {
		encode := base64.StdEncoding.EncodeToString
		return smtptest.Reply(535, strings.Join([]string{"no", secret, encode([]byte(secret)), encode([]byte("\x00" + user + "\x00" + secret))}, " "))
	}
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("token-hunter2\n"), 0o600))
	authorization := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, secret, _ := r.BasicAuth()
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, "no: ", secret, r.FormValue("client_secret"), " ", r.FormValue("refresh_token"), " ", r.Header)
	}))
	t.Cleanup(authorization.Close)
	for name, c := range map[string]email.Config{
		"password":   {SMTP: "smtp://shop:pass-hunter2@%s"},
		"login":      {SMTP: "smtp://shop:pass-hunter2@%s", Auth: mailserver.AuthLogin},
		"token":      {SMTP: "smtp://shop:token-hunter2@%s", Auth: mailserver.AuthXOAUTH2},
		"token_file": {SMTP: "smtp://shop@%s", TokenFile: file},
		"source":     {SMTP: "smtp://shop@%s", TokenSource: oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "token-hunter2"})},
		"oauth2": {SMTP: "smtp://shop@%s", OAuth2: mailserver.OAuth2{
			TokenURL: authorization.URL, ClientID: "shop", ClientSecret: "client-hunter2", RefreshToken: "refresh-hunter2",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			server := startServer(t, smtptest.Config{Mechanisms: []string{"PLAIN", "LOGIN", smtptest.XOAUTH2}, OnAuth: echo})
			c.SMTP = fmt.Sprintf(c.SMTP, server.Address())
			sink := newSink(t, c)
			_, err := sink.Deliver(within(t), delivery(jane))
			require.Error(t, err)
			for _, e := range []error{err, sink.CheckHealth(within(t))} {
				require.ErrorContains(t, e, " no")
				require.NotContains(t, e.Error(), "hunter2")
				require.NotContains(t, e.Error(), base64.StdEncoding.EncodeToString([]byte("hunter2"))[:8])
				require.Equal(t, sinks.ClassUnavailable, sinktest.Class(e))
				require.Contains(t, e.Error(), "***")
			}
		})
	}
}
