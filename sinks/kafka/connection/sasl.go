package connection

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/xdg-go/scram"
)

// SASL has the settings of the authentication to the brokers. The zero value means no SASL.
type SASL struct {
	Mechanism string `yaml:"mechanism" enum:"PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER" doc:"PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER. PLAIN and OAUTHBEARER send the password or token in clear text, so use them with tls. Default: no SASL"`
	User      string `yaml:"user" doc:"Name of the user; not with OAUTHBEARER"`
	Password  string `yaml:"password" secret:"true" doc:"Password of the user; not with OAUTHBEARER"`
	TokenFile string `yaml:"token_file" doc:"File with the token for OAUTHBEARER, which another program keeps up to date. It is read for each new connection"`
}

// Names of the mechanisms.
const (
	mechanismPlain  = "PLAIN"
	mechanismSHA256 = "SCRAM-SHA-256"
	mechanismSHA512 = "SCRAM-SHA-512"
	mechanismOAuth  = "OAUTHBEARER"
)

// scramHashes has the supported mechanisms, and the hash functions of those that are SCRAM.
var scramHashes = map[string]scram.HashGeneratorFcn{
	mechanismPlain:  nil,
	mechanismSHA256: scram.SHA256,
	mechanismSHA512: scram.SHA512,
	mechanismOAuth:  nil,
}

func (s SASL) mechanism() string { return strings.ToUpper(s.Mechanism) }

// sendsClearText reports whether the mechanism sends the password or token in clear text.
func (s SASL) sendsClearText() bool {
	return s.mechanism() == mechanismPlain || s.mechanism() == mechanismOAuth
}

// with returns the settings with OAUTHBEARER as the default mechanism if the program provides
// tokens.
func (s SASL) with(given TokenProvider) SASL {
	if given != nil && s == (SASL{}) {
		s.Mechanism = mechanismOAuth
	}
	return s
}

// validate returns all mistakes, joined. Its errors do not contain the password.
func (s SASL) validate(given TokenProvider) error {
	if s == (SASL{}) {
		return nil
	}
	_, known := scramHashes[s.mechanism()]
	names := strings.Join(slices.Sorted(maps.Keys(scramHashes)), ", ")
	var mechanism error
	switch {
	case s.Mechanism == "":
		mechanism = fmt.Errorf("sasl.mechanism: is missing; use one of %s", names)
	case !known:
		mechanism = fmt.Errorf("sasl.mechanism: %q is not offered; use one of %s", s.Mechanism, names)
	}
	if s.mechanism() == mechanismOAuth {
		return s.validateToken(given)
	}
	return errors.Join(mechanism, s.validatePassword(given))
}

func (s SASL) validateToken(given TokenProvider) error {
	var problems []error
	if s.User != "" || s.Password != "" {
		problems = append(problems, errors.New("sasl.user, sasl.password: OAUTHBEARER identifies the user by the token; leave them out"))
	}
	switch {
	case s.TokenFile == "" && given == nil:
		problems = append(problems, errors.New("sasl.token_file: is missing; sasl.mechanism OAUTHBEARER needs it"))
	case s.TokenFile != "" && given != nil:
		problems = append(problems, errors.New("sasl.token_file: the program already has a TokenProvider; remove one of them"))
	}
	return errors.Join(problems...)
}

func (s SASL) validatePassword(given TokenProvider) error {
	var problems []error
	problem := func(format string, a ...any) { problems = append(problems, fmt.Errorf(format, a...)) }
	hash := scramHashes[s.mechanism()]
	plain := s.mechanism() == mechanismPlain
	if s.TokenFile != "" || given != nil {
		problem("sasl.mechanism: a token is for OAUTHBEARER only")
	}
	switch {
	case s.User == "":
		problem("sasl.user: is missing")
	case plain && strings.Contains(s.User, "\x00"):
		problem("sasl.user: contains a zero byte, which would end it")
	case hash != nil && !prepared(hash, s.User, "password"):
		problem("sasl.user: has characters that SCRAM does not allow")
	}
	switch {
	case s.Password == "":
		problem("sasl.password: is missing")
	case plain && strings.Contains(s.Password, "\x00"):
		problem("sasl.password: contains a zero byte, which would end it")
	case hash != nil && !prepared(hash, "user", s.Password):
		problem("sasl.password: has characters that SCRAM does not allow")
	}
	return errors.Join(problems...)
}

