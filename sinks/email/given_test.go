package email_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/mailserver"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// source is a program's source of tokens. If release is not nil, each call waits for it.
type source struct {
	asked   chan struct{}
	release chan struct{}
	token   *oauth2.Token
	err     error
}

func (s *source) Token() (*oauth2.Token, error) {
	if s.release != nil {
		s.asked <- struct{}{}
		<-s.release
	}
	return s.token, s.err
}

// wantingTokens starts a server that accepts only the token "good".
func wantingTokens(t *testing.T) *smtptest.Server {
	return startServer(t, smtptest.Config{Mechanisms: []string{smtptest.XOAUTH2}, OnAuth: func(_ context.Context, _, token string) error {
		if token != "good" {
			return smtptest.Reply(535, "bad token")
		}
		return nil
	}})
}

func TestTheProgramsTokenSourceIsCalledForEachConnection(t *testing.T) {
	server := wantingTokens(t)
	own := &source{err: errors.New("vault is sealed")}
	sink := newSink(t, email.Config{SMTP: "smtp://shop@" + server.Address(), TokenSource: own})
	unavailable := func(because string) {
		t.Helper()
		_, err := sink.Deliver(within(t), delivery(jane))
		require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))
		require.ErrorContains(t, err, because)
	}
	unavailable("get a token: TokenSource: vault is sealed")
	own.err = nil
	unavailable("TokenSource: returned no token")
	own.token = &oauth2.Token{AccessToken: "bad"}
	unavailable("bad token")
	own.token = &oauth2.Token{AccessToken: "good"}
	_, err := sink.Deliver(within(t), delivery(jane))
	require.NoError(t, err)
}

func TestADeliveryDoesNotWaitForATokenLongerThanItsContext(t *testing.T) {
	server := wantingTokens(t)
	own := &source{asked: make(chan struct{}), release: make(chan struct{}), token: &oauth2.Token{AccessToken: "good"}}
	sink := newSink(t, email.Config{SMTP: "smtp://shop@" + server.Address(), TokenSource: own})
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := sink.Deliver(ctx, delivery(jane))
		left <- err
	}()
	<-own.asked
	cancel()
	require.ErrorIs(t, <-left, context.Canceled)

	// The call continues, and the next delivery waits for it and then makes its own.
	go func() {
		_, err := sink.Deliver(within(t), delivery(jane))
		left <- err
	}()
	own.release <- struct{}{}
	<-own.asked
	own.release <- struct{}{}
	require.NoError(t, <-left)
}

func TestTheProgramsDialAndClientMakeTheConnections(t *testing.T) {
	tokens := &authorization{expires: 3600}
	web := httptest.NewServer(tokens)
	defer web.Close()
	server := startServer(t, smtptest.Config{Mechanisms: []string{smtptest.XOAUTH2}})
	var (
		mu        sync.Mutex
		addresses []string
		requests  int
	)
	in := sinks.Instance{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		addresses = append(addresses, address)
		if address == "mail.invalid:587" {
			address = server.Address()
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	config := email.Config{
		SMTP: "smtp://shop@mail.invalid", TLS: mailserver.TLSNone, From: "shop@example.com", FS: signedUp,
		OAuth2: mailserver.OAuth2{TokenURL: web.URL, ClientID: "id", ClientSecret: "s3cret"},
	}
	check := func(in sinks.Instance) {
		t.Helper()
		sink, err := email.New(in, config)
		require.NoError(t, err)
		// Without TLS, the token is not sent to a host other than this machine.
		require.ErrorContains(t, sink.CheckHealth(within(t)), "unencrypted")
		require.NoError(t, sink.Close(within(t)))
	}
	check(in)
	require.Equal(t, []string{web.Listener.Addr().String(), "mail.invalid:587"}, addresses)

	addresses = nil
	in.HTTPClient = &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		requests++
		return http.DefaultTransport.RoundTrip(r)
	})}
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	check(in)
	require.Equal(t, []string{"mail.invalid:587"}, addresses)
	require.Equal(t, 1, requests)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
