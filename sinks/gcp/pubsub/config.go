package pubsub

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/body"
	"github.com/waybill-go/waybill/sinks/encoding"
	"github.com/waybill-go/waybill/sinks/gcp/internal/account"
	"github.com/waybill-go/waybill/sinks/internal/naming"
	"github.com/waybill-go/waybill/sinks/large"
)

// Values of Config.ContentMode.
const (
	ModeStructured = "structured" // the event is JSON in the body
	ModeBinary     = "binary"     // the body is the payload, and attributes have the rest of the event
)

// DefaultTimeout is the default of Config.Timeout.
const DefaultTimeout = 10 * time.Second

// minTimeout is the least Timeout. A connection with TLS to another continent takes about this long.
const minTimeout = 500 * time.Millisecond

// EnvEmulator is the environment variable with the host:port of an emulator, which Google's clients use, too.
const EnvEmulator = "PUBSUB_EMULATOR_HOST"

// Config has the settings of a pubsub sink, which are below "with" in the configuration.
type Config struct {
	Topic           string          `yaml:"topic" doc:"Topic: its id, such as orders, its name, such as projects/shop-prod/topics/orders, or a template for either, such as {{.Metadata.tenant}}-orders. Required"`
	Project         string          `yaml:"project" doc:"Project of a topic that is an id. Default: the project of the credentials"`
	Endpoint        string          `yaml:"endpoint" doc:"host:port of the service, such as us-east1-pubsub.googleapis.com:443, or http://host:port of an emulator. Order is kept among messages that are published in the same region. Default: pubsub.googleapis.com:443, which is the nearest region"`
	CredentialsFile string          `yaml:"credentials_file" secret:"false" content:"true" doc:"Path of a key of a service account, or of a configuration of workload identity federation. It is read again for new connections. Default: Application Default Credentials"`
	Impersonate     string          `yaml:"impersonate" doc:"Email address of a service account to publish as. The credentials need roles/iam.serviceAccountTokenCreator on it. Default: none"`
	Unordered       bool            `yaml:"unordered" doc:"Whether messages have no ordering key. Otherwise it is the notification's key. Default false"`
	Timeout         time.Duration   `yaml:"timeout" doc:"How long a request may take, with connecting. At least 500ms, and less than the sink's timeout. Default 10s"`
	ContentMode     string          `yaml:"content_mode" enum:"structured,binary" doc:"Form of cloudevents: structured (JSON in the body) or binary (the body is the payload, and attributes that begin with ce- have the rest). Default structured"`
	Body            body.Config     `yaml:",inline"`
	Large           large.Config    `yaml:"large" doc:"Where bodies are stored that are too large for a message"`
	Encoding        encoding.Config `yaml:"encoding" doc:"Payloads in Avro, JSON Schema or Protobuf, with the id of their schema in a schema registry. TOPIC in the names of schemas is the id of the topic"`
}

var (
	_ sinks.Builder   = Config{}
	_ sinks.Defaulter = (*Config)(nil)
	_ sinks.Validator = (*Config)(nil)
)

// Build makes a sink of the configuration; see [New].
func (c Config) Build(in sinks.Instance) (sinks.Sink, error) { return New(in, c) }

// SetDefaults fills the fields that are zero: Timeout 10 s, Format payload, ContentMode structured.
func (c *Config) SetDefaults() {
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.ContentMode = cmp.Or(c.ContentMode, ModeStructured)
	c.Body.Format = cmp.Or(c.Body.Format, body.FormatPayload)
	c.Encoding.SetDefaults()
}

