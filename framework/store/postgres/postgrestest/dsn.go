package postgrestest

import (
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/lib/pq"
)

// parseDSN parses a URL or a key=value string as lib/pq does, including the PG* environment
// variables. It returns a URL, the only form that Waybill's configuration accepts.
func parseDSN(dsn string) (*url.URL, error) {
	config, err := pq.NewConfig(dsn)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		return url.Parse(dsn)
	}
	return configURL(config), nil
}

func configURL(config pq.Config) *url.URL {
	address := &url.URL{Scheme: "postgres", User: url.User(config.User), Path: "/" + config.Database}
	if config.Password != "" {
		address.User = url.UserPassword(config.User, config.Password)
	}
	query := url.Values{}
	for name, value := range map[string]string{
		"sslmode":     string(config.SSLMode),
		"sslcert":     config.SSLCert,
		"sslkey":      config.SSLKey,
		"sslrootcert": config.SSLRootCert,
		"options":     config.Options,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for name, value := range config.Runtime {
		query.Set(name, value)
	}
	port := strconv.Itoa(int(config.Port))
	if strings.HasPrefix(config.Host, "/") {
		// The folder of a socket cannot be the host of a URL.
		query.Set("host", config.Host)
		query.Set("port", port)
	} else {
		address.Host = net.JoinHostPort(config.Host, port)
	}
	address.RawQuery = query.Encode()
	return address
}

// withDatabase returns the address of another database on the same server.
func withDatabase(address *url.URL, name string) string {
	other := *address
	other.Path = "/" + name
	query := other.Query()
	query.Del("dbname") // it would override the path
	other.RawQuery = query.Encode()
	return other.String()
}
