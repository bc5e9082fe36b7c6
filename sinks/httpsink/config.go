package httpsink

import (
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink/internal/signature"
	"github.com/waybill-go/waybill/sinks/internal/cloudevents"
)

// Defaults and limits of the configuration.
const (
	DefaultBatchSize  = 100
	DefaultBatchBytes = 1 << 20

	maxBatchSize  = 10_000
	maxBatchWait  = time.Minute
	minBatchBytes = 1 << 10
	maxBatchBytes = 64 << 20
)

// Values of Config.Format.
const (
	FormatEnvelope   = "envelope"               // the whole notification as JSON
	FormatJSON       = "json"                   // the payload as the body, the rest in headers
	FormatBinary     = "cloudevents-binary"     // the payload as the body, the rest in CloudEvents headers
	FormatStructured = "cloudevents-structured" // one event as JSON
	FormatBatch      = "cloudevents-batch"      // many events as JSON
)

var formats = []string{FormatEnvelope, FormatJSON, FormatBinary, FormatStructured, FormatBatch}

// isEvents reports whether requests of a format are CloudEvents.
func isEvents(format string) bool { return strings.HasPrefix(format, "cloudevents-") }

// Config has the settings of a sink, which are below "with" in the configuration. Only URL is
// required; any other zero field means its default.
type Config struct {
	URL      string            `yaml:"url" secret:"url" doc:"URL of the requests, http or https, or a template for it with {{.Type}}, {{.ID}}, {{.Key}}, {{.Version}}, {{.Metadata.tenant}} or {{.Meta \"tenant-id\"}}. Values are percent-encoded. A notification that lacks the metadata is refused permanently. user:password@ becomes basic authentication. Required"`
	Method   string            `yaml:"method" enum:"POST,PUT" doc:"POST or PUT. Default POST"`
	Format   string            `yaml:"format" enum:"envelope,json,cloudevents-binary,cloudevents-structured,cloudevents-batch" doc:"Format of requests: envelope (the whole notification as JSON), json (the payload as the body, and the rest in headers, which signatures do not cover), cloudevents-binary, cloudevents-structured or cloudevents-batch. Default: envelope if requests are signed, or else json"`
	Metadata []string          `yaml:"metadata" doc:"Metadata to send: names, prefixes with a *, or * for all. The content type and the trace context (traceparent, tracestate) are always sent. Default: none"`
	Source   string            `yaml:"source" doc:"URI of the publisher in the cloudevents formats, absolute or relative, such as https://shop.example/orders or /shop. Source and id together make an event unique. Required for the cloudevents formats"`
	Batch    Batch             `yaml:"batch" doc:"Settings of cloudevents-batch, which sends many notifications in one request"`
	Headers  map[string]string `yaml:"headers" secret:"true" doc:"Headers of every request, in printable ASCII. Headers that the sink itself sets are refused"`
	Bearer   string            `yaml:"bearer" secret:"true" doc:"Bearer token for the Authorization header"`
	User     string            `yaml:"user" doc:"Name of the user for basic authentication, without a colon"`
	Password string            `yaml:"password" secret:"true" doc:"Password of the user"`
	Secret   string            `yaml:"secret" secret:"true" doc:"Secret for signing requests as Standard Webhooks: base64 of 24 to 64 random bytes, with or without the prefix whsec_, or an ed25519 key with the prefix whsk_. If the URL's host comes from data, it must be an ed25519 key, because with a shared secret each receiver could forge requests to the others"`
	Secrets  []string          `yaml:"secrets" secret:"true" doc:"More secrets like secret. Each of them signs every request, so that receivers can switch from one to another"`
	Timeout  time.Duration     `yaml:"timeout" doc:"How long one delivery or batch may take; connecting may take half of it. Default 10s"`
	Proxy    string            `yaml:"proxy" secret:"password" doc:"URL of the proxy for requests, with http, https, socks5 or socks5h, and user and password if needed; none for no proxy. Default: from HTTP_PROXY, HTTPS_PROXY and NO_PROXY"`
	TLS      TLS               `yaml:"tls"`
	Guard    Guard             `yaml:"guard" doc:"Protection against requests to private networks"`

	// TLSConfig replaces TLS, for settings that files cannot express, such as a key in
	// hardware. New copies it. If it has no ServerName, the host of the connection is used.
	// Its client certificates are not sent to proxies.
	TLSConfig *tls.Config `yaml:"-"`
}

