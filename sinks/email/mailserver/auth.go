package mailserver

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/wneessen/go-mail/smtp"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/line"
	"github.com/waybill-go/waybill/sinks/internal/redact"
)

// Values of Settings.Auth.
const (
	AuthAuto        = "auto"
	AuthSCRAMSHA256 = "scram-sha-256"
	AuthSCRAMSHA1   = "scram-sha-1"
	AuthPlain       = "plain"
	AuthLogin       = "login"
	AuthCramMD5     = "cram-md5"
	AuthXOAUTH2     = "xoauth2"
)

// mechanism is a way to authenticate with a password.
type mechanism struct {
	name string // in Settings.Auth
	is   string // in SMTP
	// challenges means that the server must have a verifier of this mechanism for the user, so a
	// refusal says little about the password.
	challenges bool
	start      func(s *server) smtp.Auth
}

// passwordMechanisms are the mechanisms for passwords, the best first. PLAIN and LOGIN refuse to run
// without TLS, unless the server is on the same machine. CRAM-MD5 comes last because it is the
// weakest.
var passwordMechanisms = []mechanism{
	{AuthSCRAMSHA256, "SCRAM-SHA-256", true, func(s *server) smtp.Auth { return scram{smtp.ScramSHA256Auth(s.user, s.password)} }},
	{AuthSCRAMSHA1, "SCRAM-SHA-1", true, func(s *server) smtp.Auth { return scram{smtp.ScramSHA1Auth(s.user, s.password)} }},
	{AuthPlain, "PLAIN", false, func(s *server) smtp.Auth { return smtp.PlainAuth("", s.user, s.password, s.host, false) }},
	{AuthLogin, "LOGIN", false, func(s *server) smtp.Auth { return smtp.LoginAuth(s.user, s.password, s.host, false) }},
	{AuthCramMD5, "CRAM-MD5", true, func(s *server) smtp.Auth { return smtp.CRAMMD5Auth(s.user, s.password) }},
}

// authNames lists the values of Settings.Auth.
func authNames() []string {
	names := []string{AuthAuto}
	for _, m := range passwordMechanisms {
		names = append(names, m.name)
	}
	return append(names, AuthXOAUTH2)
}

// usesToken reports whether the sink authenticates with an OAuth 2.0 token.
func (s *Settings) usesToken() bool {
	return s.Auth == AuthXOAUTH2 || len(s.tokensFrom()) > 0
}

// tokensFrom lists the settings that provide tokens, other than the password.
func (s *Settings) tokensFrom() (from []string) {
	if s.TokenFile != "" {
		from = append(from, "token_file")
	}
	if s.OAuth2.given() {
		from = append(from, "oauth2")
	}
	if s.TokenSource != nil {
		from = append(from, "TokenSource")
	}
	return from
}

// validateAuth reports the mistakes in user, password and tokens.
func (s *Settings) validateAuth(mistake func(field, format string, args ...any)) {
	if !slices.Contains(authNames(), s.Auth) {
		mistake("auth", "%q is unknown; use %s", s.Auth, strings.Join(authNames(), ", "))
	} else if s.usesToken() && s.Auth != AuthAuto && s.Auth != AuthXOAUTH2 {
		mistake("auth", "%s does not use a token; use %s, or leave %s out", s.Auth, AuthXOAUTH2, strings.Join(s.tokensFrom(), " and "))
	}
	from := s.tokensFrom()
	if len(from) > 1 {
		mistake(from[0], "contradicts %s; use one of them", strings.Join(from[1:], " and "))
	}
	if s.OAuth2.given() {
		s.OAuth2.validate(mistake)
	}
	u, err := url.Parse(s.URL)
	if s.URL == "" || err != nil {
		return // validateSMTP has reported it
	}
	password, _ := u.User.Password()
	user, hasPassword := u.User.Username(), password != ""
	elsewhere := len(from) > 0
	switch {
	case elsewhere && hasPassword:
		mistake("smtp", "has a password; with %s it must have only the user, such as smtp://user@host:587", from[0])
	case s.usesToken() && user == "":
		mistake("smtp", "has no user; add the account of the token, such as smtp://user%%40example.com@host:587")
	case s.usesToken() && !elsewhere && !hasPassword:
		mistake("auth", "xoauth2 needs a token: as the password in smtp, or by token_file or oauth2")
	case elsewhere:
	case (user != "") != hasPassword || (u.User != nil && user == ""):
		mistake("smtp", "needs both user and password, or neither")
	case user == "" && s.Auth != AuthAuto && slices.Contains(authNames(), s.Auth):
		mistake("auth", "%s needs user and password in smtp", s.Auth)
	}
}

