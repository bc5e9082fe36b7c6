// Package scenario has the scenarios that are compared: draining a backlog, the latency of new
// commits, publishing, and publishing and delivering together.
package scenario

import (
	"context"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/waybill-go/waybill/benchmarks/database"
	"github.com/waybill-go/waybill/benchmarks/peer"
)

// Scenario is one kind of work with its contenders.
type Scenario struct {
	Name  string // for flags and files
	Title string
	About string // what is done and measured
	// Metrics are the columns of the table. The first one is drawn.
	Metrics    []Metric
	Contenders []Contender
	// Lacks says what the machine lacks to run the scenario; "" if nothing.
	Lacks string
	// Once means one run of each contender, without a warm-up: for long runs, and for results
	// that are counted and not timed.
	Once bool
}

// Metric is a column of figures.
type Metric struct {
	Key      string
	Title    string
	Decimals int
}

// Contender does the work of a scenario.
type Contender struct {
	Name          string
	Configuration string
	Lossy         string // why it loses orders; "" if it does not
	Run           func(ctx context.Context, server *database.Server) (Sample, error)
}

// Sample is the result of one run.
type Sample struct {
	// Metrics are the figures by the keys of the scenario's metrics.
	Metrics map[string]float64 `json:"metrics"`
	// Spoiled says why the run is not valid, such as other processes on the machine; "" if it is.
	Spoiled string `json:"spoiled,omitempty"`
	// Complete means that everything arrived before the time limit.
	Complete bool `json:"complete"`
	// Lost is the number of orders that neither arrived nor are pending. Unsettled is the number of
	// orders that arrived and are still pending, so that they would arrive again.
	Lost      int `json:"lost"`
	Unsettled int `json:"unsettled"`
	Repeats   int `json:"repeats"`
	// Swapped is the number of orders that arrived after a later order of their key, unless their transactions
	// overlapped.
	Swapped int `json:"swapped"`
}

// Sizes is the amount of work of each scenario.
type Sizes struct {
	Backlog     int           // orders to drain to nowhere and to Kafka
	SlowBacklog int           // orders to drain to slower destinations
	Limit       time.Duration // of a drain; the rest of the backlog stays pending
	InFlight    int           // deliveries in flight to nowhere and to Kafka
	HTTP        int           // deliveries in flight to HTTP
	Publishing  time.Duration // duration of publishing
	Fewest      int           // least number of transactions of a latency run, which may take longer for them
	Clients     int           // of publishing
	Through     int           // notifications of the scenario dead-tuples
	History     int           // settled or pending rows of the large outbox
	Fan         int           // orders that go to many sinks
	Parked      int           // deliveries that are parked while others are delivered
	Staged      int           // records in the topic of the second stage
}

// SmokeSizes returns the least sizes with which every scenario works.
func SmokeSizes() Sizes {
	return Sizes{
		Backlog: 2000, SlowBacklog: 500, Limit: time.Second, InFlight: 256, HTTP: 64,
		Publishing: 200 * time.Millisecond, Fewest: 3, Clients: 8, Through: 5000, History: 5000, Fan: 200, Parked: 500, Staged: 400,
	}
}

// DefaultSizes returns sizes that take three quarters of an hour on two cores.
func DefaultSizes() Sizes {
	return Sizes{
		Backlog: 300_000, SlowBacklog: 40_000, Limit: 2 * time.Second, InFlight: 256, HTTP: 64,
		Publishing: 2500 * time.Millisecond, Fewest: 50, Clients: 8, Through: 1_000_000, History: 10_000_000, Fan: 25_000, Parked: 100_000, Staged: 32_000,
	}
}

// WarmUp returns the same sizes for a shorter time.
func (s Sizes) WarmUp() Sizes {
	s.Limit, s.Publishing, s.Fewest = min(s.Limit, 500*time.Millisecond), min(s.Publishing, 500*time.Millisecond), 1
	return s
}

// All returns the scenarios in the order of the report.
func All(s Sizes) []Scenario {
	rare, usual, frequent := latency(s, 10), latency(s, usualRate), latency(s, 5000)
	all := []Scenario{
		nowhere(s), kafka(s), slowKafka(s), realKafka(s), http(s), slowHTTP(s), email(s), slowEmail(s), lanes(s),
		rare, usual, frequent, troubled(s), together(s), transactions(s), table(s),
	}
	for _, quiet := range []Scenario{nowhere(s), kafka(s), slowKafka(s), http(s), rare, usual, frequent, together(s), transactions(s)} {
		all = append(all, onABusyMachine(quiet))
	}
	all = append(append(all, sqlite(s)...), mysql(s)...)
	return append(all, secondStage(s), deadTuples(s), history(s), fan(s))
}

// Names returns the names of all scenarios.
func Names() (names []string) {
	for _, s := range All(SmokeSizes()) {
		names = append(names, s.Name)
	}
	return names
}

// english writes 300000 as 300,000.
var english = message.NewPrinter(language.English)

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return english.Sprintf("%d %ss", n, noun)
}

// The columns that several scenarios have.
var (
	rate     = Metric{Key: "rate", Title: "deliveries/s"}
	ownCPU   = Metric{Key: "cpu", Title: "CPU: process", Decimals: 2}
	theirCPU = Metric{Key: "postgres_cpu", Title: "CPU: PostgreSQL", Decimals: 2}
)

// lend returns a database, or a file, that fill has filled, and a function that drops it.
func lend(ctx context.Context, server *database.Server, o peer.Outbox, n int, fill database.Fill) (dsn string, drop func() error, err error) {
	switch o := o.(type) {
	case peer.InFile:
		return server.CopyFile(ctx, key(o, n), fill)
	case peer.InMySQL:
		return server.CopyMySQL(ctx, o.Family, key(o, n), fill)
	}
	return server.Copy(ctx, key(o, n), fill)
}

// filled returns a database with a backlog of n orders in an outbox.
func filled(ctx context.Context, server *database.Server, o peer.Outbox, n int) (dsn string, drop func() error, err error) {
	return lend(ctx, server, o, n, func(ctx context.Context, dsn string) error {
		if err := o.Migrate(ctx, dsn); err != nil {
			return err
		}
		return o.Fill(ctx, dsn, n)
	})
}
