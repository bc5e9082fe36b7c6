package demo

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Config is how long the demo runs, and what it shows.
type Config struct {
	// For is how long the shop places orders; 0 means until the context of Run is done.
	For time.Duration
	// Rate is in orders per second; 0 means as many as possible.
	Rate int
	// Observe is the loopback address of a dashboard, as host:port; "" means no dashboard.
	Observe string
	// JSON prints only the report on stdout, as JSON.
	JSON bool
}

// The defaults of the flags.
const (
	DefaultFor  = 10 * time.Second
	DefaultRate = 200
)

// Validate reports all mistakes at once, by the names of the flags.
func (c Config) Validate() error {
	var mistakes []error
	if c.For < 0 {
		mistakes = append(mistakes, fmt.Errorf("--for is %s: use more than 0, or 0 for until SIGINT", c.For))
	}
	if c.Rate < 0 {
		mistakes = append(mistakes, fmt.Errorf("--rate is %d: use orders per second, or 0 for as many as possible", c.Rate))
	}
	if c.Observe != "" {
		mistakes = append(mistakes, validateObserve(c.Observe))
	}
	return errors.Join(mistakes...)
}

// validateObserve refuses addresses that other machines can reach, since the demo has no users.
func validateObserve(address string) error {
	host, _, err := net.SplitHostPort(address)
	ip, ipErr := netip.ParseAddr(host)
	if err != nil || host != "localhost" && (ipErr != nil || !ip.IsLoopback()) {
		return fmt.Errorf("--observe is %q: use a loopback address, such as 127.0.0.1:8090", address)
	}
	return nil
}
