package smtptest

import (
	"crypto/subtle"
	"strings"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// XOAUTH2 is the mechanism of Google and Microsoft for OAuth 2.0 tokens.
const XOAUTH2 = "XOAUTH2"

// authenticates reports whether clients must authenticate.
func (c Config) authenticates() bool { return c.Username != "" || c.OnAuth != nil }

func (c *session) AuthMechanisms() []string {
	switch config := c.server.config; {
	case !config.authenticates():
		return nil
	case len(config.Mechanisms) > 0:
		return config.Mechanisms
	}
	return []string{sasl.Plain}
}

func (c *session) Auth(mechanism string) (sasl.Server, error) {
	switch mechanism {
	case sasl.Login:
		return &loginServer{check: c.check}, nil
	case XOAUTH2:
		return &xoauth2Server{check: c.check}, nil
	}
	return sasl.NewPlainServer(func(_, username, password string) error { return c.check(username, password) }), nil
}

// check verifies a password or token.
func (c *session) check(username, secret string) error {
	config := c.server.config
	if config.OnAuth != nil {
		if err := config.OnAuth(c.server.ctx, username, secret); err != nil {
			return err
		}
		c.authenticated = true
		return nil
	}
	user := subtle.ConstantTimeCompare([]byte(username), []byte(config.Username))
	pass := subtle.ConstantTimeCompare([]byte(secret), []byte(config.Password))
	if user&pass != 1 {
		return smtp.ErrAuthFailed
	}
	c.authenticated = true
	return nil
}

// loginServer is the server's side of LOGIN. It asks for the user, and then for the password.
type loginServer struct {
	check   func(username, password string) error
	asked   bool
	user    string
	hasUser bool
}

// Next processes an answer of the client.
func (l *loginServer) Next(response []byte) (challenge []byte, done bool, err error) {
	switch {
	case !l.asked && response == nil:
		l.asked = true
		return []byte("Username:"), false, nil
	case !l.hasUser:
		l.asked, l.hasUser, l.user = true, true, string(response)
		return []byte("Password:"), false, nil
	}
	return nil, true, l.check(l.user, string(response))
}

// xoauth2Server is the server's side of XOAUTH2. The client sends one message with user and token.
// The server sends a refusal as JSON, which the client acknowledges.
type xoauth2Server struct {
	check   func(username, token string) error
	refusal error
}

// Next processes the message or the acknowledgement.
func (x *xoauth2Server) Next(response []byte) (challenge []byte, done bool, err error) {
	if x.refusal != nil {
		return nil, true, x.refusal
	}
	if response == nil {
		return []byte{}, false, nil
	}
	user, rest, _ := strings.Cut(strings.TrimPrefix(string(response), "user="), "\x01")
	token, _, found := strings.Cut(strings.TrimPrefix(rest, "auth=Bearer "), "\x01\x01")
	if !found {
		return nil, true, Reply(501, "malformed XOAUTH2")
	}
	if x.refusal = x.check(user, token); x.refusal != nil {
		return []byte(`{"status":"401","schemes":"bearer"}`), false, nil
	}
	return nil, true, nil
}
