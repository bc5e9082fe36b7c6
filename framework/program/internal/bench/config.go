package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/benchmarks/result"
	"github.com/waybill-go/waybill/framework/config"
)

// Config is what to measure, on what, and how. A zero field has the default that its comment names.
type Config struct {
	// Version is the program's, for the result.
	Version string
	// Scenarios has names of AllScenarios; default DefaultScenarios.
	Scenarios []string
	// Database is where the bench makes its own tables. The zero value is a SQLite
	// database in a temporary folder.
	Database config.Database
	// Configured is a configuration whose settings of tables, forwarder and sinks apply; nil for
	// none. Its sinks need not be built.
	Configured *config.Config
	// Build builds new sinks of the configuration with each call; required only for its Sinks.
	Build func() (*config.Config, error)
	// Sinks are configured sinks, which get real deliveries, or without a configuration receivers inside
	// the process. By default a receiver replaces each configured sink, by its kind; without a
	// configuration, all receivers are used.
	Sinks []string
	// Sample is published instead of made-up notifications.
	Sample Sample

	Rows       int           // rows of a backlog; default as many as take about a second
	Runs       int           // runs of each case after a warm-up; default 3
	Thresholds []int         // thresholds of parallelism: all are measured in sweep, default 1, 4, 16, 64, 256, 1024; elsewhere the first, default the sink's
	Delay      time.Duration // duration of a delivery to receivers inside the process; default 0, in sweep 5 ms
	Duration   time.Duration // of a run; default 1 s in publish, 2 s in latency, 20 s in sustain

	clients []int // that publish at the same time; default 1, 8, 32
}

// Defaults of a Config.
const (
	DefaultRuns       = 3
	defaultSweepDelay = 5 * time.Millisecond
)

// DefaultThresholds are the thresholds of sweep.
var DefaultThresholds = []int{1, 4, 16, 64, 256, 1024}

const (
	payloadBytes = 300  // approximate size of a made-up payload
	keys         = 1000 // that the notifications are spread over
	usualRate    = 500  // transactions per second in latency
)

// Limits of a Config.
const (
	maxRows      = 100_000_000
	maxRuns      = 1000
	maxThreshold = 1 << 16
	maxDelay     = 10 * time.Second
	maxDuration  = 24 * time.Hour
)

func (c Config) withDefaults() Config {
	if len(c.Scenarios) == 0 {
		c.Scenarios = DefaultScenarios
	}
	if slices.Contains(c.Scenarios, everything) {
		c.Scenarios = AllScenarios()
	}
	if c.Runs == 0 {
		c.Runs = DefaultRuns
	}
	if c.clients == nil {
		c.clients = []int{1, 8, 32}
	}
	return c
}

func (c Config) settings() result.Settings {
	s := result.Settings{
		Runs: c.Runs, Rows: c.Rows, PayloadBytes: payloadBytes, Type: c.Sample.Type, Keys: keys,
		DelayMS: milliseconds(c.Delay), Duration: c.Duration.Seconds(),
	}
	if c.Sample.Payload != nil {
		s.PayloadBytes = len(c.Sample.Payload)
	}
	if len(c.Thresholds) > 0 {
		s.Threshold = c.Thresholds[0]
	}
	return s
}

// Validate reports all mistakes at once, by the names of the flags.
func (c Config) Validate() error {
	c = c.withDefaults()
	var mistakes []error
	mistake := func(format string, args ...any) { mistakes = append(mistakes, fmt.Errorf(format, args...)) }
	within := func(flag string, value, least, most int) {
		if value < least || value > most {
			mistake("%s is %d: use %d to %d", flag, value, least, most)
		}
	}
	for _, name := range c.Scenarios {
		if !slices.Contains(AllScenarios(), name) {
			mistake("there is no scenario %q: use %s or %s", name, strings.Join(AllScenarios(), ", "), everything)
		}
	}
	for i, name := range c.Sinks {
		if slices.Contains(c.Sinks[:i], name) {
			mistake("--sinks names %q twice", name)
		}
		if c.Configured != nil {
			if _, known := c.Configured.Sinks[name]; !known {
				mistake("--sinks: the configuration has no sink %q", name)
			}
		} else if _, known := builtIn[name]; !known {
			mistake("--sinks: there is no receiver %q: use %s, or name a configuration with -c for its sinks", name, strings.Join(receiverNames(), ", "))
		}
	}
	within("--rows", c.Rows, 0, maxRows)
	within("--runs", c.Runs, 1, maxRuns)
	for _, n := range c.Thresholds {
		within("--threshold", n, 1, maxThreshold)
	}
	if c.Delay < 0 || c.Delay > maxDelay {
		mistake("--delay is %s: use 0 to %s", c.Delay, maxDelay)
	}
	if c.Duration < 0 || c.Duration > maxDuration {
		mistake("--duration is %s: use more than 0, up to %s", c.Duration, maxDuration)
	}
	return errors.Join(mistakes...)
}

// duration returns how long a run takes: the user's duration, or else the scenario's.
func (c Config) duration(own time.Duration) time.Duration {
	if c.Duration > 0 {
		return c.Duration
	}
	return own
}

// askAbove is the number of bytes from which on the bench asks before it writes a backlog.
const askAbove = 1 << 30

// bytesOnDisk estimates the size of n notifications with such payloads in the log.
func bytesOnDisk(n, payload int) int64 { return int64(n) * int64(payload+150) }

// Plan describes what the bench will do to the user's systems. consent means that a user at a terminal is
// asked first.
func (c Config) Plan() (lines []string, consent bool) {
	switch c.Database.Dialect() {
	case config.PostgreSQL, config.MySQL:
		lines = append(lines, fmt.Sprintf("The bench makes tables named %s… in the %s, and drops them at the end. It touches no other tables, but it puts load on the server.", prefix, c.Database))
	case config.SQLite:
		lines = append(lines, fmt.Sprintf("The bench makes a separate file in the folder of the %s, and removes it at the end.", c.Database))
	}
	for _, name := range c.real() {
		what := "made-up notifications of the type " + Type
		if c.Sample.Payload != nil {
			what = fmt.Sprintf("many copies of the given notification of the type %s", c.Sample.Type)
		}
		lines = append(lines, fmt.Sprintf("It delivers %s to the real sink %s.", what, name))
		consent = true
	}
	if bytes := bytesOnDisk(c.Rows, c.settings().PayloadBytes); bytes >= askAbove {
		lines = append(lines, fmt.Sprintf("It writes a backlog of %s notifications: about %s on the disk.", result.Count(int64(c.Rows)), result.Bytes(bytes)))
		consent = true
	}
	return lines, consent
}

// real returns the configured sinks that get real deliveries.
func (c Config) real() []string {
	if c.Configured == nil {
		return nil
	}
	return c.Sinks
}
