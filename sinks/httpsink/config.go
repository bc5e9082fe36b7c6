package httpsink

import (
	"cmp"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink/internal/signature"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
	"github.com/waybill-go/waybill/sinks/internal/certificates"
)

// Defaults and limits of the configuration.
const (
	DefaultTimeout    = 10 * time.Second
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

// Values of Guard.Mode.
const (
	GuardAuto = "auto" // on if the URL's host comes from data
	GuardOn   = "on"
	GuardOff  = "off"
)

// noProxy is the value of Config.Proxy for no proxy, even if the environment has one.
const noProxy = "none"

// Config has the settings of a sink, which are below "with" in the configuration. Only URL is
// required; any other zero field means its default.
type Config struct {
	URL           string            `yaml:"url" secret:"url" doc:"URL of the requests, http or https, or a template for it with {{.Type}}, {{.ID}}, {{.Key}}, {{.Version}}, {{.Metadata.tenant}} or {{.Meta \"tenant-id\"}}. Values are percent-encoded. A notification that lacks the metadata is refused permanently. user:password@ becomes basic authentication. Required"`
	Method        string            `yaml:"method" enum:"POST,PUT" doc:"POST or PUT. Default POST"`
	Format        string            `yaml:"format" enum:"envelope,json,cloudevents-binary,cloudevents-structured,cloudevents-batch" doc:"Format of requests: envelope (the whole notification as JSON), json (the payload as the body, and the rest in headers, which signatures do not cover), cloudevents-binary, cloudevents-structured or cloudevents-batch. Default: envelope if requests are signed, or else json"`
	Metadata      []string          `yaml:"metadata" doc:"Metadata to send: names, prefixes with a *, or * for all. The content type and the trace context (traceparent, tracestate) are always sent. Default: none"`
	Source        string            `yaml:"source" doc:"URI of the publisher in the cloudevents formats, absolute or relative, such as https://shop.example/orders or /shop. Source and id together make an event unique. Required for the cloudevents formats"`
	Batch         Batch             `yaml:"batch" doc:"Settings of cloudevents-batch, which sends many notifications in one request"`
	Headers       map[string]string `yaml:"headers" secret:"true" doc:"Headers of every request, in printable ASCII. Headers that the sink itself sets are refused"`
	Bearer        string            `yaml:"bearer" secret:"true" doc:"Bearer token for the Authorization header"`
	User          string            `yaml:"user" doc:"Name of the user for basic authentication, without a colon"`
	Password      string            `yaml:"password" secret:"true" doc:"Password of the user"`
	Secret        string            `yaml:"secret" secret:"true" doc:"Secret for signing requests as Standard Webhooks: base64 of 24 to 64 random bytes, with or without the prefix whsec_, or an ed25519 key with the prefix whsk_. If the URL's host comes from data, it must be an ed25519 key, because with a shared secret each receiver could forge requests to the others"`
	Secrets       []string          `yaml:"secrets" secret:"true" doc:"More secrets like secret. Each of them signs every request, so that receivers can switch from one to another"`
	MasterSecret  string            `yaml:"master_secret" secret:"true" doc:"Secret from which a signing secret is derived for each host, for receivers that must not know each other's secrets: base64 of 32 or more random bytes. No receiver gets it; waybill config secret prints the derived ones"`
	MasterSecrets []string          `yaml:"master_secrets" secret:"true" doc:"More secrets like master_secret. A secret derived from each of them signs every request"`
	Timeout       time.Duration     `yaml:"timeout" doc:"How long one delivery or batch may take; connecting may take half of it. Default 10s"`
	Proxy         string            `yaml:"proxy" secret:"password" doc:"URL of the proxy for requests, with http, https, socks5 or socks5h, and user and password if needed; none for no proxy. Default: from HTTP_PROXY, HTTPS_PROXY and NO_PROXY"`
	TLS           TLS               `yaml:"tls"`
	Guard         Guard             `yaml:"guard" doc:"Protection against requests to private networks"`

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

// TLS has the certificates for https. The files are read again for each handshake, so renewed
// certificates take effect without a restart.
type TLS struct {
	CAFile   string `yaml:"ca_file" doc:"PEM file of the certificate authorities to trust, instead of the system's"`
	CertFile string `yaml:"cert_file" doc:"PEM file of the client's certificate, with its intermediate certificates"`
	KeyFile  string `yaml:"key_file" doc:"PEM file of the private key of cert_file"`
}

// Guard refuses connections to private networks.
type Guard struct {
	Mode  string   `yaml:"mode" enum:"auto,on,off" doc:"Whether connections to private networks are refused: on, off or auto (on if the URL's host comes from data). It cannot check connections of a proxy, so it requires proxy: none if the environment sets one. Default auto"`
	Allow []string `yaml:"allow" doc:"Networks that are allowed nevertheless, such as 10.1.0.0/16"`
}

var (
	_ sinks.Defaulter = (*Config)(nil)
	_ sinks.Validator = (*Config)(nil)
)

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
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Guard.Mode == "" {
		c.Guard.Mode = GuardAuto
	}
}

// defaultFormat returns FormatEnvelope if requests are signed, because signatures do not cover
// headers.
func (c *Config) defaultFormat() string {
	if c.Secret != "" || len(c.Secrets) > 0 || c.MasterSecret != "" || len(c.MasterSecrets) > 0 {
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
	destination  destination
	metadata     selection
	headers      http.Header
	signer       signer
	client       *http.Client // nil for the sink's own connections
	tls          *tls.Config  // never nil
	certificates *certificates.Certificates
	dial         dialFunc   // nil for net.Dialer
	guard        *guard     // nil for no guard
	proxies      []*url.URL // all proxies that requests may use
	proxy        func(*http.Request) (*url.URL, error)
	credentials  []string // texts that errors must not repeat
}

// resolver computes the settings of a configuration, and collects all mistakes in it.
type resolver struct {
	*Config
	settings
	in       sinks.Instance
	mistakes []error
}

func (r *resolver) mistake(format string, a ...any) {
	r.mistakes = append(r.mistakes, fmt.Errorf(format, a...))
}

// resolve computes the settings of a configuration whose defaults are set. The error joins all
// mistakes.
func (c *Config) resolve(in sinks.Instance) (*settings, error) {
	in.Logger = cmp.Or(in.Logger, slog.New(slog.DiscardHandler))
	r := &resolver{Config: c, settings: settings{headers: make(http.Header), client: in.HTTPClient, dial: in.Dial}, in: in}
	r.checkLimits()
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
	if r.client != nil {
		r.refuseConnectionSettings()
	} else {
		r.readTLS(err == nil)
		r.readGuard()
		r.readProxy(err == nil)
	}
	if len(r.mistakes) > 0 {
		return nil, errors.Join(r.mistakes...)
	}
	return &r.settings, nil
}

func (r *resolver) checkLimits() {
	if r.Method != http.MethodPost && r.Method != http.MethodPut {
		r.mistake("method: %q is not offered; use POST or PUT", r.Method)
	}
	if r.Timeout < 0 {
		r.mistake("timeout: %s is negative; leave it out for %s", r.Timeout, DefaultTimeout)
	}
}

func (r *resolver) checkFormat() {
	if r.Format == "" {
		return // then the URL is missing, too, which is reported
	}
	if !slices.Contains(formats, r.Format) {
		r.mistake("format: %q is not offered; use %s", r.Format, strings.Join(formats, ", "))
		return
	}
	switch source, err := url.Parse(r.Source); {
	case !isEvents(r.Format) && r.Source != "":
		r.mistake("source: is for the cloudevents formats, but format is %s", r.Format)
	case !isEvents(r.Format):
	case r.Source == "":
		r.mistake("source: is missing; every event needs it; name the publisher, such as /shop")
	case err != nil || !isPlain(r.Source) || strings.ContainsAny(r.Source, ` "<>\^`+"`{|}"):
		r.mistake("source: %q is not a URI; write one such as https://shop.example/orders or /shop", r.Source)
	case source.User != nil:
		r.mistake("source: contains a user, which every receiver would see")
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
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		canonical := http.CanonicalHeaderKey(name)
		switch _, twice := r.headers[canonical]; {
		case twice:
			r.mistake("headers.%s: is given twice, in different case", name)
		case !isToken(name):
			r.mistake("headers.%q: not a header name; use letters, digits and dashes", name)
		case reserved(canonical, r.Format) != "":
			r.mistake("headers.%s: %s", name, reserved(canonical, r.Format))
		case !isPlain(r.Headers[name]):
			r.mistake("headers.%s: the value is not printable ASCII without spaces around it; encode it as the receiver expects", name)
		default:
			r.headers[canonical] = []string{r.Headers[name]}
			r.credentials = append(r.credentials, r.Headers[name])
		}
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
		r.signer.keys = append(r.signer.keys, k)
		if err != nil {
			r.mistake("%s: %w", name, err)
		}
	}
	for name, secret := range numbered("master_secret", r.MasterSecret, r.MasterSecrets) {
		m, err := parseMaster(secret)
		r.credentials = append(r.credentials, secret)
		r.signer.masters = append(r.signer.masters, m)
		if err != nil {
			r.mistake("%s: %w", name, err)
		}
	}
}

// errSharedSecret is the error of a symmetric secret for many receivers.
var errSharedSecret = errors.New("the host of url comes from data, so all receivers would share it, and each could forge requests to the others; " +
	"use master_secret with a new secret, from which a separate one is derived for each host, an ed25519 key, which begins with " + signature.PrivateKeyPrefix + ", or a sink for each receiver")

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

// refuseConnectionSettings refuses the settings of connections, because the program's client
// makes them.
func (r *resolver) refuseConnectionSettings() {
	for _, setting := range []struct {
		key   string
		given bool
	}{
		{"proxy", r.Proxy != ""},
		{"tls", r.TLS != (TLS{})},
		{"guard.mode", r.Guard.Mode == GuardOn},
		{"guard.allow", len(r.Guard.Allow) > 0},
		{"TLSConfig", r.TLSConfig != nil},
	} {
		if setting.given {
			r.mistake("%s: the connections are made by the program's HTTP client; leave it out", setting.key)
		}
	}
}

func (r *resolver) readTLS(urlIsGood bool) {
	r.tls = new(tls.Config)
	if r.TLSConfig != nil {
		r.tls = r.TLSConfig.Clone()
		if r.TLS != (TLS{}) {
			r.mistake("tls: the program has a TLSConfig, which replaces it; leave it out")
		}
	}
	if r.tls.NextProtos == nil {
		r.tls.NextProtos = []string{"h2", "http/1.1"}
	}
	plain := urlIsGood && strings.HasPrefix(strings.ToLower(r.URL), "http:")
	if plain && r.TLS.CAFile != "" {
		r.mistake("tls.ca_file: url is plain http, where no certificate is verified; use https or leave it out")
	}
	if plain && r.TLS.CertFile != "" && r.TLS.KeyFile != "" {
		r.mistake("tls.cert_file: url is plain http, where no certificate is sent; use https or leave it out")
	}
	var err error
	files := certificates.Files{CA: r.TLS.CAFile, Cert: r.TLS.CertFile, Key: r.TLS.KeyFile}
	if r.certificates, err = certificates.New(files, r.in.Logger); err != nil {
		r.mistakes = append(r.mistakes, err)
	}
}

func (r *resolver) readGuard() {
	g := new(guard)
	for i, text := range r.Guard.Allow {
		prefix, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			r.mistake("guard.allow[%d]: %q is not a network; write it like 10.1.0.0/16 or fd00:1::/32", i, text)
		case prefix != prefix.Masked():
			r.mistake("guard.allow[%d]: %s has bits set after its length; do you mean %s?", i, text, prefix.Masked())
		case prefix.Addr().Is4In6():
			r.mistake("guard.allow[%d]: %s is an IPv4 network written as IPv6; write the IPv4 network", i, text)
		}
		g.allowed = append(g.allowed, prefix)
	}
	switch r.Guard.Mode {
	case GuardOn:
		r.guard = g
	case GuardAuto:
		if r.destination.open {
			r.guard = g
		}
	case GuardOff:
		if len(r.Guard.Allow) > 0 {
			r.mistake("guard.allow: has exceptions for a guard that is off; leave it out")
		}
	default:
		r.mistake("guard.mode: %q is not offered; use auto, on or off", r.Guard.Mode)
	}
}

// readProxy determines the proxy. Without the setting it comes from the environment: once for a
// fixed host, and for each request if hosts come from data.
func (r *resolver) readProxy(urlIsGood bool) {
	switch r.Proxy {
	case noProxy:
		r.proxy = http.ProxyURL(nil)
		return
	case "":
		if urlIsGood {
			r.readEnvironment()
		}
	default:
		proxy, err := parseProxy(r.Proxy)
		if err != nil {
			r.mistake("proxy: %w", err)
			return
		}
		r.proxy, r.proxies = http.ProxyURL(proxy), []*url.URL{proxy}
		if password, ok := proxy.User.Password(); ok {
			r.credentials = append(r.credentials, password)
		}
	}
	if r.guard != nil && len(r.proxies) > 0 {
		r.mistake("proxy: the guard cannot check the connections of %s; use proxy: none, or guard.mode: off if the proxy keeps requests out of private networks",
			r.proxies[0].Redacted())
	}
}

func (r *resolver) readEnvironment() {
	urls := []*url.URL{r.destination.fixed.url}
	r.proxy = http.ProxyFromEnvironment
	if r.destination.open {
		urls = []*url.URL{{Scheme: "http", Host: "partner.invalid"}, {Scheme: "https", Host: "partner.invalid"}}
	}
	for _, u := range urls {
		proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u})
		if err != nil {
			r.mistake("proxy: from the environment: %w", err)
			return
		}
		if proxy != nil {
			r.proxies = append(r.proxies, proxy)
		}
		if !r.destination.open {
			r.proxy = http.ProxyURL(proxy)
		}
	}
}

