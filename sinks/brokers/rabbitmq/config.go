package rabbitmq

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers"
	"github.com/waybill-go/waybill/sinks/encoding"
	"github.com/waybill-go/waybill/sinks/publisher"
)

// maxName is AMQP's limit in bytes for the names of exchanges, routing keys and headers.
const maxName = 255

// Config has the settings of a rabbitmq sink, which are below "with" in the configuration.
type Config struct {
	URL          string          `yaml:"url" secret:"password" doc:"Address of the broker: amqp://host:5672/vhost, or amqps://host:5671/vhost with TLS. Required"`
	User         string          `yaml:"user" doc:"Name of the user, if the URL has none. Default: guest, with the password guest"`
	Password     string          `yaml:"password" secret:"true" doc:"Password of the user, if the URL has none"`
	Exchange     string          `yaml:"exchange" doc:"Exchange to publish to. Default: the broker's default exchange, whose routing keys are names of queues"`
	ExchangeType string          `yaml:"exchange_type" enum:"direct,fanout,topic,headers,x-consistent-hash" doc:"Type of the exchange. If it is set, the sink declares the exchange as durable when it connects. Default: the exchange must exist"`
	Topic        string          `yaml:"topic" doc:"Routing key, or a template for it, such as {{.Type}}, {{.Key}} or {{.Metadata.tenant}}.orders. Required"`
	Mandatory    bool            `yaml:"mandatory" doc:"Whether a message must reach a queue. If no queue is bound for it, the sink is unavailable. With false the broker confirms such a message and drops it"`
	Timeout      time.Duration   `yaml:"timeout" doc:"How long connecting may take, and the broker's confirmation of a message. At least 100ms, and less than the sink's timeout"`
	Encoding     encoding.Config `yaml:"encoding" doc:"Payloads in Avro, JSON Schema or Protobuf, with the id of their schema in a schema registry. TOPIC in the names of schemas is the routing key, also in an exchange with a name"`
	TLS          brokers.TLS     `yaml:"tls" doc:"Settings of TLS, for amqps://"`
}

var (
	_ sinks.Builder   = Config{}
	_ sinks.Defaulter = (*Config)(nil)
	_ sinks.Validator = (*Config)(nil)
)

// Build makes a sink of the configuration; see [New].
func (c Config) Build(in sinks.Instance) (sinks.Sink, error) { return New(in, c) }

// SetDefaults sets Mandatory to true, and Timeout to 10 s.
func (c *Config) SetDefaults() {
	c.Mandatory = true
	c.Timeout = brokers.DefaultTimeout
}

// Validate returns all mistakes, joined. Each begins with its key.
func (c *Config) Validate() error {
	_, _, err := c.address()
	if c.Password != "" && c.User == "" {
		err = errors.Join(err, errors.New("user: is missing, but password is set"))
	}
	return errors.Join(
		err,
		c.validateExchange(),
		c.publishing().Validate(),
		c.Encoding.Validate(),
		brokers.CheckTimeout(c.Timeout),
	)
}

func (c *Config) parsed() (*url.URL, error) {
	return brokers.ParseURL(c.URL, c.User, c.Password, "amqp", "amqps")
}

// address returns the broker's URL with user and password, and the TLS configuration.
func (c *Config) address() (string, *tls.Config, error) {
	u, err := c.parsed()
	if err != nil {
		return "", nil, err
	}
	if _, err := amqp.ParseURI(u.String()); err != nil {
		return "", nil, errors.New("url: is not an AMQP address; its path is the virtual host, such as amqp://host:5672/shop")
	}
	encryption, err := c.encryption(u)
	return u.String(), encryption, err
}

func (c *Config) encryption(u *url.URL) (*tls.Config, error) {
	conf, err := c.TLS.Config(u.Scheme == "amqps")
	if conf != nil && conf.ServerName == "" {
		conf.ServerName = u.Hostname()
	}
	return conf, err
}

func (c *Config) validateExchange() error {
	switch {
	case len(c.Exchange) > maxName:
		return fmt.Errorf("exchange: has %d bytes, the limit is %d", len(c.Exchange), maxName)
	case c.Exchange == "" && c.ExchangeType != "":
		return errors.New("exchange: is missing; it must be declared, because exchange_type is set")
	}
	switch c.ExchangeType {
	case "", amqp.ExchangeDirect, amqp.ExchangeFanout, amqp.ExchangeTopic, amqp.ExchangeHeaders, consistentHash:
		return nil
	}
	return fmt.Errorf("exchange_type: %q is not offered; declare the exchange yourself, and leave this out", c.ExchangeType)
}

func (c *Config) publishing() publisher.Config {
	return publisher.Config{Topic: c.Topic, Classify: classify}
}
