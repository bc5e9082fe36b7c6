package email

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/mail"
	"path"
	"time"

	"golang.org/x/oauth2"

	"github.com/waybill-go/waybill/sinks/email/mailserver"
)

// Defaults and limits of a Config.
const (
	DefaultMaxSizeMB = 25
	MaxMaxSizeMB     = 1024
)

// Config has the settings of a sink, which are below "with" in the configuration.
type Config struct {
	// SMTP is the mail server's URL.
	SMTP string `yaml:"smtp" secret:"password" doc:"Mail server: smtp://user:password@host:port, or smtps:// for TLS from the first byte. User and password are optional; the default port is 587, for smtps 465. Required"`
	// TLS determines when an smtp:// connection is encrypted by STARTTLS. "" means
	// mailserver.TLSMandatory if SMTP has a user and a host that is not this machine, and
	// mailserver.TLSOpportunistic otherwise.
	TLS string `yaml:"tls" enum:"opportunistic,mandatory,none" doc:"STARTTLS on smtp://: opportunistic (if the server offers it), mandatory, or none. Default mandatory if smtp has a user and the server is on another machine, opportunistic otherwise"`
	// Auth is the mechanism of authentication.
	Auth string `yaml:"auth" enum:"auto,scram-sha-256,scram-sha-1,plain,login,cram-md5,xoauth2" doc:"How to authenticate: auto (the best method for passwords that the server offers), scram-sha-256, scram-sha-1, plain, login, cram-md5, or xoauth2. The token for xoauth2 is the password, unless token_file or oauth2 is set. Default auto"`
	// TokenFile is a file with a token for XOAUTH2.
	TokenFile string `yaml:"token_file" doc:"File with the token for xoauth2, which another program keeps up to date. It is read for each new connection"`
	// OAuth2 is the authorization server that issues tokens for XOAUTH2.
	OAuth2 mailserver.OAuth2 `yaml:"oauth2" doc:"Authorization server that issues tokens for xoauth2. A token is fetched when there is none, when it has expired, and when it was refused"`
	// From is the sender of all mails, in the header and in the envelope.
	From string `yaml:"from" doc:"Sender of all mails: shop@example.com or Shop <shop@example.com>. Required"`
	// ReplyTo has the addresses for replies. A type's reply-to template overrides it.
	ReplyTo string `yaml:"reply_to" doc:"Addresses for replies, separated by commas; reply-to.tmpl of a type overrides them"`
	// Templates is the directory of the templates; it is inside FS if that is set.
	Templates string `yaml:"templates" content:"true" doc:"Folder with a subfolder of templates for each type: order.placed/to.tmpl, subject.tmpl, text.tmpl, html.tmpl. Required, unless alerts_to is set"`
	// AlertsTo has the recipients of Waybill's alerts, for the built-in templates.
	AlertsTo string `yaml:"alerts_to" doc:"Recipients of Waybill's alerts, separated by commas, unless templates has folders for their types. A sink with them needs no templates if it gets nothing else. Default: the address of from"`
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
		c.Auth = mailserver.AuthAuto
	}
	if c.Timeout == 0 {
		c.Timeout = mailserver.DefaultTimeout
	}
	if c.Connections == 0 {
		c.Connections = mailserver.DefaultConnections
	}
	if c.MaxSizeMB == 0 {
		c.MaxSizeMB = DefaultMaxSizeMB
	}
}

// Validate returns all mistakes, joined. It does not read templates; New does.
func (c *Config) Validate() error {
	mistakes := new(mistakes)
	c.server().Check(mistakes.add)
	return errors.Join(errors.Join(*mistakes...), c.validateMail())
}

// server returns the settings of the mail server.
func (c *Config) server() mailserver.Settings {
	return mailserver.Settings{
		URL: c.SMTP, TLS: c.TLS, Auth: c.Auth, TokenFile: c.TokenFile, OAuth2: c.OAuth2, Timeout: c.Timeout,
		Connections: c.Connections, Hello: c.Hello, TLSConfig: c.TLSConfig, TokenSource: c.TokenSource,
	}
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
	if _, err := parseAddresses(c.AlertsTo); err != nil {
		mistakes.add("alerts_to", "%w", err)
	}
	if c.Templates == "" && c.FS == nil && c.AlertsTo == "" {
		mistakes.add("templates", "is missing; name the directory with the templates, or set alerts_to for a sink that mails only alerts")
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

// parseTemplates reads and parses the templates of the configuration, and adds the built-in ones.
func (c *Config) parseTemplates() (*templates, error) {
	set, err := c.parseOwn()
	if set != nil {
		set.builtin = alertFolders(cmp.Or(c.AlertsTo, c.From))
	}
	return set, err
}

func (c *Config) parseOwn() (*templates, error) {
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
	return &templates{origin: "the built-in templates", locale: locale}, nil // validateMail reports it without alerts_to
}