// parseProxy parses the URL of a proxy. Its errors do not quote a URL with a password.
func parseProxy(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil && strings.Contains(raw, "@"):
		return nil, errors.New("cannot be parsed; percent-encode special characters of user and password")
	case err != nil:
		return nil, fmt.Errorf("cannot be parsed: %w", errors.Unwrap(err))
	case !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme):
		return nil, fmt.Errorf("scheme %q is not offered; start it with http://, https://, socks5:// or socks5h://, or use none", u.Scheme)
	case u.Hostname() == "":
		return nil, errors.New("has no host")
	}
	return u, nil
}

// reserved returns why a header cannot be configured, or "" if it can.
func reserved(canonical, format string) string {
	switch canonical {
	case "Host":
		return "comes from url"
	case "Content-Type":
		return "comes from the notification's metadata " + strconv.Quote("content-type")
	case headerTraceparent, headerTracestate:
		return "comes from the notification's metadata"
	case webhook.HeaderIdempotencyKey:
		return "is the notification's id"
	case "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Proxy-Connection",
		"Te", "Trailer", "Upgrade", "Expect", "Accept-Encoding":
		return "belongs to the connection and cannot be set"
	}
	if strings.HasPrefix(canonical, "Waybill-") || strings.HasPrefix(canonical, "Webhook-") {
		return "is written by the sink; choose another name"
	}
	if strings.HasPrefix(canonical, eventHeaderPrefix) && isEvents(format) {
		return "belongs to the event; choose another name"
	}
	return ""
}
