package session

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
	// connectTime limits connecting unless the address has a timeout.
	connectTime = 10 * time.Second
)

// ParseDSN reads an address: a URL such as mysql://user:password@host:3306/name?tls=true, or the
// form of the driver, user:password@tcp(host:3306)/name. It accepts the driver's parameters;
// socket=/path in a URL names a Unix socket instead of host and port. Errors do not repeat the
// address, since it may contain a password. Line ends at its end do not count.
func ParseDSN(dsn string) (*mysql.Config, error) {
	dsn = strings.TrimRight(dsn, "\r\n")
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
	// The driver reads its own parameters.
	config, err := mysql.ParseDSN("/?" + parameters.Encode())
	if err != nil {
		return nil, fmt.Errorf("has parameters that the driver does not accept: %w", err)
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

// complete sets the parameters on which a store relies.
func complete(config *mysql.Config) (*mysql.Config, error) {
	if config.DBName == "" {
		return nil, errors.New("names no database; write mysql://user:password@host:3306/name")
	}
	config.ParseTime, config.Loc = true, time.UTC
	config.InterpolateParams = true // one round trip for a statement with arguments
	config.ClientFoundRows = true
	config.MaxAllowedPacket = 0 // the server's: what does not fit into a text is sent apart from it
	// The server may ignore the character set of the handshake.
	if err := config.Apply(mysql.Charset("utf8mb4", config.Collation)); err != nil {
		return nil, err
	}
	config.Logger = &mysql.NopLogger{} // its messages are also in errors
	if config.Timeout == 0 {
		config.Timeout = connectTime
	}
	if _, given := config.Params["wait_timeout"]; !given {
		if config.Params == nil {
			config.Params = make(map[string]string)
		}
		config.Params["wait_timeout"] = fmt.Sprintf("CAST(LEAST(@@SESSION.wait_timeout, %d) AS UNSIGNED)", int(waitTime.Seconds()))
	}
	return config, nil
}
