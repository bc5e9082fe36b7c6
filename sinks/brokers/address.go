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
	// DefaultTimeout is how long connecting, or one answer of a broker, may take.
	DefaultTimeout = 10 * time.Second

	minTimeout = 100 * time.Millisecond
)

// CheckTimeout says what is wrong with a timeout.
func CheckTimeout(timeout time.Duration) error {
	if timeout < minTimeout {
		return fmt.Errorf("timeout: %s is too short, the least is %s", timeout, minTimeout)
	}
	return nil
}

// ParseURL reads a broker's address and puts the user and the password into it, which may
// be given apart from it, so that they need no encoding. Its errors repeat nothing of the
// address, which may hold a password.
func ParseURL(address, user, password string, schemes ...string) (*url.URL, error) {
	offered := strings.Join(schemes, ":// or ") + "://"
	if address == "" {
		return nil, fmt.Errorf("url: is missing; it begins with %s", offered)
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, errors.New("url: cannot be parsed; characters other than letters and digits in a user or password must be percent-encoded")
	case !slices.Contains(schemes, u.Scheme):
		return nil, fmt.Errorf("url: its scheme is not offered; it begins with %s", offered)
	case u.Hostname() == "":
		return nil, errors.New("url: has no host")
	case u.User != nil && (user != "" || password != ""):
		return nil, errors.New("url: has a user in it, and user or password is given beside it; keep one")
	}
	if user != "" || password != "" {
		u.User = url.UserPassword(user, password)
	}
	return u, nil
}