// Validate returns all mistakes, joined. Each begins with its key. It reads no file of credentials.
func (c *Config) Validate() error {
	var mistakes []error
	mistake := func(format string, a ...any) { mistakes = append(mistakes, fmt.Errorf(format, a...)) }
	if _, err := naming.New(c.Topic, checkTopic); err != nil {
		mistake("topic: %w", err)
	}
	if c.Project != "" && !legalProject.MatchString(c.Project) {
		mistake("project: %q is not the id of a project; write one such as shop-prod", c.Project)
	}
	if c.Project != "" && strings.HasPrefix(c.Topic, "projects/") {
		mistake("project: topic already names a project; leave one out")
	}
	_, plain, err := c.address()
	if err != nil {
		mistake("endpoint: %w", err)
	}
	if plain && c.Project == "" && !naming.IsTemplate(c.Topic) && !strings.HasPrefix(c.Topic, "projects/") {
		mistake("project: is missing, and an emulator has no credentials that name one; write any, such as shop")
	}
	if strings.HasPrefix(c.Endpoint, "http://") && c.account() != (account.Account{}) {
		mistake("credentials_file, impersonate: are not used without TLS; leave them out, or leave http:// out of endpoint")
	}
	if c.Impersonate != "" && !strings.Contains(c.Impersonate, "@") {
		mistake("impersonate: %q is not the email address of a service account", c.Impersonate)
	}
	if c.Timeout < minTimeout {
		mistake("timeout: %s is less than %s; a request needs some time", c.Timeout, minTimeout)
	}
	switch {
	case c.ContentMode != ModeStructured && c.ContentMode != ModeBinary:
		mistake("content_mode: %q is not offered; use %s or %s", c.ContentMode, ModeStructured, ModeBinary)
	case c.ContentMode == ModeBinary && c.Body.Format != body.FormatCloudEvents:
		mistake("content_mode: %s is for format %s, but format is %s", ModeBinary, body.FormatCloudEvents, c.Body.Format)
	}
	if c.Encoding.Enabled() && c.Body.Format != body.FormatPayload {
		mistake("encoding: is for format %s, but format is %s", body.FormatPayload, c.Body.Format)
	}
	mistakes = append(mistakes,
		c.Body.Validate(legalAttribute, maxAttributes-ownAttributes),
		c.Large.Validate(maxBody),
		c.Encoding.Validate(),
	)
	return errors.Join(mistakes...)
}

// Topics and their projects, from the documentation of the API's Topic. The id of a project may begin with a domain.
var (
	legalTopic   = regexp.MustCompile(`^(?:projects/([^/]*)/topics/)?([A-Za-z][A-Za-z0-9._~+%-]{2,254})$`)
	legalProject = regexp.MustCompile(`^[a-z0-9][a-z0-9.:-]{1,99}$`)
)

func checkTopic(name string) error {
	parts := legalTopic.FindStringSubmatch(name)
	switch {
	case name == "":
		return errors.New("is missing; write the id of a topic, such as orders")
	case parts == nil, strings.HasPrefix(name, "projects/") && !legalProject.MatchString(parts[1]):
		return fmt.Errorf("%q is not the id or name of a topic; write orders or projects/shop-prod/topics/orders", name)
	case strings.HasPrefix(parts[2], reservedPrefix):
		return fmt.Errorf("%q begins with %s, which the service does not accept", name, reservedPrefix)
	}
	return nil
}

// legalAttribute reports whether metadata can become an attribute with this name.
func legalAttribute(name string) bool {
	return name != "" && len(name) <= maxAttributeName && utf8.ValidString(name) && !strings.HasPrefix(name, reservedPrefix) &&
		!strings.HasPrefix(name, eventPrefix) && !strings.EqualFold(name, attributeContentType) && name != large.AttributeSize
}

// address returns the host:port of the service; "" for the default. plain reports whether it is an emulator's, without
// TLS and credentials. The environment variable of the emulator comes first.
func (c *Config) address() (address string, plain bool, err error) {
	if emulator := os.Getenv(EnvEmulator); emulator != "" {
		return emulator, true, nil
	}
	address, plain = strings.CutPrefix(c.Endpoint, "http://")
	if host, port, err := net.SplitHostPort(address); c.Endpoint != "" && (err != nil || host == "" || port == "" || strings.ContainsAny(address, "/@")) {
		return "", false, errors.New("is not an address; write one such as us-east1-pubsub.googleapis.com:443, or http://127.0.0.1:8085 for an emulator")
	}
	return address, plain, nil
}

func (c *Config) account() account.Account {
	return account.Account{File: c.CredentialsFile, Impersonate: c.Impersonate}
}
