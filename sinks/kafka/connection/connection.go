// Package connection connects clients to a Kafka cluster: addresses, TLS and SASL. The kafka sink and the
// kafka source have these settings.
package connection

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// Retries is how often a client retries after a temporary failure.
	Retries = 4
	// metadataMinAge is the least time between two requests for the topics' state. A record
	// whose partition has no leader is retried after it.
	metadataMinAge = 250 * time.Millisecond
)

// Backoff returns how long a client waits before a retry: 1, 8, 64 and 512 ms.
func Backoff(try int) time.Duration {
	return time.Millisecond << (3 * (min(max(try, 1), Retries) - 1))
}

// Config has the settings with which a client connects to a cluster. Brokers is required.
type Config struct {
	// Brokers are addresses of some brokers, as host:port.
	Brokers []string
	// ClientID is the client's name in the brokers' logs and quotas.
	ClientID string
	// Step limits one exchange with a broker, such as connecting; 0 means 1 s.
	Step time.Duration
	SASL SASL
	TLS  TLS

	// TLSConfig turns TLS on, and replaces the keys of tls. Without a ServerName, a broker's
	// certificate must have the host of the connection. Open copies it.
	TLSConfig *tls.Config
	// TokenProvider provides tokens for the SASL mechanism OAUTHBEARER, which it turns on.
	TokenProvider TokenProvider

	// Dial opens network connections; nil means net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Logger gets warnings; nil discards them.
	Logger *slog.Logger
	// Name is the sink or source in these warnings.
	Name string
}

// Validate returns all mistakes, joined. Each begins with a configuration key. Validate reads
// the files of TLS.
func (c *Config) Validate() error {
	_, err := c.TLS.encryption(c.TLSConfig, slog.New(slog.DiscardHandler))
	return errors.Join(validateBrokers(c.Brokers), c.SASL.with(c.TokenProvider).validate(c.TokenProvider), err)
}

func validateBrokers(brokers []string) error {
	if len(brokers) == 0 {
		return errors.New("brokers: at least one address is needed, such as localhost:9092")
	}
	var problems []error
	for _, broker := range brokers {
		host, port, err := net.SplitHostPort(broker)
		number, numberErr := strconv.Atoi(port)
		if err != nil || host == "" || numberErr != nil || number < 1 || number > 65535 {
			problems = append(problems, fmt.Errorf("brokers: %q is not host:port", broker))
		}
	}
	return errors.Join(problems...)
}

// Opened is how clients reach a cluster. It has made no connection.
type Opened struct {
	// Brokers, ClientID and Step are the same as in [Config].
	Brokers  []string
	ClientID string
	Step     time.Duration
	// SASL is the authentication; zero for none.
	SASL SASL

	network
	tokens *tokens // nil without OAUTHBEARER
}

// Open checks the configuration. Its errors are those of Validate.
func (c *Config) Open() (*Opened, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	logger := c.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	o := &Opened{Brokers: c.Brokers, ClientID: c.ClientID, Step: c.Step, SASL: c.SASL.with(c.TokenProvider)}
	if o.Step <= 0 {
		o.Step = time.Second
	}
	o.network = network{dial: c.Dial, timeout: o.Step}
	if o.dial == nil {
		o.dial = new(net.Dialer).DialContext
	}
	var err error
	if o.encrypt, err = c.TLS.encryption(c.TLSConfig, logger); err != nil {
		return nil, err
	}
	if o.SASL.sendsClearText() && !o.Encrypts() {
		logger.Warn("the password or token is sent to kafka in clear text, because tls is off", "sink", c.Name, "mechanism", o.SASL.mechanism())
	}
	o.tokens = o.SASL.tokens(c.TokenProvider)
	return o, nil
}

// Encrypts reports whether connections use TLS.
func (o *Opened) Encrypts() bool { return o.encrypt != nil }

// Secrets returns the password or the newest token, which a broker may repeat in its refusals.
func (o *Opened) Secrets() []string {
	if o.tokens != nil {
		return []string{o.tokens.newest()}
	}
	return []string{o.SASL.Password}
}

// HasTokens reports whether the client authenticates with tokens.
func (o *Opened) HasTokens() bool { return o.tokens != nil }

// Token returns a token for OAUTHBEARER.
func (o *Opened) Token(ctx context.Context) (Token, error) { return o.tokens.get(ctx) }

// Options returns the options that all franz-go clients need.
func (o *Opened) Options() []kgo.Opt {
	options := []kgo.Opt{
		kgo.SeedBrokers(o.Brokers...),
		kgo.ClientID(o.ClientID),
		kgo.Dialer(o.Connect),
		kgo.DisableClientMetrics(), // they would be sent to the cluster and delay Close
		kgo.MetadataMinAge(metadataMinAge),
		kgo.RetryBackoffFn(Backoff),
		kgo.RequestRetries(2),
		kgo.RetryTimeout(3 * o.Step),
		kgo.RequestTimeoutOverhead(o.Step),
		kgo.ConnIdleTimeout(time.Minute),
	}
	if mechanism := o.SASL.franz(o.tokens); mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	return options
}
