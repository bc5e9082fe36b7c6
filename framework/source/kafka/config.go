package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/waybill-go/waybill/sinks/kafka/connection"
)

// The values of Config.Lost: what to do if records are gone that a sink has not settled.
const (
	LostStop = "stop" // the lane stops, with an error that names the lost records
	LostSkip = "skip" // the loss is logged, and the lane continues after the lost records
)

// requestTimeout is how long one request to the cluster may take. A single answer of a broker may take a
// fifth of it. Brokers answer within milliseconds, and a lane that waits for longer can only say so.
const requestTimeout = 10 * time.Second

// clientName is the client's name in the brokers' logs and quotas, and begins the names of groups.
const clientName = "waybill"

// Config configures a source. Brokers and Topics are required; zero fields have their defaults.
type Config struct {
	Brokers []string `yaml:"brokers" doc:"Addresses of some brokers of the cluster, as host:port. The client discovers the others. Required"`
	Topics  []string `yaml:"topics" doc:"Topics to read, with up to 1,024 partitions together. A topic that is added later is read from its oldest record. Required"`
	Type    string   `yaml:"type" doc:"Expression for the type of records that are neither written by the kafka sink nor CloudEvents. It can use topic, partition, offset, key, headers and payload (parsed JSON), as in topic, headers[\"event-type\"] or \"order.\" + payload.kind. Without it such records have the type waybill.unreadable"`
	Lost    string   `yaml:"lost" enum:"stop,skip" doc:"What happens if records are gone that a sink has not read, after retention or an unclean leader election: stop (the lane waits for a person, and its error says what is gone) or skip (the lane continues after them, and the loss is logged). Default: stop"`

	SASL connection.SASL `yaml:"sasl" link:"sinks.md#kind-kafka" doc:"Authentication to the brokers, with the keys of a kafka sink's sasl"`
	TLS  connection.TLS  `yaml:"tls" link:"sinks.md#kind-kafka" doc:"TLS to the brokers, with the keys of a kafka sink's tls"`

	// TLSConfig and TokenProvider are as in the configuration of a kafka sink.
	TLSConfig     *tls.Config              `yaml:"-"`
	TokenProvider connection.TokenProvider `yaml:"-"`
	// Dial opens network connections; nil means a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error) `yaml:"-"`
	// Logger logs losses and failures of the groups; nil means slog's default.
	Logger *slog.Logger `yaml:"-"`

	timeout time.Duration // of a request; tests shorten it
}

// SetDefaults sets zero fields to their defaults.
func (c *Config) SetDefaults() {
	c.Lost = cmp.Or(c.Lost, LostStop)
	c.timeout = cmp.Or(c.timeout, requestTimeout)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}

// Validate reports all mistakes, each with the name of its field.
func (c *Config) Validate() error {
	filled := *c
	filled.SetDefaults()
	return filled.validate()
}

func (c *Config) validate() error {
	_, typeErr := compileType(c.Type)
	var lostErr error
	if c.Lost != LostStop && c.Lost != LostSkip {
		lostErr = fmt.Errorf("lost: %q is not offered; use %s or %s", c.Lost, LostStop, LostSkip)
	}
	return errors.Join(new(c.connection()).Validate(), c.validateTopics(), lostErr, typeErr)
}

func (c *Config) validateTopics() error {
	if len(c.Topics) == 0 {
		return errors.New("topics: name the topics to read")
	}
	var problems []error
	for i, topic := range c.Topics {
		if topic == "" {
			problems = append(problems, errors.New("topics: one name is empty"))
		}
		if slices.Contains(c.Topics[:i], topic) {
			problems = append(problems, fmt.Errorf("topics: %s is listed twice", topic))
		}
	}
	return errors.Join(problems...)
}

func (c *Config) connection() connection.Config {
	return connection.Config{
		Brokers: c.Brokers, ClientID: clientName, Step: c.timeout / 5, SASL: c.SASL, TLS: c.TLS,
		TLSConfig: c.TLSConfig, TokenProvider: c.TokenProvider, Dial: c.Dial, Logger: c.Logger, Name: "source",
	}
}
