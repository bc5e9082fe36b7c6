package email

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/mail"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"
)

// Values of Config.TLS.
const (
	TLSOpportunistic = "opportunistic" // STARTTLS if the server offers it
	TLSMandatory     = "mandatory"     // STARTTLS or no connection
	TLSNone          = "none"          // no STARTTLS
)

// Defaults and limits of a Config.
const (
	DefaultTimeout     = 30 * time.Second
	DefaultConnections = 4
	MaxConnections     = 1000
	DefaultMaxSizeMB   = 25
	MaxMaxSizeMB       = 1024
)

// Default ports: those of message submission (RFC 6409 and RFC 8314), because the sink is a client
// that submits mails, and not a relay.
const (
	submissionPort  = "587"
	submissionsPort = "465"
)

// Config has the settings of a sink, which are below "with" in the configuration.
type Config struct {
	// SMTP is the mail server's URL.
	SMTP string `yaml:"smtp" secret:"password" doc:"Mail server: smtp://user:password@host:port, or smtps:// for TLS from the first byte. User and password are optional; the default port is 587, for smtps 465. Required"`
	// TLS determines when an smtp:// connection is encrypted by STARTTLS. "" means
	// TLSMandatory if SMTP has a user and a host that is not this machine, and
	// TLSOpportunistic otherwise.
	TLS string `yaml:"tls" enum:"opportunistic,mandatory,none" doc:"STARTTLS on smtp://: opportunistic (if the server offers it), mandatory, or none. Default mandatory if smtp has a user and the server is on another machine, opportunistic otherwise"`
	// Auth is the mechanism of authentication.
	Auth string `yaml:"auth" enum:"auto,scram-sha-256,scram-sha-1,plain,login,cram-md5,xoauth2" doc:"How to authenticate: auto (the best method for passwords that the server offers), scram-sha-256, scram-sha-1, plain, login, cram-md5, or xoauth2. The token for xoauth2 is the password, unless token_file or oauth2 is set. Default auto"`
	// TokenFile is a file with a token for XOAUTH2.
	TokenFile string `yaml:"token_file" doc:"File with the token for xoauth2, which another program keeps up to date. It is read for each new connection"`
	// OAuth2 is the authorization server that issues tokens for XOAUTH2.
	OAuth2 OAuth2 `yaml:"oauth2" doc:"Authorization server that issues tokens for xoauth2. A token is fetched when there is none, when it has expired, and when it was refused"`
	// From is the sender of all mails, in the header and in the envelope.
	From string `yaml:"from" doc:"Sender of all mails: shop@example.com or Shop <shop@example.com>. Required"`
	// ReplyTo has the addresses for replies. A type's reply-to template overrides it.
	ReplyTo string `yaml:"reply_to" doc:"Addresses for replies, separated by commas; reply-to.tmpl of a type overrides them"`
	// Templates is the directory of the templates; it is inside FS if that is set.
	Templates string `yaml:"templates" content:"true" doc:"Folder with a subfolder of templates for each type: order.placed/to.tmpl, subject.tmpl, text.tmpl, html.tmpl. Required"`
	// Locale is the language of the templates whose names have no locale.
	Locale string `yaml:"locale" doc:"Language of templates without a language in their names (html.tmpl, not html.de.tmpl), such as en. Recipients who prefer it get these templates"`
	// MaxSizeMB is the largest encoded mail in MiB.
	MaxSizeMB int `yaml:"max_size_mb" doc:"Largest mail in MiB, including attachments in base64, 1 to 1024. A larger mail is dead at once, as is one above the server's limit. Default 25"`
	// Timeout limits connecting, and separately sending one mail.
	Timeout time.Duration `yaml:"timeout" doc:"How long connecting may take, and sending one mail. Default 30s"`
	// Connections is the largest number of open connections.
	Connections int `yaml:"connections" doc:"Most connections to the mail server at once, 1 to 1000. Each carries many mails, and further deliveries wait. Default 4"`
	// Hello is the name in the EHLO command.
	Hello string `yaml:"hello" doc:"Name in the EHLO command. Default: the host's name"`

	// FS has the templates, such as an embed.FS, instead of the directory on disk. Templates
	// is then a path inside it; "" means its root.
	FS fs.FS `yaml:"-"`
	// TLSConfig is for servers whose certificates come from a private authority; with nil,
	// the system's authorities are trusted. New copies it, and sets ServerName if it is empty.
	TLSConfig *tls.Config `yaml:"-"`
	// TokenSource provides the tokens for XOAUTH2, instead of TokenFile and OAuth2. It is
	// called for each new connection, one call at a time. [oauth2.ReuseTokenSource] keeps a
	// token until it expires. If a delivery ends during a call, the call continues, and other
	// deliveries wait for it.
	TokenSource oauth2.TokenSource `yaml:"-"`
}

