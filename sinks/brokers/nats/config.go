package nats

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers"
	"github.com/waybill-go/waybill/sinks/encoding"
	"github.com/waybill-go/waybill/sinks/internal/redact"
	"github.com/waybill-go/waybill/sinks/publisher"
)

// Config has the settings of a nats sink, which are below "with" in the configuration.
type Config struct {
	Servers          []string        `yaml:"servers" secret:"url" doc:"Addresses of some servers of the cluster, as nats://host:4222, or tls://host:4222 to require TLS. The client discovers the others. Required"`
	User             string          `yaml:"user" doc:"Name of the user, if the addresses have none"`
	Password         string          `yaml:"password" secret:"true" doc:"Password of the user"`
	Token            string          `yaml:"token" secret:"true" doc:"Token, for servers that require one"`
	CredentialsFile  string          `yaml:"credentials_file" content:"true" doc:"Credentials file (.creds) with the JWT and the seed of a user"`
	NKeyFile         string          `yaml:"nkey_file" content:"true" doc:"File with the seed of a user's NKey"`
	Topic            string          `yaml:"topic" doc:"Subject, or a template for it, such as shop.{{.Type}} or shop.{{.Metadata.tenant}}.orders. It must belong to a stream. Required"`
	Stream           string          `yaml:"stream" doc:"Name of the stream that must store the messages. If the subject belongs to another stream, that stream refuses them. waybill config check also checks this stream. Default: the stream that has the subject"`
	MaxConnectionAge time.Duration   `yaml:"max_connection_age" doc:"How long new messages use a connection. The next one resolves the names again"`
	Timeout          time.Duration   `yaml:"timeout" doc:"How long a stream may take to store a message. At least 100ms, and less than the sink's timeout"`
	Encoding         encoding.Config `yaml:"encoding" doc:"Payloads in Avro, JSON Schema or Protobuf, with the id of their schema in a schema registry. TOPIC in the names of schemas is the subject"`
	TLS              brokers.TLS     `yaml:"tls" doc:"Settings of TLS. If any of them is set, connections are encrypted"`
}

var (
	_ sinks.Builder   = Config{}
	_ sinks.Defaulter = (*Config)(nil)
	_ sinks.Validator = (*Config)(nil)
)

// Build makes a sink of the configuration; see [New].
func (c Config) Build(in sinks.Instance) (sinks.Sink, error) { return New(in, c) }

// SetDefaults sets MaxConnectionAge to 5 minutes, and Timeout to 10 s.
func (c *Config) SetDefaults() {
	c.MaxConnectionAge = brokers.DefaultMaxConnectionAge
	c.Timeout = brokers.DefaultTimeout
}

// Validate returns all mistakes, joined. Each begins with its key. It reads the files.
func (c *Config) Validate() error {
	_, errTLS := c.encryption()
	_, errCredentials := c.credentials()
	return errors.Join(
		c.validateServers(),
		errCredentials,
		c.publishing().Validate(),
		c.Encoding.Validate(),
		c.validateStream(),
		brokers.CheckMaxConnectionAge(c.MaxConnectionAge),
		brokers.CheckTimeout(c.Timeout),
		errTLS,
	)
}

func (c *Config) validateServers() error {
	if len(c.Servers) == 0 {
		return errors.New("servers: at least one address is needed, such as nats://localhost:4222")
	}
	var problems []error
	for i, server := range c.Servers {
		u, err := url.Parse(server)
		switch {
		case err != nil || u.Scheme != "nats" && u.Scheme != "tls" || u.Hostname() == "" || strings.Contains(server, ","):
			problems = append(problems, fmt.Errorf("servers: address %d is not like nats://host:4222 or tls://host:4222", i+1))
		case u.User != nil && c.methods() > 0:
			problems = append(problems, fmt.Errorf("servers: address %d contains a user or token, but other credentials are also set; keep one", i+1))
		}
	}
	return errors.Join(problems...)
}

func (c *Config) validateStream() error {
	if strings.ContainsAny(c.Stream, " \t\r\n.*>/\\") {
		return fmt.Errorf("stream: %q is not a legal name of a stream", c.Stream)
	}
	return nil
}

// methods counts the configured methods of authentication.
func (c *Config) methods() (n int) {
	for _, given := range []bool{c.User != "" || c.Password != "", c.Token != "", c.CredentialsFile != "", c.NKeyFile != ""} {
		if given {
			n++
		}
	}
	return n
}

// credentials returns the client's option for authentication; nil if there is none. It reads the
// files. The client reads them again whenever it connects.
func (c *Config) credentials() (nats.Option, error) {
	switch {
	case c.methods() > 1:
		return nil, errors.New("user: only one of user with password, token, credentials_file and nkey_file can be given")
	case c.Password != "" && c.User == "":
		return nil, errors.New("user: is missing, but password is set")
	case c.User != "":
		return nats.UserInfo(c.User, c.Password), nil
	case c.Token != "":
		return nats.Token(c.Token), nil
	case c.CredentialsFile != "":
		if err := checkCredentials(c.CredentialsFile); err != nil {
			return nil, fmt.Errorf("credentials_file: %w", err)
		}
		return nats.UserCredentials(c.CredentialsFile), nil
	case c.NKeyFile != "":
		option, err := nats.NkeyOptionFromSeed(c.NKeyFile)
		if err != nil {
			return nil, fmt.Errorf("nkey_file: %s: %w", c.NKeyFile, err)
		}
		return option, nil
	}
	return nil, nil
}

// checkCredentials returns the error that the client would return when it connects.
func checkCredentials(path string) error {
	contents, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_, errJWT := nkeys.ParseDecoratedJWT(contents)
	key, errSeed := nkeys.ParseDecoratedUserNKey(contents)
	if errJWT != nil || errSeed != nil {
		return fmt.Errorf("%s does not contain the JWT and the seed of a user", path)
	}
	key.Wipe()
	return nil
}

// secrets returns what must not be in errors: the password, the token, the JWT, and those in addresses.
func (c *Config) secrets() redact.Credentials {
	secrets := []string{c.Password, c.Token}
	for _, server := range c.Servers {
		if u, err := url.Parse(server); err == nil {
			secrets = append(secrets, brokers.Secret(u.User))
		}
	}
	if contents, err := os.ReadFile(c.CredentialsFile); err == nil {
		jwt, _ := nkeys.ParseDecoratedJWT(contents)
		secrets = append(secrets, jwt)
	}
	return redact.New(secrets...)
}

func (c *Config) encryption() (*tls.Config, error) { return c.TLS.Config(c.TLS != brokers.TLS{}) }

func (c *Config) publishing() publisher.Config {
	return publisher.Config{Topic: c.Topic, Classify: classify}
}
