package httpsink

import (
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/sinks"
)

// Defaults and limits of the configuration.
const (
	DefaultTimeout          = 10 * time.Second
	DefaultMaxResponseBytes = 4 << 10
	maxMaxResponseBytes     = 64 << 10

	// Lengths of a signing key in bytes, from Standard Webhooks 1.0.0,
	// "Signature scheme".
	minKeyLength = 24
	maxKeyLength = 64
)

// Config is what stands under "with:" for a sink of this kind. Only URL is
// required; the zero value of every other field means its default.
type Config struct {
	URL              string            `yaml:"url" doc:"where requests go, http or https; user:password@ in it becomes basic auth. Required"`
	Method           string            `yaml:"method" doc:"POST or PUT. Default POST"`
	Headers          map[string]string `yaml:"headers" doc:"headers of every request, printable ASCII. Those that the sink writes itself are refused"`
	Bearer           string            `yaml:"bearer" doc:"token for the Authorization header"`
	Secret           string            `yaml:"secret" doc:"signs requests as Standard Webhooks: base64 of 24 to 64 random bytes, with or without the prefix whsec_"`
	Timeout          time.Duration     `yaml:"timeout" doc:"how long one delivery may take; connecting may take half of it. Default 10s"`
	MaxResponseBytes int               `yaml:"max_response_bytes" doc:"how much of a response's body an error keeps, up to 65536. Default 4096"`
	TLS              TLS               `yaml:"tls" doc:"settings for https"`
}

// TLS is how a server of an https URL is verified.
type TLS struct {
	CAFile string `yaml:"ca_file" doc:"PEM file of the authorities to trust instead of the system's"`
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
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.MaxResponseBytes == 0 {
		c.MaxResponseBytes = DefaultMaxResponseBytes
	}
}

// Validate reports all mistakes at once. No error repeats a secret.
func (c *Config) Validate() error {
	filled := *c
	filled.SetDefaults()
	_, err := filled.resolve()
	return err
}

// origin is a configuration made ready for use: everything that can be computed
// once.
type origin struct {
	url         *url.URL // without user and password
	target      string   // for errors: method, scheme and host
	headers     http.Header
	key         []byte         // signs; nil for none
	roots       *x509.CertPool // nil for the system's
	credentials []string       // what no error may repeat
}

