package redis

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers"
	"github.com/waybill-go/waybill/sinks/encoding"
	"github.com/waybill-go/waybill/sinks/publisher"
)

// serverLimit is the default of proto-max-bulk-len. A server closes the connection after a larger
// value.
const serverLimit = 512 << 20

var schemes = []string{"redis", "rediss"}

// Config has the settings of a redis sink, which are below "with" in the configuration.
type Config struct {
	URL              string          `yaml:"url" secret:"password" doc:"Address of the server: redis://host:6379/0, where 0 is the database, or rediss:// with TLS. Required"`
	User             string          `yaml:"user" doc:"Name of the user, if the URL has none. Default: the server's default user"`
	Password         string          `yaml:"password" secret:"true" doc:"Password, if the URL has none"`
	Topic            string          `yaml:"topic" doc:"Key of the stream, or a template for it, such as shop.{{.Type}} or {{.Metadata.tenant}}.orders. Required"`
	MaxLength        int64           `yaml:"max_length" doc:"About how many entries a stream keeps. The oldest are deleted, whether they were read or not. Default 0: all"`
	MaxMessageBytes  int             `yaml:"max_message_bytes" doc:"Largest payload, and largest metadata value, in bytes; not above the server's proto-max-bulk-len"`
	MaxConnectionAge time.Duration   `yaml:"max_connection_age" doc:"How long a connection is used. The next one resolves the name again"`
	Timeout          time.Duration   `yaml:"timeout" doc:"How long connecting may take, and each answer of the server. At least 100ms, and less than the sink's timeout"`
	Encoding         encoding.Config `yaml:"encoding" doc:"Payloads in Avro, JSON Schema or Protobuf, with the id of their schema in a schema registry. TOPIC in the names of schemas is the key of the stream"`
	TLS              brokers.TLS     `yaml:"tls" doc:"Settings of TLS, for rediss://"`
}

var (
	_ sinks.Builder   = Config{}
	_ sinks.Defaulter = (*Config)(nil)
	_ sinks.Validator = (*Config)(nil)
)

// Build makes a sink of the configuration; see [New].
func (c Config) Build(in sinks.Instance) (sinks.Sink, error) { return New(in, c) }

// SetDefaults sets MaxMessageBytes to the server's default limit, MaxConnectionAge to 5 minutes, and
// Timeout to 10 s.
func (c *Config) SetDefaults() {
	c.MaxMessageBytes = serverLimit
	c.MaxConnectionAge = brokers.DefaultMaxConnectionAge
	c.Timeout = brokers.DefaultTimeout
}

// Validate returns all mistakes, joined. Each begins with its key.
func (c *Config) Validate() error {
	_, err := c.options()
	return errors.Join(
		err,
		c.publishing().Validate(),
		c.Encoding.Validate(),
		c.validateLimits(),
		brokers.CheckTimeout(c.Timeout),
	)
}

func (c *Config) validateLimits() error {
	var problems []error
	if c.MaxLength < 0 {
		problems = append(problems, fmt.Errorf("max_length: %d is below 0", c.MaxLength))
	}
	if c.MaxMessageBytes < 1 {
		problems = append(problems, fmt.Errorf("max_message_bytes: %d is below 1", c.MaxMessageBytes))
	}
	return errors.Join(append(problems, brokers.CheckMaxConnectionAge(c.MaxConnectionAge))...)
}

// options returns the client's options that come from the configuration.
func (c *Config) options() (*redis.Options, error) {
	u, err := brokers.ParseURL(c.URL, c.User, c.Password, schemes...)
	if err != nil {
		return nil, err
	}
	var problems []error
	database := 0
	if path := strings.Trim(u.Path, "/"); path != "" {
		if database, err = strconv.Atoi(path); err != nil || database < 0 {
			problems = append(problems, errors.New("url: its path is not the number of a database; write one such as redis://host:6379/0"))
		}
	}
	if u.RawQuery != "" {
		problems = append(problems, errors.New("url: has options after a question mark, which are not supported"))
	}
	encryption, err := c.encryption(u.Scheme == "rediss", u.Hostname())
	problems = append(problems, err)
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	password, _ := u.User.Password()
	return &redis.Options{
		Addr:      net.JoinHostPort(u.Hostname(), port),
		Username:  u.User.Username(),
		Password:  password,
		DB:        database,
		TLSConfig: encryption,
	}, nil
}

func (c *Config) encryption(encrypted bool, host string) (*tls.Config, error) {
	conf, err := c.TLS.Config(encrypted)
	if conf != nil && conf.ServerName == "" {
		conf.ServerName = host
	}
	return conf, err
}

func (c *Config) publishing() publisher.Config {
	return publisher.Config{Topic: c.Topic, Classify: classify}
}
