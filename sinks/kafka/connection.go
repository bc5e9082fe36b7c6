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

// Connection is how clients reach a cluster. Brokers is required.
type Connection struct {
	Brokers  []string
	ClientID string
	// Step bounds one exchange with a broker, such as connecting; default 1 s.
	Step time.Duration
	SASL SASL
	TLS  TLS

	// TLSConfig and TokenProvider are those of a [Config].
	TLSConfig     *tls.Config
	TokenProvider TokenProvider

	// Dial opens network connections; nil is net.Dialer's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Logger gets warnings, under the name of what connects; nil discards them.
	Logger *slog.Logger
	Name   string
}

// Validate reports everything that is wrong, each under the name of its field. It reads the
// files of TLS.
func (c *Connection) Validate() error {
	_, err := c.TLS.encryption(c.TLSConfig, slog.New(slog.DiscardHandler))
	return errors.Join(validateBrokers(c.Brokers), c.SASL.with(c.TokenProvider).validate(c.TokenProvider), err)
}

// Options make a client of franz-go that reaches the cluster.
func (c *Connection) Options() ([]kgo.Opt, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	r, err := c.reach()
	if err != nil {
		return nil, err
	}
	options := c.options(r)
	return options, kgo.ValidateOpts(options...)
}

// reached is what a connection comes to.
type reached struct {
	network
	sasl  SASL
	token *rememberedToken // nil without one
}

// reach takes a connection that is valid.
func (c *Connection) reach() (r reached, err error) {
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
	if r.sasl.clear() && r.encrypt == nil {
		logger.Warn("kafka gets the password or token in the clear: tls is off", "sink", c.Name, "mechanism", r.sasl.mechanism())
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

// options are those of all clients.
func (c *Connection) options(r reached) []kgo.Opt {
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.Dialer(r.connect),
		kgo.DisableClientMetrics(), // they would go to the cluster, and delay the client's end
		kgo.MetadataMinAge(leastAge),
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