// Batch has the limits of batches.
type Batch struct {
	Size     int           `yaml:"size" doc:"Most notifications in a batch, 2 to 10000. Default 100"`
	Wait     time.Duration `yaml:"wait" doc:"How long a notification may wait for its batch to fill, up to 1m. Default 0s: a batch takes what is pending"`
	MaxBytes int           `yaml:"max_bytes" doc:"Largest body of a request in bytes, 1024 to 67108864. A larger batch is split into several requests, in order; a larger event is sent alone. Default 1048576"`
}

var (
	_ sinks.Builder   = Config{}
	_ sinks.Defaulter = (*Config)(nil)
	_ sinks.Validator = (*Config)(nil)
)

// Build makes a sink of the configuration; see [New].
func (c Config) Build(in sinks.Instance) (sinks.Sink, error) { return New(in, c) }

// SetDefaults fills the fields that are zero.
func (c *Config) SetDefaults() {
	if c.Method == "" {
		c.Method = http.MethodPost
	}
	if c.Format == "" && c.URL != "" { // without a URL, the user's values are not decoded yet
		c.Format = c.defaultFormat()
	}
	if c.Format == FormatBatch && c.Batch.Size == 0 {
		c.Batch.Size = DefaultBatchSize
	}
	if c.Format == FormatBatch && c.Batch.MaxBytes == 0 {
		c.Batch.MaxBytes = DefaultBatchBytes
	}
	client := c.client()
	client.SetDefaults()
	c.Timeout, c.Guard.Mode = client.Timeout, client.Guard.Mode
}

// client returns the settings of the client that makes the requests.
func (c *Config) client() *ClientConfig {
	return &ClientConfig{Timeout: c.Timeout, Proxy: c.Proxy, TLS: c.TLS, Guard: c.Guard, AllowHTTP: true, TLSConfig: c.TLSConfig}
}

// defaultFormat returns FormatEnvelope if requests are signed, because signatures do not cover
// headers.
func (c *Config) defaultFormat() string {
	if c.Secret != "" || len(c.Secrets) > 0 {
		return FormatEnvelope
	}
	return FormatJSON
}

// Validate returns all mistakes, joined. Errors do not quote secrets.
func (c *Config) Validate() error {
	filled := *c
	filled.SetDefaults()
	_, err := filled.resolve(sinks.Instance{})
	return err
}

// settings are the values that are computed once from a configuration.
type settings struct {
	destination destination
	metadata    selection
	headers     http.Header
	keys        []signature.Key
	connections connectionSettings
	credentials []string // texts that errors must not repeat
}

// resolver computes the settings of a configuration, and collects all mistakes in it.
type resolver struct {
	*Config
	settings
	mistakes []error
}

func (r *resolver) mistake(format string, a ...any) {
	r.mistakes = append(r.mistakes, fmt.Errorf(format, a...))
}

// resolve computes the settings of a configuration whose defaults are set. The error joins all
// mistakes.
func (c *Config) resolve(in sinks.Instance) (*settings, error) {
	r := &resolver{Config: c}
	if r.Method != http.MethodPost && r.Method != http.MethodPut {
		r.mistake("method: %q is not offered; use POST or PUT", r.Method)
	}
	r.checkFormat()
	r.readMetadata()
	destination, user, err := newDestination(c.Method, c.URL)
	if err != nil {
		r.mistake("url: %w", err)
	}
	r.destination = destination
	r.readHeaders()
	r.readAuthorization(user)
	r.readSecrets()
	r.readConnections(in, err == nil && strings.HasPrefix(strings.ToLower(r.URL), "http:"))
	if len(r.mistakes) > 0 {
		return nil, errors.Join(r.mistakes...)
	}
	return &r.settings, nil
}

