package mysql

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	defaultPort = "3306"
	// connectTime bounds connecting unless the address has a timeout.
	connectTime = 10 * time.Second
)

// parseDSN reads an address: a URL such as mysql://user:password@host:3306/name?tls=true, or the
// form of the driver, user:password@tcp(host:3306)/name. Parameters are those of the driver;
// socket=/path in a URL names a Unix socket in place of host and port. No error repeats the
// address, which may hold a password.
func parseDSN(dsn string) (*mysql.Config, error) {
	scheme, _, isURL := strings.Cut(dsn, "://")
	if !isURL {
		config, err := mysql.ParseDSN(dsn)
		if err != nil {
			return nil, errors.New("is not an address of MySQL; write mysql://user:password@host:3306/name")
		}
		return complete(config)
	}
	if scheme = strings.ToLower(scheme); scheme != "mysql" && scheme != "mariadb" {
		return nil, errors.New("does not begin with mysql://")
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, errors.New("is not a valid URL; percent-encode special characters in user and password")
	}
	parameters := u.Query()
	socket := parameters.Get("socket")
	parameters.Del("socket")
	// The driver itself reads what only it knows.
	config, err := mysql.ParseDSN("/?" + parameters.Encode())
	if err != nil {
		return nil, fmt.Errorf("has parameters that the driver does not take: %w", err)
	}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.DBName = strings.TrimPrefix(u.Path, "/")
	config.Net, config.Addr = "tcp", u.Host
	switch {
	case socket != "":
		config.Net, config.Addr = "unix", socket
	case u.Hostname() == "":
		config.Addr = net.JoinHostPort("localhost", defaultPort)
	case u.Port() == "":
		config.Addr = net.JoinHostPort(u.Hostname(), defaultPort)
	}
	return complete(config)
}

// complete sets what a store relies on.
func complete(config *mysql.Config) (*mysql.Config, error) {
	if config.DBName == "" {
		return nil, errors.New("names no database; write mysql://user:password@host:3306/name")
	}
	config.ParseTime, config.Loc = true, time.UTC
	config.InterpolateParams = true // one round trip for a statement with arguments
	config.ClientFoundRows = true
	config.Logger = &mysql.NopLogger{} // what it says stands in errors too
	if config.Timeout == 0 {
		config.Timeout = connectTime
	}
	return config, nil
}

// Address is what a dsn, as OpenDB takes it, names. Its error does not repeat the dsn.
type Address struct {
	// User, Host and Database are those to connect as, to, and to use. Host is host:port, or the
	// path of a socket.
	User, Host, Database string
}

// ParseAddress takes a dsn apart, as OpenDB does, without connecting.
func ParseAddress(dsn string) (Address, error) {
	config, err := parseDSN(dsn)
	if err != nil {
		return Address{}, err
	}
	return Address{User: config.User, Host: config.Addr, Database: config.DBName}, nil
}
