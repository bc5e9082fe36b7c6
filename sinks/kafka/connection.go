package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Connection has the settings with which a client connects to a cluster. Brokers is required.
type Connection struct {
	// Brokers are addresses of some brokers, as host:port.
	Brokers []string
	// ClientID is the client's name in the brokers' logs and quotas.
	ClientID string
	// Step limits one exchange with a broker, such as connecting; 0 means 1 s.
	Step time.Duration
	SASL SASL
	TLS  TLS

	// TLSConfig and TokenProvider are the same as in [Config].
	TLSConfig     *tls.Config
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
func (c *Connection) Validate() error {
	_, err := c.TLS.encryption(c.TLSConfig, slog.New(slog.DiscardHandler))
	return errors.Join(validateBrokers(c.Brokers), c.SASL.with(c.TokenProvider).validate(c.TokenProvider), err)
}

// Options returns the options with which a franz-go client connects to the cluster. Its errors
// are those of Validate.
func (c *Connection) Options() ([]kgo.Opt, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	r, err := c.access()
	if err != nil {
		return nil, err
	}
	options := c.options(r)
	return options, kgo.ValidateOpts(options...)
}

// access is what the clients of a connection share: network, TLS and SASL.
type access struct {
	network
	sasl  SASL
	token *tokenSource // nil without OAUTHBEARER
}

// access makes the access of a valid connection.
func (c *Connection) access() (r access, err error) {
	logger := c.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	r.network = network{dial: c.Dial, timeout: c.step()}
	if r.dial == nil {
		r.dial = new(net.Dialer).DialContext
	}
	if r.encrypt, err = c.TLS.encryption(c.TLSConfig, logger); err != nil {
		return r, fmt.Errorf("kafka client: %w", err)
	}
	r.sasl = c.SASL.with(c.TokenProvider)
	if r.sasl.sendsClearText() && r.encrypt == nil {
		logger.Warn("the password or token is sent to kafka in clear text, because tls is off", "sink", c.Name, "mechanism", r.sasl.mechanism())
	}
	r.token = r.sasl.token(c.TokenProvider)
	return r, nil
}

func (c *Connection) step() time.Duration {
	if c.Step <= 0 {
		return time.Second
	}
	return c.Step
}

// options returns the options that all franz-go clients need.
func (c *Connection) options(r access) []kgo.Opt {
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.Dialer(r.connect),
		kgo.DisableClientMetrics(), // they would be sent to the cluster and delay Close
		kgo.MetadataMinAge(metadataMinAge),
		kgo.RetryBackoffFn(backoff),
		kgo.RequestRetries(2),
		kgo.RetryTimeout(3 * c.step()),
		kgo.RequestTimeoutOverhead(c.step()),
		kgo.ConnIdleTimeout(time.Minute),
	}
	if mechanism := r.sasl.franz(r.token); mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	return options
}