// mechanisms returns the mechanisms to try with a password, in this order.
func (s *Settings) mechanisms(user *url.Userinfo) []mechanism {
	if user == nil || s.usesToken() {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(passwordMechanisms), func(m mechanism) bool { return s.Auth != AuthAuto && s.Auth != m.name })
}

// logIn authenticates with the password, if there is one. If the server refuses a mechanism although
// it offers it, the next one is tried: many servers have no verifier of SCRAM for some users.
func (d *dialog) logIn(s *server) (refused error) {
	for _, m := range s.mechanisms {
		if !slices.Contains(d.mechanisms, m.is) {
			continue
		}
		err := d.authenticate(s.host, m.start(s))
		if a := answerIn(err); a.code/100 != 5 || (a.code == codeBadCredentials && !m.challenges) {
			return err
		}
		refused = err
	}
	if refused == nil && len(s.mechanisms) > 0 {
		return fmt.Errorf("%w: it offers %s", errNoMechanism, cmp.Or(strings.Join(d.mechanisms, ", "), "none"))
	}
	return refused
}

// maxChallenges is more than any mechanism needs.
const maxChallenges = 10

// authenticate makes the exchange of RFC 4954, section 4.
func (d *dialog) authenticate(host string, by smtp.Auth) error {
	name, initial, err := by.Start(&smtp.ServerInfo{Name: host, TLS: d.encrypted, Auth: d.mechanisms})
	if err != nil {
		return err
	}
	answer := strings.TrimSpace("AUTH " + name + " " + base64.StdEncoding.EncodeToString(initial))
	for range maxChallenges {
		code, text, err := d.ask(0, answer)
		switch {
		case err != nil:
			return err
		case code == codeAuthenticated:
			return nil
		case code != codeChallenge:
			return &textproto.Error{Code: code, Msg: text}
		}
		challenge, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			challenge = []byte(text) // LOGIN ignores its prompts, which some servers do not encode
		}
		response, err := by.Next(challenge, true)
		if err != nil {
			_, _, _ = d.ask(0, "*") // cancels the exchange
			return err
		}
		answer = base64.StdEncoding.EncodeToString(response)
	}
	return fmt.Errorf("%w: more than %d challenges", ErrReply, maxChallenges)
}

// scram is SCRAM (RFC 5802) with a bound for the work that a server can ask for.
type scram struct{ smtp.Auth }

// maxIterations is many times what servers use.
const maxIterations = 1_000_000

// Next answers a challenge.
func (s scram) Next(challenge []byte, more bool) ([]byte, error) {
	for field := range strings.SplitSeq(string(challenge), ",") {
		if text, ok := strings.CutPrefix(field, "i="); ok {
			if n, err := strconv.Atoi(text); err != nil || n > maxIterations {
				return nil, fmt.Errorf("%w: SCRAM with %q iterations", ErrReply, line.Of(text, maxText))
			}
		}
	}
	return s.Auth.Next(challenge, more)
}

// credentials returns the texts that errors must not repeat: secrets, and passwords as they are
// sent.
func (s *Settings) credentials(user *url.Userinfo) redact.Credentials {
	password, _ := user.Password()
	return redact.New(append(asSent(user.Username(), password), s.OAuth2.ClientSecret, s.OAuth2.RefreshToken)...)
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
func (s *Settings) tokens(user *url.Userinfo, in sinks.Instance) tokens {
	password, _ := user.Password()
	switch {
	case !s.usesToken():
		return nil
	case s.TokenSource != nil:
		return &sourceToken{source: s.TokenSource, turn: make(chan struct{}, 1)}
	case s.TokenFile != "":
		return fileToken(s.TokenFile)
	case s.OAuth2.given():
		return newFetchedToken(s.OAuth2, in)
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

// Errors of connecting to a server that lacks what the configuration needs.
var (
	errNoXOAUTH2   = errors.New("the server does not offer XOAUTH2")
	errNoMechanism = errors.New("the server offers no mechanism for this password")
	errNoSTARTTLS  = errors.New("the server does not offer STARTTLS, which tls requires")
)
