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

// Config is what the demo runs on, and for how long. For a server that is not set, the demo starts one
// inside the process, on the loopback interface.
type Config struct {
	// For is how long the shop places orders; 0 means until the context of Run is done.
	For time.Duration
	// Rate is in orders per second; 0 means as many as possible.
	Rate int
	// Drain limits how long deliveries may take after the last order; it must be above 0.
	Drain time.Duration
	// Database is the address of a PostgreSQL, MySQL or MariaDB database; "" means a temporary SQLite
	// database.
	Database string
	// Kafka has brokers as host:port; if empty, the demo starts a broker in the process.
	Kafka []string
	// SMTP is the URL of a mail server; if "", the demo starts one in the process.
	SMTP string
	// Observe is the loopback address of a dashboard, as host:port; "" means no dashboard.
	Observe string
	// JSON prints only the report on stdout, as JSON.
	JSON bool
}

// The defaults of the flags.
const (
	DefaultFor   = 10 * time.Second
	DefaultRate  = 200
	DefaultDrain = 30 * time.Second
)

// Validate reports all mistakes at once, by the names of the flags. The sinks check the addresses of
// Kafka and of the mail server.
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

// validateObserve refuses addresses that other machines can reach, since the demo has no users.
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
