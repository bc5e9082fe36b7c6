package httpsink

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/certificates"
)

// DefaultTimeout is the default of Config.Timeout and ClientConfig.Timeout.
const DefaultTimeout = 10 * time.Second

// Values of Guard.Mode.
const (
	GuardAuto = "auto" // on if the URL's host comes from data
	GuardOn   = "on"
	GuardOff  = "off"
)

// noProxy is the value of Config.Proxy for no proxy, even if the environment has one.
const noProxy = "none"

// ClientConfig has the settings of a [Client]. The configuration of a kind of sink can have them
// inline. Zero fields mean their defaults.
type ClientConfig struct {
	Timeout   time.Duration `yaml:"timeout" doc:"How long one request may take; connecting may take half of it. Default 10s"`
	Proxy     string        `yaml:"proxy" secret:"password" doc:"URL of the proxy for requests, with http, https, socks5 or socks5h, and user and password if needed; none for no proxy. Default: from HTTP_PROXY, HTTPS_PROXY and NO_PROXY"`
	TLS       TLS           `yaml:"tls"`
	Guard     Guard         `yaml:"guard" doc:"Protection against requests to private networks"`
	AllowHTTP bool          `yaml:"allow_http" doc:"Also allows http:// URLs, whose requests anybody on the way can read. Default: only https://"`

	// TLSConfig replaces TLS, for settings that files cannot express, such as a key in
	// hardware. NewClient copies it. If it has no ServerName, the host of the connection is used.
	// Its client certificates are not sent to proxies.
	TLSConfig *tls.Config `yaml:"-"`
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
	_ sinks.Defaulter = (*ClientConfig)(nil)
	_ sinks.Validator = (*ClientConfig)(nil)
)

// SetDefaults fills the fields that are zero.
func (c *ClientConfig) SetDefaults() {
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Guard.Mode == "" {
		c.Guard.Mode = GuardAuto
	}
}

// Validate returns all mistakes, joined. Errors do not quote secrets.
func (c *ClientConfig) Validate() error {
	filled := *c
	filled.SetDefaults()
	_, err := filled.resolve(sinks.Instance{}, peers{open: true})
	return err
}

// CheckURL is [Client.CheckURL] for a program that makes no requests. It also returns the mistakes in
// c.Guard.
func (c ClientConfig) CheckURL(raw string) error {
	c.SetDefaults()
	rules, err := c.urlRules()
	if err != nil {
		return err
	}
	_, err = rules.parse(raw)
	return err
}

func (c *ClientConfig) urlRules() (urlRules, error) {
	guard, err := c.Guard.forHosts(true)
	rules := urlRules{[]string{"https"}, guard}
	if c.AllowHTTP {
		rules.schemes = anyScheme
	}
	return rules, err
}

// peers are what connections go to.
type peers struct {
	fixed *url.URL // nil: hosts come from data, or the URL is wrong
	open  bool     // hosts come from data
	plain bool     // all are http
}

// connectionSettings are the values for connections that are computed once from a configuration.
type connectionSettings struct {
	fixed        *url.URL     // the URL of all requests up to the path; nil: hosts come from data
	program      *http.Client // nil for own connections
	tls          *tls.Config  // never nil for own connections
	certificates *certificates.Certificates
	dial         dialFunc   // nil for net.Dialer
	guard        *guard     // nil for no guard
	proxies      []*url.URL // all proxies that requests may use
	proxy        func(*http.Request) (*url.URL, error)
}

// connectionResolver computes the settings of connections, and collects all mistakes in them.
type connectionResolver struct {
	*ClientConfig
	connectionSettings
	to       peers
	logger   *slog.Logger
	mistakes []error
}

func (r *connectionResolver) mistake(format string, a ...any) {
	r.mistakes = append(r.mistakes, fmt.Errorf(format, a...))
}

// resolve computes the settings of connections. The error joins all mistakes.
func (c *ClientConfig) resolve(in sinks.Instance, to peers) (connectionSettings, error) {
	r := &connectionResolver{
		ClientConfig:       c,
		connectionSettings: connectionSettings{fixed: to.fixed, program: in.HTTPClient, dial: in.Dial},
		to:                 to,
		logger:             cmp.Or(in.Logger, slog.New(slog.DiscardHandler)),
	}
	if c.Timeout < 0 {
		r.mistake("timeout: %s is negative; leave it out for %s", c.Timeout, DefaultTimeout)
	}
	if r.program != nil {
		r.refuseConnectionSettings()
	} else {
		r.readTLS()
		r.readGuard()
		r.readProxy()
	}
	return r.connectionSettings, errors.Join(r.mistakes...)
}