// SetDefaults fills the fields that are zero, except TLS, whose default depends
// on SMTP.
func (c *Config) SetDefaults() {
	if c.Auth == "" {
		c.Auth = AuthAuto
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Connections == 0 {
		c.Connections = DefaultConnections
	}
	if c.MaxSizeMB == 0 {
		c.MaxSizeMB = DefaultMaxSizeMB
	}
}

// Validate returns all mistakes, joined. It does not read templates; New does.
func (c *Config) Validate() error {
	mistakes := new(mistakes)
	scheme := c.validateSMTP(mistakes.add)
	c.validateAuth(mistakes.add)
	switch {
	case c.TLS != "" && c.TLS != TLSOpportunistic && c.TLS != TLSMandatory && c.TLS != TLSNone:
		mistakes.add("tls", "%q is unknown; use %s, %s or %s", c.TLS, TLSOpportunistic, TLSMandatory, TLSNone)
	case c.TLS == TLSNone && scheme == "smtps":
		mistakes.add("tls", "none contradicts smtps://, which is always encrypted; use smtp:// or leave tls out")
	}
	if c.Timeout <= 0 {
		mistakes.add("timeout", "%s is not above 0; leave it out for %s", c.Timeout, DefaultTimeout)
	}
	if c.Connections < 1 || c.Connections > MaxConnections {
		mistakes.add("connections", "%d is outside 1..%d", c.Connections, MaxConnections)
	}
	if strings.ContainsFunc(c.Hello, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		mistakes.add("hello", "%q is not a host name", c.Hello)
	}
	return errors.Join(errors.Join(*mistakes...), c.validateMail())
}

// validateMail reports the mistakes in the settings of the mails.
func (c *Config) validateMail() error {
	mistakes := new(mistakes)
	if c.From == "" {
		mistakes.add("from", "is missing; write the sender like Shop <shop@example.com>")
	} else if _, err := mail.ParseAddress(c.From); err != nil {
		mistakes.add("from", "%q is not an address like Shop <shop@example.com>: %w", c.From, err)
	}
	if _, err := parseAddresses(c.ReplyTo); err != nil {
		mistakes.add("reply_to", "%w", err)
	}
	if c.Templates == "" && c.FS == nil {
		mistakes.add("templates", "is missing; name the directory with the templates")
	}
	if _, err := parseLocale(c.Locale); err != nil {
		mistakes.add("locale", "%w", err)
	}
	if c.MaxSizeMB < 1 || c.MaxSizeMB > MaxMaxSizeMB {
		mistakes.add("max_size_mb", "%d is outside 1..%d", c.MaxSizeMB, MaxMaxSizeMB)
	}
	return errors.Join(*mistakes...)
}

// mistakes collects errors that begin with a key of the configuration.
type mistakes []error

func (m *mistakes) add(field, format string, args ...any) {
	*m = append(*m, fmt.Errorf("%s: %w", field, fmt.Errorf(format, args...)))
}

// validateSMTP reports the mistakes in the server's URL and returns its scheme. Its errors never
// contain the URL or the error of url.Parse, because these may contain the password.
func (c *Config) validateSMTP(mistake func(field, format string, args ...any)) (scheme string) {
	if c.SMTP == "" {
		mistake("smtp", "is missing; write the mail server like smtp://localhost:1025")
		return ""
	}
	u, err := url.Parse(c.SMTP)
	if err != nil {
		mistake("smtp", "is not a URL like smtp://user:password@host:587; escape special characters of the password, such as %%40 for @")
		return ""
	}
	if u.Scheme != "smtp" && u.Scheme != "smtps" {
		mistake("smtp", "starts with %q; use smtp:// or smtps://", u.Scheme)
	}
	if u.Hostname() == "" {
		mistake("smtp", "has no host; write it like smtp://localhost:1025")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			mistake("smtp", "port %s is outside 1..65535", port)
		}
	}
	if (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "" {
		mistake("smtp", "has something after the port; the other settings have separate keys, such as tls")
	}
	return u.Scheme
}

// address returns the server's URL, host and port.
func (c *Config) address() (u *url.URL, host, port string, err error) {
	u, err = url.Parse(c.SMTP)
	if err != nil {
		return nil, "", "", errors.New("smtp: is not a URL")
	}
	host, port = u.Hostname(), u.Port()
	if port == "" {
		port = submissionPort
		if u.Scheme == "smtps" {
			port = submissionsPort
		}
	}
	return u, host, port, nil
}

// startTLS returns TLS or its default. The URL must be valid.
func (c *Config) startTLS() string {
	switch {
	case c.TLS != "":
		return c.TLS
	case c.sendsCredentials():
		return TLSMandatory
	}
	return TLSOpportunistic
}

// sendsCredentials reports whether a password or token is sent to another machine.
func (c *Config) sendsCredentials() bool {
	u, host, _, err := c.address()
	return err == nil && u.User.Username() != "" && !isLoopback(host)
}

// tlsWarning returns a warning if the password may be sent unencrypted, or "".
func (c *Config) tlsWarning() string {
	switch {
	case strings.HasPrefix(c.SMTP, "smtps:") || !c.sendsCredentials():
		return ""
	case c.startTLS() == TLSNone:
		return "tls is none, so mails and credentials are sent to the mail server in clear text"
	case c.startTLS() == TLSOpportunistic:
		return "tls is opportunistic, so anyone on the network path can make the sink send mails and credentials in clear text; leave tls out, or set it to mandatory"
	}
	return ""
}

// isLoopback reports whether a host is this machine.
func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// parseTemplates reads and parses the templates of the configuration.
func (c *Config) parseTemplates() (*templates, error) {
	locale, _ := parseLocale(c.Locale) // validateMail reports its error
	switch {
	case c.FS != nil:
		folder := path.Clean(c.Templates) // "." for ""
		root, err := fs.Sub(c.FS, folder)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrTemplates, c.Templates, err)
		}
		return parseTemplates(root, folder, locale)
	case c.Templates != "":
		return parseTemplates(confined(c.Templates), c.Templates, locale)
	}
	return nil, nil // validateMail has reported it
}
