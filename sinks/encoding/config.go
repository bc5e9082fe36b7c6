package encoding

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/certificates"
)

// Values of Config.Format.
const (
	FormatAvro       = "avro"
	FormatJSONSchema = "json-schema"
	FormatProtobuf   = "protobuf"
)

// Values of Config.Subject, which are the strategies of Confluent's serializers.
const (
	SubjectTopic       = "topic"        // TopicNameStrategy: TOPIC-value
	SubjectRecord      = "record"       // RecordNameStrategy: the schema's full name
	SubjectTopicRecord = "topic-record" // TopicRecordNameStrategy: TOPIC- and the schema's full name
)

// Config has the settings of an encoder. The zero value means that payloads are not encoded. With a Format,
// Registry.URL is required, and any other zero field means its default.
type Config struct {
	Format   string   `yaml:"format" enum:"avro,json-schema,protobuf" doc:"Encode payloads in this format, by the schemas of their types, in Confluent's wire format: avro, json-schema (validated JSON) or protobuf. Default: payloads are sent as they are"`
	Registry Registry `yaml:"registry" doc:"The schema registry, which gives each schema an id"`
	Subject  string   `yaml:"subject" enum:"topic,record,topic-record" doc:"Name under which the registry has a schema, as in Confluent's serializers: topic (TOPIC-value), record (the full name of the Avro record or Protobuf message, or the title of the JSON Schema) or topic-record (TOPIC- and that name). A topic with several types needs record or topic-record. Default topic"`
	Register bool     `yaml:"register" doc:"Register schemas that the registry does not have, if it finds them compatible. Default: deliveries wait until they are registered"`
}

// Registry has the settings of a schema registry that has Confluent's HTTP API.
type Registry struct {
	URL  string `yaml:"url" doc:"Address of the registry, such as https://registry.example:8081. Required with format"`
	Auth Auth   `yaml:"auth" doc:"Authentication with the registry: user and password, or token. Default: none"`
	TLS  TLS    `yaml:"tls" doc:"Certificates, for https"`
}

// Auth is the authentication with a registry: a user with a password, or a token. The zero value means none.
type Auth struct {
	User     string `yaml:"user" doc:"Name of the user, or an API key"`
	Password string `yaml:"password" secret:"true" doc:"Password of the user, or the secret of the API key"`
	Token    string `yaml:"token" secret:"true" doc:"Bearer token, instead of a user"`
}

// TLS has the certificates for https. The files are read again for each handshake, so that renewed
// certificates are used without a restart.
type TLS struct {
	CAFile     string `yaml:"ca_file" doc:"PEM file of the certificate authorities to trust, instead of the system's"`
	CertFile   string `yaml:"cert_file" doc:"PEM file of the client's certificate, with its intermediate certificates"`
	KeyFile    string `yaml:"key_file" doc:"PEM file of the private key of cert_file"`
	ServerName string `yaml:"server_name" doc:"Name that the registry's certificate must have. Default: the host of url"`
}

var (
	_ sinks.Defaulter = (*Config)(nil)
	_ sinks.Validator = (*Config)(nil)
)

// Enabled reports whether payloads are encoded.
func (c *Config) Enabled() bool { return c.Format != "" }

func (c *Config) contentType() string {
	if c.Format == FormatJSONSchema {
		return "application/vnd.confluent.json"
	}
	return "application/vnd.confluent." + c.Format
}

// Describe changes the description of a channel to one of encoded payloads, if they are encoded.
func (c *Config) Describe(channel *sinks.Channel) {
	if c.Enabled() {
		channel.Text += " The payload is behind the id of its schema in a schema registry, in Confluent's wire format."
		channel.ContentType, channel.Body = c.contentType(), sinks.NoSchema
	}
}

// SetDefaults fills the fields that are zero, if there is a format: Subject topic.
func (c *Config) SetDefaults() {
	if c.Enabled() {
		c.Subject = cmp.Or(c.Subject, SubjectTopic)
	}
}

// Validate returns all mistakes, joined. Each begins with the key, below "encoding". It reads the files of
// TLS. The errors do not contain passwords and tokens.
func (c *Config) Validate() error {
	if *c == (Config{}) {
		return nil
	}
	filled := *c
	filled.SetDefaults()
	return filled.validate()
}

// validate validates a configuration whose defaults are set.
func (c *Config) validate() error {
	if c.Format == "" {
		return errors.New("encoding.format: is missing; use avro, json-schema or protobuf, or leave encoding out")
	}
	mistakes := []error{
		oneOf("format", c.Format, FormatAvro, FormatJSONSchema, FormatProtobuf),
		oneOf("subject", c.Subject, SubjectTopic, SubjectRecord, SubjectTopicRecord),
		c.Registry.validateURL(),
		c.Registry.Auth.validate(),
	}
	_, err := c.Registry.TLS.files(slog.New(slog.DiscardHandler))
	return errors.Join(append(mistakes, err)...)
}

func oneOf(key, value string, offered ...string) error {
	if slices.Contains(offered, value) {
		return nil
	}
	return fmt.Errorf("encoding.%s: %q is not offered; use %s", key, value, strings.Join(offered, ", "))
}

func (r *Registry) validateURL() error {
	u, err := url.Parse(r.URL)
	switch {
	case r.URL == "":
		return errors.New("encoding.registry.url: is missing; write it like https://registry.example:8081")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("encoding.registry.url: is not an address with http:// or https:// and a host")
	case u.User != nil:
		return errors.New("encoding.registry.url: contains a user; use encoding.registry.auth, which is not shown in errors")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("encoding.registry.url: has something after its path; leave it out")
	case u.Scheme == "http" && r.TLS != (TLS{}):
		return errors.New("encoding.registry.tls: url is plain http; use https or leave tls out")
	}
	return nil
}

func (a Auth) validate() error {
	switch {
	case a.Token != "" && (a.User != "" || a.Password != ""):
		return errors.New("encoding.registry.auth: has a token and a user; use one of them")
	case a.User == "" && a.Password != "":
		return errors.New("encoding.registry.auth.user: is missing, but password is set")
	case strings.Contains(a.User, ":"):
		return errors.New("encoding.registry.auth.user: contains a colon, which would end it")
	case strings.ContainsFunc(a.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("encoding.registry.auth.token: has spaces or characters that a token cannot have")
	}
	return nil
}

// files reads the certificates. Its error names keys below encoding.registry.
func (t TLS) files(logger *slog.Logger) (*certificates.Certificates, error) {
	return certificates.New(certificates.Files{CA: t.CAFile, Cert: t.CertFile, Key: t.KeyFile, Within: "encoding.registry."}, logger)
}
