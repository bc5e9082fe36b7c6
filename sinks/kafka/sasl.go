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
	Mechanism string `yaml:"mechanism" enum:"PLAIN,SCRAM-SHA-256,SCRAM-SHA-512" doc:"PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. PLAIN sends the password as it is, so it wants tls. Default: no SASL."`
	User      string `yaml:"user" doc:"Name of the user."`
	Password  string `yaml:"password" secret:"true" doc:"The user's password."`
}

// scramHashes are the mechanisms by the names that Kafka gives them; PLAIN has
// no hash.
var scramHashes = map[string]scram.HashGeneratorFcn{
	sarama.SASLTypePlaintext:   nil,
	sarama.SASLTypeSCRAMSHA256: scram.SHA256,
	sarama.SASLTypeSCRAMSHA512: scram.SHA512,
}

func (s SASL) mechanism() string { return strings.ToUpper(s.Mechanism) }

// plain tells whether the password is sent as it is.
func (s SASL) plain() bool { return s.mechanism() == sarama.SASLTypePlaintext }

// validate reports all mistakes; no error repeats the password.
func (s SASL) validate() error {
	if s == (SASL{}) {
		return nil
	}
	var problems []error
	problem := func(format string, a ...any) { problems = append(problems, fmt.Errorf(format, a...)) }
	hash, known := scramHashes[s.mechanism()]
	names := strings.Join(slices.Sorted(maps.Keys(scramHashes)), ", ")
	switch {
	case s.Mechanism == "":
		problem("sasl.mechanism: is missing; use one of %s", names)
	case !known:
		problem("sasl.mechanism: %q is not offered; use one of %s", s.Mechanism, names)
	}
	switch {
	case s.User == "":
		problem("sasl.user: is missing")
	case s.plain() && strings.Contains(s.User, "\x00"):
		problem("sasl.user: contains a zero byte, which would end it")
	case hash != nil && !prepared(hash, s.User, "password"):
		problem("sasl.user: has characters that SCRAM does not allow")
	}
	switch {
	case s.Password == "":
		problem("sasl.password: is missing")
	case s.plain() && strings.Contains(s.Password, "\x00"):
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
func (s SASL) apply(conf *sarama.Config) {
	if s == (SASL{}) {
		return
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
