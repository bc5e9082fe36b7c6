// Package mailserver sends mails to a server by SMTP: connections, authentication, mail transactions, and
// what the server's answers mean.
package mailserver

import (
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"
)

// Values of Settings.TLS.
const (
	TLSOpportunistic = "opportunistic" // STARTTLS if the server offers it
	TLSMandatory     = "mandatory"     // STARTTLS or no connection
	TLSNone          = "none"          // no STARTTLS
)

// Defaults and limits of Settings.
const (
	DefaultTimeout     = 30 * time.Second
	DefaultConnections = 4
	MaxConnections     = 1000
)

// Default ports: those of message submission (RFC 6409 and RFC 8314), because the sink is a client
// that submits mails, and not a relay.
const (
	submissionPort  = "587"
	submissionsPort = "465"
)

// Settings are those of a [Client]. The keys of the email sink with the same meaning describe them.
type Settings struct {
	URL         string // smtp
	TLS         string // "" means TLSMandatory if URL has a user and another machine, and else TLSOpportunistic
	Auth        string
	TokenFile   string
	OAuth2      OAuth2
	Timeout     time.Duration // of connecting, and of sending one mail
	Connections int
	Hello       string // "" means the host's name
	TLSConfig   *tls.Config
	TokenSource oauth2.TokenSource
}

// Check reports all mistakes, each with its key in the configuration.
func (s Settings) Check(mistake func(field, format string, args ...any)) {
	scheme := s.validateSMTP(mistake)
	s.validateAuth(mistake)
	switch {
	case s.TLS != "" && s.TLS != TLSOpportunistic && s.TLS != TLSMandatory && s.TLS != TLSNone:
		mistake("tls", "%q is unknown; use %s, %s or %s", s.TLS, TLSOpportunistic, TLSMandatory, TLSNone)
	case s.TLS == TLSNone && scheme == "smtps":
		mistake("tls", "none contradicts smtps://, which is always encrypted; use smtp:// or leave tls out")
	}
	if s.Timeout <= 0 {
		mistake("timeout", "%s is not above 0; leave it out for %s", s.Timeout, DefaultTimeout)
	}
	if s.Connections < 1 || s.Connections > MaxConnections {
		mistake("connections", "%d is outside 1..%d", s.Connections, MaxConnections)
	}
	if strings.ContainsFunc(s.Hello, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		mistake("hello", "%q is not a host name", s.Hello)
	}
}

// validateSMTP reports the mistakes in the server's URL and returns its scheme. Its errors never
// contain the URL or the error of url.Parse, because these may contain the password.
func (s *Settings) validateSMTP(mistake func(field, format string, args ...any)) (scheme string) {
	if s.URL == "" {
		mistake("smtp", "is missing; write the mail server like smtp://localhost:1025")
		return ""
	}
	u, err := url.Parse(s.URL)
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
func (s *Settings) address() (u *url.URL, host, port string, err error) {
	u, err = url.Parse(s.URL)
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
func (s *Settings) startTLS() string {
	switch {
	case s.TLS != "":
		return s.TLS
	case s.sendsCredentials():
		return TLSMandatory
	}
	return TLSOpportunistic
}

// sendsCredentials reports whether a password or token is sent to another machine.
func (s *Settings) sendsCredentials() bool {
	u, host, _, err := s.address()
	return err == nil && u.User.Username() != "" && !isLoopback(host)
}

// tlsWarning returns a warning if the password may be sent unencrypted, or "".
func (s *Settings) tlsWarning() string {
	switch {
	case strings.HasPrefix(s.URL, "smtps:") || !s.sendsCredentials():
		return ""
	case s.startTLS() == TLSNone:
		return "tls is none, so mails and credentials are sent to the mail server in clear text"
	case s.startTLS() == TLSOpportunistic:
		return "tls is opportunistic, so anyone on the network path can make the sink send mails and credentials in clear text; leave tls out, or set it to mandatory"
	}
	return ""
}

// isLoopback reports whether a host is this machine.
func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