// prepared reports whether SCRAM can send user and password. RFC 5802 prepares them with
// SASLprep, which refuses control characters, for example.
func prepared(hash scram.HashGeneratorFcn, user, password string) bool {
	_, err := hash.NewClient(user, password, "")
	return err == nil
}

// tokens returns the source of tokens; nil without OAUTHBEARER.
func (s SASL) tokens(given TokenProvider) *tokens {
	switch {
	case s.mechanism() != mechanismOAuth:
		return nil
	case given == nil:
		given = fileToken(s.TokenFile)
	}
	return &tokens{provider: given}
}

// franz returns the mechanism for franz-go; nil without SASL.
func (s SASL) franz(token *tokens) sasl.Mechanism {
	switch s.mechanism() {
	case "":
		return nil
	case mechanismPlain:
		return plain.Auth{User: s.User, Pass: s.Password}.AsMechanism()
	case mechanismOAuth:
		return oauthMechanism{oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			given, err := token.get(ctx)
			return oauth.Auth{Token: given.Text, Extensions: given.Extensions}, err
		})}
	}
	return scramMechanism(s)
}

// oauthMechanism is franz-go's OAUTHBEARER, except that it treats a challenge as a refusal, as
// RFC 7628, section 3.2.2 says.
type oauthMechanism struct{ sasl.Mechanism }

func (m oauthMechanism) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	_, first, err := m.Mechanism.Authenticate(ctx, host)
	return oauthSession{}, first, err
}

type oauthSession struct{}

func (oauthSession) Challenge(refusal []byte) (done bool, response []byte, err error) {
	if len(refusal) > 0 {
		return false, nil, fmt.Errorf("%w: %s", kerr.SaslAuthenticationFailed, refusal)
	}
	return true, nil, nil
}

// scramMechanism is SCRAM for franz-go. The mechanism of franz-go does not prepare user and
// password as RFC 5802 demands.
type scramMechanism SASL

func (m scramMechanism) Name() string { return SASL(m).mechanism() }

func (m scramMechanism) Authenticate(context.Context, string) (sasl.Session, []byte, error) {
	c := SASL(m).SCRAM()
	if err := c.Begin(m.User, m.Password, ""); err != nil {
		return nil, nil, err
	}
	first, err := c.Step("")
	return c, []byte(first), err
}

// SCRAM is one exchange of SCRAM. It implements the interfaces of franz-go and of sarama.
type SCRAM struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

// SCRAM returns a new exchange; nil if the mechanism is not SCRAM.
func (s SASL) SCRAM() *SCRAM {
	if hash := scramHashes[s.mechanism()]; hash != nil {
		return &SCRAM{hash: hash}
	}
	return nil
}

// Begin begins the exchange.
func (c *SCRAM) Begin(user, password, authzID string) error {
	client, err := c.hash.NewClient(user, password, authzID)
	if err != nil {
		return err
	}
	c.conversation = client.NewConversation()
	return nil
}

// Step answers a challenge. It returns an error if the broker refuses the proof, or does not
// prove that it knows the password.
func (c *SCRAM) Step(challenge string) (string, error) {
	response, err := c.conversation.Step(challenge)
	if err != nil {
		return "", fmt.Errorf("%w: %w", kerr.SaslAuthenticationFailed, err)
	}
	return response, nil
}

// Done reports whether the exchange has ended.
func (c *SCRAM) Done() bool { return c.conversation.Done() }

// Challenge is Step for franz-go.
func (c *SCRAM) Challenge(challenge []byte) (done bool, response []byte, err error) {
	text, err := c.Step(string(challenge))
	return c.Done(), []byte(text), err
}
