package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
	// Build builds new sinks of the configuration with each call; required only for Sinks.
	Build func() (*config.Config, error)

	// Sinks are configured sinks that get real deliveries.
	Sinks []string
	// Receivers are built-in receivers. By default, one replaces each configured sink, by its kind;
	// without a configuration, all are used.
	Receivers []string

	// Sample is published instead of made-up notifications.
	Sample Sample

	Rows         int           // rows of a backlog; default as many as take about a second
	Runs         int           // runs of each case after a warm-up; default 3
	PayloadBytes int           // approximate size of a payload; default 300
	Keys         int           // number of keys; default 1,000
	Clients      []int         // clients that publish at the same time; default 1, 8, 32
	Threshold    int           // threshold of parallelism; default the sink's
	Thresholds   []int         // thresholds of sweep; default 1, 4, 16, 64, 256, 1024
	Delay        time.Duration // duration of a delivery to built-in receivers; default 0, in sweep 5 ms
	Rate         int           // transactions per second; default 500 in latency, in sustain as many as possible
	Duration     time.Duration // of a run; default 1 s in publish, 2 s in latency, 20 s in sustain
	Backlog      int           // rows of fault's large backlog; default 10,000,000
}

// Defaults of a Config.
const (
	DefaultRuns         = 3
	DefaultPayloadBytes = 300
	DefaultKeys         = 1000
	DefaultBacklog      = 10_000_000
	DefaultRate         = 500
	defaultSweepDelay   = 5 * time.Millisecond
)

// DefaultClients are the clients of publish, DefaultThresholds the thresholds of sweep.
var (
	DefaultClients    = []int{1, 8, 32}
	DefaultThresholds = []int{1, 4, 16, 64, 256, 1024}
)

// Limits of a Config.
const (
	maxRows      = 100_000_000
	maxRuns      = 1000
	maxPayload   = 1 << 20
	maxClients   = 1000
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
	setDefault(&c.Runs, DefaultRuns)
	setDefault(&c.PayloadBytes, DefaultPayloadBytes)
	if c.Sample.Payload != nil {
		c.PayloadBytes = len(c.Sample.Payload)
	}
	setDefault(&c.Keys, DefaultKeys)
	setDefault(&c.Backlog, DefaultBacklog)
	if len(c.Clients) == 0 {
		c.Clients = DefaultClients
	}
	if len(c.Thresholds) == 0 {
		c.Thresholds = DefaultThresholds
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Measures reports whether the config measures a scenario that a result has.
func (c Config) Measures(r *Result) bool {
	wanted := c.withDefaults().Scenarios
	return slices.ContainsFunc(r.Scenarios, func(s Scenario) bool { return slices.Contains(wanted, s.Name) })
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
	for _, name := range c.Receivers {
		if _, known := builtIn[name]; !known {
			mistake("--receivers: there is no receiver %q: use %s", name, strings.Join(receiverNames(), ", "))
		}
	}
	for _, name := range c.Sinks {
		if c.Configured == nil {
			mistake("--sinks %s: sinks are those of a configuration: name it with -c", name)
		} else if _, known := c.Configured.Sinks[name]; !known {
			mistake("--sinks: the configuration has no sink %q", name)
		}
	}
	all := slices.Sorted(slices.Values(slices.Concat(c.Receivers, c.Sinks)))
	for i := 1; i < len(all); i++ {
		if all[i] == all[i-1] {
			mistake("--receivers and --sinks name %q twice: measure them one after the other", all[i])
		}
	}
	within("--rows", c.Rows, 0, maxRows)
	within("--runs", c.Runs, 1, maxRuns)
	within("--payload-bytes", c.PayloadBytes, 1, maxPayload)
	within("--keys", c.Keys, 1, maxRows)
	within("--backlog", c.Backlog, 1, maxRows)
	within("--rate", c.Rate, 0, 1_000_000)
	within("--threshold", c.Threshold, 0, maxThreshold)
	for _, n := range c.Thresholds {
		within("--thresholds", n, 1, maxThreshold)
	}
	for _, n := range c.Clients {
		within("--clients", n, 1, maxClients)
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

// largeBacklog is the number of bytes from which on the bench asks before it writes a backlog.
const largeBacklog = 1 << 30

// bytesOnDisk estimates the size of n notifications with such payloads in the log.
func bytesOnDisk(n, payload int) int64 { return int64(n) * int64(payload+150) }

// Plan describes what the bench will do to the user's systems. consent means that the user must
// agree first.
func (c Config) Plan() (lines []string, consent bool) {
	c = c.withDefaults()
	switch {
	case c.Database.Dialect() == config.PostgreSQL, c.Database.Dialect() == config.MySQL:
		lines = append(lines, fmt.Sprintf("The bench makes tables named %s… in the %s, and drops them at the end. It touches no other tables, but it puts load on the server.", prefix, c.Database))
	case c.Database.Dialect() == config.SQLite:
		lines = append(lines, fmt.Sprintf("The bench makes a separate file in the folder of the %s, and removes it at the end.", c.Database))
	}
	for _, name := range c.Sinks {
		what := "made-up notifications of the type " + Type
		if c.Sample.Payload != nil {
			what = fmt.Sprintf("many copies of the given notification of the type %s", c.Sample.Type)
		}
		lines = append(lines, fmt.Sprintf("It delivers %s to the real sink %s.", what, name))
		consent = true
	}
	largest := c.Rows
	if slices.Contains(c.Scenarios, "fault") {
		largest = max(largest, c.Backlog)
	}
	if bytes := bytesOnDisk(largest, c.PayloadBytes); bytes >= largeBacklog {
		lines = append(lines, fmt.Sprintf("It writes a backlog of %s notifications: about %s on the disk.", count(int64(largest)), bytesText(bytes)))
		consent = true
	}
	return lines, consent
}
