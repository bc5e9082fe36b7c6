package demo

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/config"
)

// Config says what the demo runs on and for how long. Where no server is named,
// it brings its own, inside the process and on the loopback interface.
type Config struct {
	// For is how long orders are placed; 0 is until the context of Run is done.
	For time.Duration
	// Rate is how many orders are placed in a second; 0 is as many as it can.
	Rate int
	// Drain bounds how long deliveries may take once no more orders are placed;
	// more than 0.
	Drain time.Duration
	// Database is the address of a PostgreSQL, MySQL or MariaDB; "" makes a SQLite database
	// that is removed at the end.
	Database string
	// Kafka are brokers, as host:port; none starts a broker in the process.
	Kafka []string
	// SMTP is the URL of a mail server; "" starts one in the process.
	SMTP string
	// Observe is the loopback address, as host:port, of a dashboard that shows the shop;
	// "" is none.
	Observe string
	// JSON prints the report as JSON, and nothing else on stdout.
	JSON bool
}

// Defaults of the flags.
const (
	DefaultFor   = 10 * time.Second
	DefaultRate  = 200
	DefaultDrain = 30 * time.Second
)

// Validate reports all mistakes at once, by the names of the flags. What is wrong
// with the addresses of Kafka and of the mail server their sinks say, before
// anything starts.
func (c Config) Validate() error {
	var mistakes []error
	if c.For < 0 {
		mistakes = append(mistakes, fmt.Errorf("--for is %s: use more than 0, or 0 for until SIGINT", c.For))
	}
	if c.Rate < 0 {
		mistakes = append(mistakes, fmt.Errorf("--rate is %d: use orders per second, or 0 for as many as possible", c.Rate))
	}
	if c.Drain <= 0 {
		mistakes = append(mistakes, fmt.Errorf("--drain is %s: use more than 0", c.Drain))
	}
	if c.Observe != "" {
		mistakes = append(mistakes, validateObserve(c.Observe))
	}
	if c.Database != "" {
		mistakes = append(mistakes, validateDatabase(c.Database))
	}
	if len(c.Kafka) > 0 {
		mistakes = append(mistakes, flagged("--kafka", kafkaConfig(c.Kafka, topicPrefix).Validate()))
	}
	if c.SMTP != "" {
		mail := mailConfig(c.SMTP)
		mail.SetDefaults()
		mistakes = append(mistakes, flagged("--smtp", mail.Validate()))
	}
	return errors.Join(mistakes...)
}

// validateObserve wants an address that only this machine reaches: the demo has no users.
func validateObserve(address string) error {
	host, _, err := net.SplitHostPort(address)
	ip, ipErr := netip.ParseAddr(host)
	if err != nil || host != "localhost" && (ipErr != nil || !ip.IsLoopback()) {
		return fmt.Errorf("--observe is %q: use a loopback address, such as 127.0.0.1:8090", address)
	}
	return nil
}

func validateDatabase(address string) error {
	database, err := config.ParseDatabase(address)
	switch {
	case err != nil:
		return fmt.Errorf("--database %w", err)
	case database.Dialect() == config.SQLite:
		return errors.New("--database takes the address of a server; leave it out for SQLite: the demo then makes a temporary database")
	}
	return nil
}

func flagged(flag string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s", flag, strings.ReplaceAll(err.Error(), "\n", "; "))
}