// resolve turns the configuration, its defaults set, into an origin. The error
// joins all mistakes.
func (c *Config) resolve() (*origin, error) {
	var errs []error
	mistake := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	o := &origin{headers: make(http.Header)}

	if c.Method != http.MethodPost && c.Method != http.MethodPut {
		mistake("method: %q is not offered; use POST or PUT", c.Method)
	}
	if c.Timeout < 0 {
		mistake("timeout: %s is negative; leave it out for %s", c.Timeout, DefaultTimeout)
	}
	if c.MaxResponseBytes < 0 || c.MaxResponseBytes > maxMaxResponseBytes {
		mistake("max_response_bytes: %d is outside 1..%d", c.MaxResponseBytes, maxMaxResponseBytes)
	}

	u, err := parseURL(c.URL)
	if err != nil {
		mistake("url: %w", err)
		u = new(url.URL)
	}
	user := u.User
	u.User = nil
	o.url, o.target = u, c.Method+" "+u.Scheme+"://"+u.Host

	for _, name := range sortedKeys(c.Headers) {
		canonical := http.CanonicalHeaderKey(name)
		switch _, twice := o.headers[canonical]; {
		case twice:
			mistake("headers.%s: stands there twice, in different case", name)
		case !isToken(name):
			mistake("headers.%q: not a header name; use letters, digits and dashes", name)
		case reserved(canonical) != "":
			mistake("headers.%s: %s", name, reserved(canonical))
		case !isPlain(c.Headers[name]):
			mistake("headers.%s: the value is not printable ASCII without spaces around it; encode it as the receiver expects", name)
		default:
			o.headers[canonical] = []string{c.Headers[name]}
			o.credentials = append(o.credentials, c.Headers[name])
		}
	}

	var authorizations []string
	if _, ok := o.headers["Authorization"]; ok {
		authorizations = append(authorizations, "headers.Authorization")
	}
	if user != nil {
		password, _ := user.Password()
		basic := base64.StdEncoding.EncodeToString([]byte(user.Username() + ":" + password))
		o.headers["Authorization"] = []string{"Basic " + basic}
		o.credentials = append(o.credentials, basic, password)
		authorizations = append(authorizations, "the user in url")
	}
	if c.Bearer != "" {
		if !isPlain(c.Bearer) || strings.Contains(c.Bearer, " ") {
			mistake("bearer: the token contains spaces, line ends or characters outside ASCII; give the token alone")
		}
		o.headers["Authorization"] = []string{"Bearer " + c.Bearer}
		o.credentials = append(o.credentials, c.Bearer)
		authorizations = append(authorizations, "bearer")
	}
	if len(authorizations) > 1 {
		mistake("%s: each sets the Authorization header; keep one", strings.Join(authorizations, ", "))
	}

	if c.Secret != "" {
		if o.key, err = parseSecret(c.Secret); err != nil {
			mistake("secret: %w", err)
		}
		o.credentials = append(o.credentials, strings.TrimPrefix(c.Secret, secretPrefix))
	}

	if c.TLS.CAFile != "" {
		if u.Scheme == "http" {
			mistake("tls.ca_file: url is plain http, where no certificate is verified; use https or leave it out")
		}
		if o.roots, err = readRoots(c.TLS.CAFile); err != nil {
			mistake("tls.ca_file: %w", err)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return o, nil
}

// parseURL accepts an absolute http or https URL. Its errors do not quote a URL
// that has a password in it.
func parseURL(raw string) (*url.URL, error) {
	if raw == "" {
		return nil, errors.New("is missing; give the address that takes the requests, such as https://partner.example/hooks")
	}
	u, err := url.Parse(raw)
	if err != nil {
		if strings.Contains(raw, "@") {
			return nil, errors.New("cannot be parsed; percent-encode special characters of user and password")
		}
		return nil, fmt.Errorf("cannot be parsed: %w", errors.Unwrap(err)) // without url.Error's own quote of the whole
	}
	port, _ := strconv.Atoi(u.Port()) // "" is 0, Parse has checked the rest for digits
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("scheme %q is not offered; start it with https:// or http://", u.Scheme)
	case u.Hostname() == "":
		return nil, errors.New("has no host")
	case !isPlain(u.Host):
		return nil, fmt.Errorf("host %q is not ASCII; write an international name in its xn-- form", u.Host)
	case port > 65535:
		return nil, fmt.Errorf("port %d is above 65535", port)
	case u.Fragment != "":
		return nil, fmt.Errorf("fragment #%s would not be sent; leave it out", u.Fragment)
	}
	return u, nil
}

// parseSecret decodes a signing secret as Standard Webhooks libraries do: the
// prefix is decoration, the rest is base64.
func parseSecret(secret string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil {
		return nil, fmt.Errorf("is not base64; make one with: echo %s$(openssl rand -base64 32)", secretPrefix)
	}
	if len(key) < minKeyLength || len(key) > maxKeyLength {
		return nil, fmt.Errorf("is %d bytes long once decoded, outside %d..%d; make one with: echo %s$(openssl rand -base64 32)",
			len(key), minKeyLength, maxKeyLength, secretPrefix)
	}
	return key, nil
}

func readRoots(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", path)
	}
	return roots, nil
}

// reserved returns why the header cannot be configured, "" if it can.
func reserved(canonical string) string {
	switch canonical {
	case "Host":
		return "comes from url"
	case "Content-Type":
		return "comes from the notification's metadata " + strconv.Quote("content-type")
	case headerTraceparent, headerTracestate:
		return "comes from the notification's metadata"
	case HeaderIdempotencyKey:
		return "is the notification's id"
	case "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Proxy-Connection",
		"Te", "Trailer", "Upgrade", "Expect", "Accept-Encoding":
		return "belongs to the connection and cannot be set"
	}
	if strings.HasPrefix(canonical, "Waybill-") || strings.HasPrefix(canonical, "Webhook-") {
		return "is written by the sink; choose another name"
	}
	return ""
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
