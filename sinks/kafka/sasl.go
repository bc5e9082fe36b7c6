package kafka

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// SASL is how the client proves to the brokers who it is.
type SASL struct {
	Mechanism string `yaml:"mechanism" enum:"PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER" doc:"PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER. PLAIN sends the password as it is and OAUTHBEARER the token, so they want tls. Default: no SASL."`
	User      string `yaml:"user" doc:"Name of the user; not with OAUTHBEARER."`
	Password  string `yaml:"password" secret:"true" doc:"The user's password; not with OAUTHBEARER."`
	TokenFile string `yaml:"token_file" doc:"File with the token for OAUTHBEARER, kept current by another program; it is read for each new connection."`
}

// scramHashes are the mechanisms by the names that Kafka gives them; those that are not
// SCRAM have no hash.
var scramHashes = map[string]scram.HashGeneratorFcn{
	sarama.SASLTypePlaintext:   nil,
	sarama.SASLTypeSCRAMSHA256: scram.SHA256,
	sarama.SASLTypeSCRAMSHA512: scram.SHA512,
	sarama.SASLTypeOAuth:       nil,
}

func (s SASL) mechanism() string { return strings.ToUpper(s.Mechanism) }

// clear says whether what lets the client in is sent as it is.
func (s SASL) clear() bool {
	return s.mechanism() == sarama.SASLTypePlaintext || s.mechanism() == sarama.SASLTypeOAuth
}

// with is SASL where the program may give tokens itself, which needs no key.
func (s SASL) with(given sarama.AccessTokenProvider) SASL {
	if given != nil && s == (SASL{}) {
		s.Mechanism = sarama.SASLTypeOAuth
	}
	return s
}

// validate reports all mistakes; no error repeats the password.
func (s SASL) validate(given sarama.AccessTokenProvider) error {
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
	if s.mechanism() == sarama.SASLTypeOAuth {
		return s.validateToken(given)
	}
	return errors.Join(mechanism, s.validatePassword(given))
}

func (s SASL) validateToken(given sarama.AccessTokenProvider) error {
	var problems []error
	if s.User != "" || s.Password != "" {
		problems = append(problems, errors.New("sasl.user, sasl.password: OAUTHBEARER knows the user by the token; leave them out"))
	}
	switch {
	case s.TokenFile == "" && given == nil:
		problems = append(problems, errors.New("sasl.token_file: is missing, and sasl.mechanism is OAUTHBEARER"))
	case s.TokenFile != "" && given != nil:
		problems = append(problems, errors.New("sasl.token_file: the program gives a TokenProvider; keep one"))
	}
	return errors.Join(problems...)
}

func (s SASL) validatePassword(given sarama.AccessTokenProvider) error {
	var problems []error
	problem := func(format string, a ...any) { problems = append(problems, fmt.Errorf(format, a...)) }
	hash := scramHashes[s.mechanism()]
	plain := s.mechanism() == sarama.SASLTypePlaintext
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

// prepared tells whether SCRAM can send the two: RFC 5802 wants them through
// SASLprep, which refuses control characters and the like.
func prepared(hash scram.HashGeneratorFcn, user, password string) bool {
	_, err := hash.NewClient(user, password, "")
	return err == nil
}

// apply sets what the client needs. The configuration is valid.
func (s SASL) apply(conf *sarama.Config, given sarama.AccessTokenProvider) {
	if s == (SASL{}) {
		return
	}
	if s.TokenFile != "" {
		given = fileToken(s.TokenFile)
	}
	if given != nil {
		conf.Net.SASL.TokenProvider = &rememberedToken{AccessTokenProvider: given}
	}
	conf.Net.SASL.Enable = true
	conf.Net.SASL.Mechanism = sarama.SASLMechanism(s.mechanism())
	conf.Net.SASL.User, conf.Net.SASL.Password = s.User, s.Password
	if hash := scramHashes[s.mechanism()]; hash != nil {
		conf.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: hash} }
	}
}

// scramClient is one SCRAM exchange, as sarama wants it.
type scramClient struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

var _ sarama.SCRAMClient = (*scramClient)(nil)

func (c *scramClient) Begin(user, password, authzID string) error {
	client, err := c.hash.NewClient(user, password, authzID)
	if err != nil {
		return err
	}
	c.conversation = client.NewConversation()
	return nil
}

// Step fails where the broker refuses the proof, or cannot prove that it knows
// the password itself.
func (c *scramClient) Step(challenge string) (string, error) {
	response, err := c.conversation.Step(challenge)
	if err != nil {
		return "", fmt.Errorf("%w: %w", sarama.ErrSASLAuthenticationFailed, err)
	}
	return response, nil
}

func (c *scramClient) Done() bool { return c.conversation.Done() }
