package brokers

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	// DefaultTimeout is the default time limit for connecting, and for an answer of a broker.
	DefaultTimeout = 10 * time.Second

	minTimeout = 100 * time.Millisecond

	// DefaultMaxConnectionAge is the default time for which a connection is used.
	DefaultMaxConnectionAge = 5 * time.Minute
)

// CheckTimeout returns an error if a timeout is shorter than 100 ms.
func CheckTimeout(timeout time.Duration) error {
	if timeout < minTimeout {
		return fmt.Errorf("timeout: %s is too short, the minimum is %s", timeout, minTimeout)
	}
	return nil
}

// CheckMaxConnectionAge returns an error if the largest age of a connection is not above 0.
func CheckMaxConnectionAge(age time.Duration) error {
	if age <= 0 {
		return fmt.Errorf("max_connection_age: %s is not above 0; leave it out for %s", age, DefaultMaxConnectionAge)
	}
	return nil
}

// Secret returns the password in an address; without one, the name, which may be a token.
func Secret(user *url.Userinfo) string {
	if password, ok := user.Password(); ok {
		return password
	}
	return user.Username()
}

// Hosts returns the hosts and ports of addresses, without the rest, which may be secret.
func Hosts(addresses ...string) []string {
	var hosts []string
	for _, address := range addresses {
		if u, err := url.Parse(address); err == nil && u.Host != "" {
			hosts = append(hosts, u.Host)
		}
	}
	return hosts
}

// ParseURL parses a broker's address, which must have one of the schemes. It adds user and password
// unless they are empty; as separate settings they need no encoding. Its errors do not quote the
// address, which may contain a password.
func ParseURL(address, user, password string, schemes ...string) (*url.URL, error) {
	offered := strings.Join(schemes, ":// or ") + "://"
	if address == "" {
		return nil, fmt.Errorf("url: is missing; begin it with %s", offered)
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, errors.New("url: cannot be parsed; characters other than letters and digits in a user or password must be percent-encoded")
	case !slices.Contains(schemes, u.Scheme):
		return nil, fmt.Errorf("url: its scheme is not offered; begin it with %s", offered)
	case u.Hostname() == "":
		return nil, errors.New("url: has no host")
	case u.User != nil && (user != "" || password != ""):
		return nil, errors.New("url: contains a user, but user or password is also set; keep one")
	}
	if user != "" || password != "" {
		u.User = url.UserPassword(user, password)
	}
	return u, nil
}
