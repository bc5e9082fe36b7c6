package email

import (
	"encoding/base64"
	"errors"
	"net/url"
	"slices"
	"strings"

	gomail "github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/redact"
)

// Values of Config.Auth.
const (
	AuthAuto        = "auto"
	AuthSCRAMSHA256 = "scram-sha-256"
	AuthSCRAMSHA1   = "scram-sha-1"
	AuthPlain       = "plain"
	AuthLogin       = "login"
	AuthCramMD5     = "cram-md5"
	AuthXOAUTH2     = "xoauth2"
)

// passwordMechanisms are the mechanisms for passwords. With auto, the first one that the server
// offers is used. PLAIN and LOGIN refuse to run without TLS, unless the server is on the same
// machine. CRAM-MD5 comes last because it is the weakest.
var passwordMechanisms = []struct {
	name string
	is   gomail.SMTPAuthType
}{
	{AuthSCRAMSHA256, gomail.SMTPAuthSCRAMSHA256},
	{AuthSCRAMSHA1, gomail.SMTPAuthSCRAMSHA1},
	{AuthPlain, gomail.SMTPAuthPlain},
	{AuthLogin, gomail.SMTPAuthLogin},
	{AuthCramMD5, gomail.SMTPAuthCramMD5},
}

// authNames lists the values of Config.Auth.
func authNames() []string {
	names := []string{AuthAuto}
	for _, m := range passwordMechanisms {
		names = append(names, m.name)
	}
	return append(names, AuthXOAUTH2)
}

// usesToken reports whether the sink authenticates with an OAuth 2.0 token.
func (c *Config) usesToken() bool {
	return c.Auth == AuthXOAUTH2 || len(c.tokensFrom()) > 0
}

// tokensFrom lists the settings that provide tokens, other than the password.
func (c *Config) tokensFrom() (from []string) {
	if c.TokenFile != "" {
		from = append(from, "token_file")
	}
	if c.OAuth2.given() {
		from = append(from, "oauth2")
	}
	if c.TokenSource != nil {
		from = append(from, "TokenSource")
	}
	return from
}

// validateAuth reports the mistakes in user, password and tokens.
func (c *Config) validateAuth(mistake func(field, format string, args ...any)) {
	if !slices.Contains(authNames(), c.Auth) {
		mistake("auth", "%q is unknown; use %s", c.Auth, strings.Join(authNames(), ", "))
	} else if c.usesToken() && c.Auth != AuthAuto && c.Auth != AuthXOAUTH2 {
		mistake("auth", "%s does not use a token; use %s, or leave %s out", c.Auth, AuthXOAUTH2, strings.Join(c.tokensFrom(), " and "))
	}
	from := c.tokensFrom()
	if len(from) > 1 {
		mistake(from[0], "contradicts %s; use one of them", strings.Join(from[1:], " and "))
	}
	if c.OAuth2.given() {
		c.OAuth2.validate(mistake)
	}
	u, err := url.Parse(c.SMTP)
	if c.SMTP == "" || err != nil {
		return // validateSMTP has reported it
	}
	password, _ := u.User.Password()
	user, hasPassword := u.User.Username(), password != ""
	elsewhere := len(from) > 0
	switch {
	case elsewhere && hasPassword:
		mistake("smtp", "has a password; with %s it must have only the user, such as smtp://user@host:587", from[0])
	case c.usesToken() && user == "":
		mistake("smtp", "has no user; add the account of the token, such as smtp://user%%40example.com@host:587")
	case c.usesToken() && !elsewhere && !hasPassword:
		mistake("auth", "xoauth2 needs a token: as the password in smtp, or by token_file or oauth2")
	case elsewhere:
	case (user != "") != hasPassword || (u.User != nil && user == ""):
		mistake("smtp", "needs both user and password, or neither")
	case user == "" && c.Auth != AuthAuto && slices.Contains(authNames(), c.Auth):
		mistake("auth", "%s needs user and password in smtp", c.Auth)
	}
}

// authOptions returns go-mail's options for a password. There are none for tokens, because each
// connection has a different token.
func (c *Config) authOptions(user *url.Userinfo) []gomail.Option {
	password, _ := user.Password()
	if user == nil || c.usesToken() {
		return nil
	}
	options := []gomail.Option{gomail.WithUsername(user.Username()), gomail.WithPassword(password)}
	var all []gomail.SMTPAuthType
	for _, m := range passwordMechanisms {
		if all = append(all, m.is); m.name == c.Auth {
			return append(options, gomail.WithSMTPAuth(m.is))
		}
	}
	return append(options, gomail.WithOpportunisticSMTPAuth(all...))
}

// credentials returns the texts that errors must not repeat: secrets, and passwords as they are
// sent.
func (c *Config) credentials(user *url.Userinfo) redact.Credentials {
	password, _ := user.Password()
	return redact.New(append(asSent(user.Username(), password), c.OAuth2.ClientSecret, c.OAuth2.RefreshToken)...)
}

// asSent returns a password or token, and the encodings in which the mechanisms send it.
func asSent(user, secret string) []string {
	if secret == "" {
		return nil
	}
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	return []string{
		secret, encode(secret), encode("\x00" + user + "\x00" + secret),
		encode("user=" + user + "\x01auth=Bearer " + secret + "\x01\x01"),
	}
}

// tokens returns the source of tokens for new connections; nil if they need none.
func (c *Config) tokens(user *url.Userinfo, in sinks.Instance) tokens {
	password, _ := user.Password()
	switch {
	case !c.usesToken():
		return nil
	case c.TokenSource != nil:
		return &sourceToken{source: c.TokenSource, turn: make(chan struct{}, 1)}
	case c.TokenFile != "":
		return fileToken(c.TokenFile)
	case c.OAuth2.given():
		return newFetchedToken(c.OAuth2, in)
	}
	return fixedToken(password)
}

// xoauth2 authenticates with a token, which it does not send in clear text.
type xoauth2 struct{ smtp.Auth }

func newXOAUTH2(user, token string) xoauth2 { return xoauth2{smtp.XOAuth2Auth(user, token)} }

// Start begins the exchange.
func (x xoauth2) Start(server *smtp.ServerInfo) (string, []byte, error) {
	if !server.TLS && !isLoopback(server.Name) {
		return "", nil, smtp.ErrUnencrypted
	}
	if !slices.Contains(server.Auth, "XOAUTH2") {
		return "", nil, errNoXOAUTH2
	}
	return x.Auth.Start(server)
}

var errNoXOAUTH2 = errors.New("the server does not offer XOAUTH2")