// refuseConnectionSettings refuses the settings of connections, because the program's client
// makes them.
func (r *connectionResolver) refuseConnectionSettings() {
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

func (r *connectionResolver) readTLS() {
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
	if r.to.plain && r.TLS.CAFile != "" {
		r.mistake("tls.ca_file: url is plain http, where no certificate is verified; use https or leave it out")
	}
	if r.to.plain && r.TLS.CertFile != "" && r.TLS.KeyFile != "" {
		r.mistake("tls.cert_file: url is plain http, where no certificate is sent; use https or leave it out")
	}
	var err error
	files := certificates.Files{CA: r.TLS.CAFile, Cert: r.TLS.CertFile, Key: r.TLS.KeyFile}
	if r.certificates, err = certificates.New(files, r.logger); err != nil {
		r.mistakes = append(r.mistakes, err)
	}
}

func (r *connectionResolver) readGuard() {
	var err error
	if r.guard, err = r.Guard.forHosts(r.to.open); err != nil {
		r.mistakes = append(r.mistakes, err)
	}
}

// forHosts returns the guard; nil if there is none. open reports that hosts come from data. The
// error joins all mistakes.
func (c Guard) forHosts(open bool) (*guard, error) {
	var mistakes []error
	mistake := func(format string, a ...any) { mistakes = append(mistakes, fmt.Errorf(format, a...)) }
	g := new(guard)
	for i, text := range c.Allow {
		prefix, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			mistake("guard.allow[%d]: %q is not a network; write it like 10.1.0.0/16 or fd00:1::/32", i, text)
		case prefix != prefix.Masked():
			mistake("guard.allow[%d]: %s has bits set after its length; do you mean %s?", i, text, prefix.Masked())
		case prefix.Addr().Is4In6():
			mistake("guard.allow[%d]: %s is an IPv4 network written as IPv6; write the IPv4 network", i, text)
		}
		g.allowed = append(g.allowed, prefix)
	}
	switch c.Mode {
	case GuardOn:
	case GuardAuto:
		if !open {
			g = nil
		}
	case GuardOff:
		g = nil
		if len(c.Allow) > 0 {
			mistake("guard.allow: has exceptions for a guard that is off; leave it out")
		}
	default:
		mistake("guard.mode: %q is not offered; use auto, on or off", c.Mode)
	}
	return g, errors.Join(mistakes...)
}

// readProxy determines the proxy. Without the setting it comes from the environment: once for a
// fixed host, and for each request if hosts come from data.
func (r *connectionResolver) readProxy() {
	switch r.Proxy {
	case noProxy:
		r.proxy = http.ProxyURL(nil)
		return
	case "":
		r.readEnvironment()
	default:
		proxy, err := parseProxy(r.Proxy)
		if err != nil {
			r.mistake("proxy: %w", err)
			return
		}
		r.proxy, r.proxies = http.ProxyURL(proxy), []*url.URL{proxy}
	}
	if r.guard != nil && len(r.proxies) > 0 {
		r.mistake("proxy: the guard cannot check the connections of %s; use proxy: none, or guard.mode: off if the proxy keeps requests out of private networks",
			r.proxies[0].Scheme+"://"+r.proxies[0].Host)
	}
}

func (r *connectionResolver) readEnvironment() {
	urls := []*url.URL{r.to.fixed}
	r.proxy = http.ProxyFromEnvironment
	switch {
	case r.to.open:
		urls = []*url.URL{{Scheme: "http", Host: "partner.invalid"}, {Scheme: "https", Host: "partner.invalid"}}
	case r.to.fixed == nil:
		return // the URL is wrong, which is reported
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
		if !r.to.open {
			r.proxy = http.ProxyURL(proxy)
		}
	}
}

// passwords returns those of the proxies that the configuration names.
func (r *connectionSettings) passwords() (all []string) {
	for _, proxy := range r.proxies {
		if password, ok := proxy.User.Password(); ok {
			all = append(all, password)
		}
	}
	return all
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
