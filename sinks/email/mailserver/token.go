package mailserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/redact"
)

// OAuth2 has the settings of an authorization server that issues tokens: for a refresh token, which
// a person's account has (Gmail), or, without one, for client credentials, which a service has
// (Microsoft 365 with the permission SMTP.SendAsApp).
type OAuth2 struct {
	TokenURL     string   `yaml:"token_url" secret:"password" doc:"Token endpoint of the authorization server, such as https://oauth2.googleapis.com/token or https://login.microsoftonline.com/TENANT/oauth2/v2.0/token"`
	ClientID     string   `yaml:"client_id" doc:"Client id of the application"`
	ClientSecret string   `yaml:"client_secret" secret:"true" doc:"Client secret of the application"`
	RefreshToken string   `yaml:"refresh_token" secret:"true" doc:"Refresh token of the sending account. Without it, tokens are issued to the application itself (client credentials)"`
	Scopes       []string `yaml:"scopes" doc:"Scopes of tokens for client credentials, such as https://outlook.office365.com/.default at Microsoft"`
}

// given reports whether any field is set.
func (o *OAuth2) given() bool {
	return o.TokenURL != "" || o.ClientID != "" || o.ClientSecret != "" || o.RefreshToken != "" || len(o.Scopes) > 0
}

func (o *OAuth2) validate(mistake func(field, format string, args ...any)) {
	switch u, err := url.Parse(o.TokenURL); {
	case o.TokenURL == "":
		mistake("oauth2.token_url", "is missing; it is the https:// URL of the authorization server's token endpoint")
	case err != nil || u.Hostname() == "" || (u.Scheme != "https" && u.Scheme != "http"):
		mistake("oauth2.token_url", "is not a URL like https://oauth2.googleapis.com/token")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		mistake("oauth2.token_url", "is not https://, so the secret would be sent in clear text; use https://")
	}
	if o.ClientID == "" {
		mistake("oauth2.client_id", "is missing")
	}
	if o.ClientSecret == "" && o.RefreshToken == "" {
		mistake("oauth2.client_secret", "is missing; give it, or the refresh_token of a public client")
	}
}

// tokens is a source of tokens for new connections. Its methods are safe for concurrent use.
type tokens interface {
	get(ctx context.Context) (string, error)
	// refused reports that the server refused the token.
	refused(token string)
}

// fixedToken is a token in the configuration.
type fixedToken string

func (t fixedToken) get(context.Context) (string, error) { return string(t), nil }
func (fixedToken) refused(string)                        {}

// fileToken is the path of a file with a token, which another program keeps up to date. It is read
// for each connection.
type fileToken string

func (path fileToken) get(context.Context) (string, error) {
	text, err := os.ReadFile(string(path))
	if err != nil {
		return "", fmt.Errorf("token_file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("token_file: %s is empty", string(path))
	}
	return token, nil
}

func (fileToken) refused(string) {}

// sourceToken calls the program's source, whose method has no context.
type sourceToken struct {
	source oauth2.TokenSource
	turn   chan struct{} // has an element during a call of the source
}

func (s *sourceToken) get(ctx context.Context) (string, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	type answer struct {
		token *oauth2.Token
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		token, err := s.source.Token()
		<-s.turn
		answered <- answer{token, err}
	}()
	select {
	case a := <-answered:
		switch {
		case a.err != nil:
			return "", fmt.Errorf("TokenSource: %w", a.err)
		case a.token == nil || a.token.AccessToken == "":
			return "", errors.New("TokenSource: returned no token")
		}
		return a.token.AccessToken, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (*sourceToken) refused(string) {}

// fetchedToken keeps a token until it expires or is refused.
type fetchedToken struct {
	OAuth2
	client *http.Client
	turn   chan struct{} // has an element while token and RefreshToken are in use
	token  *oauth2.Token
}

func newFetchedToken(o OAuth2, in sinks.Instance) *fetchedToken {
	client := in.HTTPClient
	if client == nil {
		// There is about one request in an hour, so connections are not kept.
		client = &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: in.Dial, DisableKeepAlives: true}}
	}
	return &fetchedToken{OAuth2: o, client: client, turn: make(chan struct{}, 1)}
}

func (f *fetchedToken) get(ctx context.Context) (string, error) {
	select {
	case f.turn <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-f.turn }()
	if f.token.Valid() {
		return f.token.AccessToken, nil
	}
	token, err := f.fetch(context.WithValue(ctx, oauth2.HTTPClient, f.client))
	var refused *oauth2.RetrieveError
	// These are the current secrets, since some servers issue a new refresh token.
	secrets := redact.New(f.ClientSecret, f.RefreshToken)
	switch {
	case errors.As(err, &refused) && refused.ErrorCode != "":
		return "", secrets.Error(fmt.Errorf("oauth2: %s: %s %s", redactedURL(f.TokenURL), refused.ErrorCode, refused.ErrorDescription))
	case err != nil:
		return "", secrets.Error(fmt.Errorf("oauth2: %w", err))
	}
	f.token = token
	if f.RefreshToken != "" && token.RefreshToken != "" {
		f.RefreshToken = token.RefreshToken // some servers issue a new one each time
	}
	return token.AccessToken, nil
}

// redactedURL returns a URL without its password.
func redactedURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "the token_url"
	}
	return u.Redacted()
}

func (f *fetchedToken) fetch(ctx context.Context) (*oauth2.Token, error) {
	if f.RefreshToken == "" {
		c := clientcredentials.Config{ClientID: f.ClientID, ClientSecret: f.ClientSecret, TokenURL: f.TokenURL, Scopes: f.Scopes}
		return c.Token(ctx)
	}
	c := oauth2.Config{ClientID: f.ClientID, ClientSecret: f.ClientSecret, Endpoint: oauth2.Endpoint{TokenURL: f.TokenURL}}
	return c.TokenSource(ctx, &oauth2.Token{RefreshToken: f.RefreshToken}).Token()
}

func (f *fetchedToken) refused(token string) {
	f.turn <- struct{}{}
	defer func() { <-f.turn }()
	if f.token != nil && f.token.AccessToken == token {
		f.token = nil
	}
}
