// Package scenario has the scenarios that are compared: draining a backlog, the latency of new
// commits, publishing, and publishing and delivering together.
package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/benchmarks/peers/database"
	"github.com/waybill-go/waybill/benchmarks/peers/peer"
	"github.com/waybill-go/waybill/benchmarks/result"
)

// Scenario is one kind of work with its contenders.
type Scenario struct {
	Name  string // for flags and files
	Title string
	About string // what is done and measured
	// Metrics are the columns of the table. The first one is drawn.
	Metrics    []result.Quantity
	Contenders []Contender
	// Lacks says what the machine lacks to run the scenario; "" if nothing.
	Lacks string
}

// Contender does the work of a scenario.
type Contender struct {
	Name          string
	Configuration string
	Lossy         string // why it loses orders; "" if it does not
	Alone         string // the contender that publishes as this one does, without a relay; "" if there is none
	Run           func(ctx context.Context, server *database.Server) (Sample, error)
}

// Sample is the result of one run.
type Sample struct {
	// Metrics are the figures by the names of the scenario's quantities.
	Metrics map[string]float64
	// Complete means that everything arrived before the time limit.
	Complete bool
	// Check is what arrived. Lost neither arrived nor is pending.
	Check result.Check
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
	Session     int           // transactions of a turn that measures the server's processor time; 0: it is not measured
	Quiet       bool          // of the scenarios on a busy machine only the last one
}

// SmokeSizes returns the least sizes with which every scenario works. They leave out the scenarios on a
// busy machine, which repeat others, except one.
func SmokeSizes() Sizes {
	return Sizes{
		Backlog: 2000, SlowBacklog: 500, Limit: 300 * time.Millisecond, InFlight: 256, HTTP: 64,
		Publishing: 200 * time.Millisecond, Fewest: 3, Clients: 8, Session: 10, Quiet: true,
	}
}

// DefaultSizes returns sizes that take three quarters of an hour on two cores.
func DefaultSizes() Sizes {
	return Sizes{
		Backlog: 300_000, SlowBacklog: 40_000, Limit: 2 * time.Second, InFlight: 256, HTTP: 64,
		Publishing: 2500 * time.Millisecond, Fewest: 50, Clients: 8, Session: 500,
	}
}

// WarmUp returns the same sizes for a shorter time.
func (s Sizes) WarmUp() Sizes {
	s.Limit, s.Publishing, s.Fewest, s.Session = min(s.Limit, 500*time.Millisecond), min(s.Publishing, 500*time.Millisecond), 1, 0
	return s
}

// All returns the scenarios in the order of the report.
func All(s Sizes) []Scenario {
	rare, usual, frequent := latency(s, 10), latency(s, usualRate), latency(s, 5000)
	all := []Scenario{
		nowhere(s), kafka(s), slowKafka(s), realKafka(s), http(s), slowHTTP(s),
		rare, usual, frequent, together(s), transactions(s),
	}
	s.Session = 0 // a busy machine makes no difference to the least time
	others := []Scenario{nowhere(s), kafka(s), slowKafka(s), http(s), rare, usual, frequent, together(s), transactions(s)}
	if s.Quiet {
		others = others[len(others)-1:]
	}
	for _, quiet := range others {
		all = append(all, onABusyMachine(quiet))
	}
	return all
}

// Names returns the names of all scenarios.
func Names() (names []string) {
	for _, s := range All(DefaultSizes()) {
		names = append(names, s.Name)
	}
	return names
}

// The columns that several scenarios have.
var (
	rate     = result.Quantity{Name: "rate", Unit: "deliveries/s", Better: "higher", Title: "deliveries/s"}
	ownCPU   = result.Quantity{Name: "cpu", Unit: "cores", Better: "lower", Title: "CPU: process"}
	theirCPU = result.Quantity{Name: "postgres_cpu", Unit: "cores", Better: "lower", Title: "CPU: PostgreSQL"}
)

// n writes 300000 as 300,000.
func n(v int) string { return result.Count(int64(v)) }

// filled returns a database with a backlog of n orders in an outbox, and a function that drops it.
func filled(ctx context.Context, server *database.Server, o peer.Outbox, n int) (dsn string, drop func() error, err error) {
	return server.Copy(ctx, fmt.Sprintf("%s %d", o.Name(), n), func(ctx context.Context, dsn string) error {
		if err := o.Migrate(ctx, dsn); err != nil {
			return err
		}
		return o.Fill(ctx, dsn, n)
	})
}