func (r *resolver) checkFormat() {
	if r.Format == "" {
		return // then the URL is missing, too, which is reported
	}
	if !slices.Contains(formats, r.Format) {
		r.mistake("format: %q is not offered; use %s", r.Format, strings.Join(formats, ", "))
		return
	}
	switch {
	case !isEvents(r.Format) && r.Source != "":
		r.mistake("source: is for the cloudevents formats, but format is %s", r.Format)
	case !isEvents(r.Format):
	default:
		if err := cloudevents.CheckSource(r.Source); err != nil {
			r.mistake("source: %w", err)
		}
	}
	if r.Format != FormatBatch {
		if r.Batch != (Batch{}) {
			r.mistake("batch: is for format %s, but format is %s", FormatBatch, r.Format)
		}
		return
	}
	if r.Batch.Size < 2 || r.Batch.Size > maxBatchSize {
		r.mistake("batch.size: %d is outside 2..%d; for single events use format %s", r.Batch.Size, maxBatchSize, FormatStructured)
	}
	if r.Batch.Wait < 0 || r.Batch.Wait > maxBatchWait {
		r.mistake("batch.wait: %s is outside 0s..%s", r.Batch.Wait, maxBatchWait)
	}
	if r.Batch.MaxBytes < minBatchBytes || r.Batch.MaxBytes > maxBatchBytes {
		r.mistake("batch.max_bytes: %d is outside %d..%d", r.Batch.MaxBytes, minBatchBytes, maxBatchBytes)
	}
	if strings.Contains(r.URL, "{{") {
		r.mistake("url: is a template, but a batch goes to one URL; use format %s, or a sink for each URL", FormatStructured)
	}
}

func (r *resolver) readMetadata() {
	var err error
	if r.metadata, err = newSelection(r.Metadata); err != nil {
		r.mistakes = append(r.mistakes, err)
	}
}

func (r *resolver) readHeaders() {
	var err error
	if r.headers, err = parseHeaders(r.Headers, r.Format); err != nil {
		r.mistakes = append(r.mistakes, err)
	}
	for _, values := range r.headers {
		r.credentials = append(r.credentials, values...)
	}
}

func (r *resolver) readAuthorization(user *url.Userinfo) {
	var given []string
	if _, ok := r.headers["Authorization"]; ok {
		given = append(given, "headers.Authorization")
	}
	if user != nil {
		password, _ := user.Password()
		r.setBasic(user.Username(), password)
		given = append(given, "the user in url")
	}
	if r.User != "" || r.Password != "" {
		switch {
		case r.User == "":
			r.mistake("user: is missing, but password is set")
		case strings.Contains(r.User, ":"):
			r.mistake("user: contains a colon, which would end the name")
		}
		r.setBasic(r.User, r.Password)
		given = append(given, "user")
	}
	if r.Bearer != "" {
		if !isPlain(r.Bearer) || strings.Contains(r.Bearer, " ") {
			r.mistake("bearer: the token contains spaces, line ends or characters outside ASCII; give the token alone")
		}
		r.headers["Authorization"] = []string{"Bearer " + r.Bearer}
		r.credentials = append(r.credentials, r.Bearer)
		given = append(given, "bearer")
	}
	if len(given) > 1 {
		r.mistake("%s: each sets the Authorization header; keep one", strings.Join(given, ", "))
	}
}

func (r *resolver) setBasic(user, password string) {
	basic := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	r.headers["Authorization"] = []string{"Basic " + basic}
	r.credentials = append(r.credentials, basic, password)
}

func (r *resolver) readSecrets() {
	for name, secret := range numbered("secret", r.Secret, r.Secrets) {
		k, err := signature.Parse(secret)
		if err == nil && r.destination.open && !signature.IsPrivate(k) {
			err = errSharedSecret
		}
		r.credentials = append(r.credentials, signature.Credential(secret))
		r.keys = append(r.keys, k)
		if err != nil {
			r.mistake("%s: %w", name, err)
		}
	}
}

func (r *resolver) readConnections(in sinks.Instance, plain bool) {
	var err error
	to := peers{fixed: r.destination.fixed.url, open: r.destination.open, plain: plain}
	if r.connections, err = r.client().resolve(in, to); err != nil {
		r.mistakes = append(r.mistakes, err)
	}
	r.credentials = append(r.credentials, r.connections.passwords()...)
}

// errSharedSecret is the error of a symmetric secret for many receivers.
var errSharedSecret = errors.New("the host of url comes from data, so all receivers would share it, and each could forge requests to the others; " +
	"use the kind webhooks for your customers, each with its own secret, an ed25519 key, which begins with " + signature.PrivateKeyPrefix + ", or a sink for each receiver")

// numbered yields the values of a setting and of its plural, with their keys in the
// configuration: secret, secrets[0], secrets[1].
func numbered(name, one string, more []string) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		if one != "" && !yield(name, one) {
			return
		}
		for i, value := range more {
			if !yield(fmt.Sprintf("%ss[%d]", name, i), value) {
				return
			}
		}
	}
}
