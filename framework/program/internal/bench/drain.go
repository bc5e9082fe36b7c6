package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/benchmarks/durations"
	"github.com/waybill-go/waybill/benchmarks/result"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/program/internal/connected"
	"github.com/waybill-go/waybill/sinks"
)

// throughput is in deliveries per second to one sink, and ofHealthy is a share of the throughput without a
// fault.
var (
	throughput = result.Quantity{Name: "throughput", Unit: "notifications/s", Better: "higher"}
	rowsOf     = result.Quantity{Name: "rows"}
	callP50    = result.Quantity{Name: "call_p50", Unit: "ms", Better: "lower"}
	callP99    = result.Quantity{Name: "call_p99", Unit: "ms", Better: "lower"}
	atMost     = result.Quantity{Name: "threshold"}
	ofHealthy  = result.Quantity{Name: "of_healthy", Better: "higher"}
)

// draining is a case in which a backlog is delivered to all of its destinations, from the start of the
// forwarder to the last receipt.
type draining struct {
	name string
	to   []destination
	rows int
	// calls is whether to measure how long a call of the first sink takes.
	calls bool
	// heldOpen is whether a transaction stays open that began before the backlog was written.
	heldOpen bool
}

// drain measures how fast a backlog is delivered to each destination.
func (b *bench) drain(ctx context.Context) ([]result.Case, error) {
	var cases []draining
	for _, to := range b.config.destinations() {
		cases = append(cases, draining{name: to.title(), to: []destination{to}})
	}
	return b.drains(ctx, "drain", cases)
}

// sweepSeparator is between the sink and the threshold in the name of a case.
const sweepSeparator = ", threshold "

// sweep drains a backlog with one parallelism threshold after the other. Throughput grows until the
// receiver or the machine is saturated; above that, only the calls take longer.
func (b *bench) sweep(ctx context.Context) ([]result.Case, error) {
	var cases []draining
	thresholds := b.config.Thresholds
	if len(thresholds) == 0 {
		thresholds = DefaultThresholds
	}
	for _, to := range b.config.chosenOrNoOp() {
		if to.delay == 0 {
			to.delay = defaultSweepDelay
		}
		for _, n := range thresholds {
			to.settings.Parallelism = forwarder.Parallelism{Threshold: n, Above: to.settings.Parallelism.Above}
			name := fmt.Sprintf("%s%s%d", to.title(), sweepSeparator, n)
			cases = append(cases, draining{name: name, to: []destination{to}, calls: true})
		}
	}
	return b.drains(ctx, "sweep", cases)
}

// Cases of fault.
const (
	healthy         = "two sinks, all well"
	oneDead         = "beside a third that is dead"
	openTransaction = "beside a transaction held open"
)

// fault measures the throughput to two sinks while a third one is dead, and while a transaction is
// open that began before all others.
func (b *bench) fault(ctx context.Context) ([]result.Case, error) {
	to := b.twoSinks()
	list := []draining{{name: healthy, to: to}, {name: oneDead, to: append([]destination{dead()}, to...)}}
	server := b.database.postgres || b.database.mysql
	if server {
		list = append(list, draining{name: openTransaction, to: to, heldOpen: true})
	}
	cases, err := b.drains(ctx, "fault", list)
	for i := range cases {
		cases[i].AddShare(ofHealthy, throughput.Name, &cases[0])
	}
	if err == nil && !server {
		cases = append(cases, result.Case{Name: openTransaction, Skipped: "SQLite has one writer at a time, which holds up all others"})
	}
	return cases, err
}

// twoSinks returns the first two destinations that the user names. If there is only one, it returns
// that one twice; if there is none, the no-op twice.
func (b *bench) twoSinks() []destination {
	of := b.config.chosenOrNoOp()
	list := make([]destination, 2)
	for i := range list {
		list[i] = of[i%len(of)]
		list[i].name = fmt.Sprintf("%d-%s", i+1, list[i].name)
	}
	return list
}

// dead returns a destination that cannot be reached. It has no arrivals to count.
func dead() destination {
	return destination{name: "dead", settings: threshold(unlimited), open: func(context.Context, opening) (*connected.Receiver, error) {
		return &connected.Receiver{Sink: sinks.Func(func(context.Context, *notification.Delivery) (notification.Receipt, error) {
			return "", sinks.Unavailable(context.DeadlineExceeded)
		})}, nil
	}}
}

// drains measures cases with a backlog. Each has as many rows as the user wants, or else as many as take
// about a second.
func (b *bench) drains(ctx context.Context, scenario string, list []draining) ([]result.Case, error) {
	trials := make([]trial, len(list))
	tried := make([][]result.Check, len(list))
	for i, d := range list {
		var err error
		if d.rows, tried[i], err = b.rowsFor(ctx, scenario, d); err != nil {
			return nil, err
		}
		trials[i] = trial{d.name, func(ctx context.Context, _ round) (measurement, error) {
			_, m, err := b.drainOnce(ctx, d)
			return m, err
		}}
	}
	cases, err := b.rounds(ctx, scenario, trials)
	for i := range cases {
		cases[i].AddChecks(tried[i]...)
	}
	return cases, err
}

const (
	// aim is the intended duration of a run over a backlog if the user sets no number of rows.
	aim = time.Second
	// fewestRows and mostRows limit the number of rows that is chosen then.
	fewestRows, mostRows = 200, 200_000
)

// rowsFor returns the number of rows of a case: the user's, or else as many as take about as long as
// aim. It also returns the checks of its trials.
func (b *bench) rowsFor(ctx context.Context, scenario string, d draining) (rows int, checks []result.Check, err error) {
	if b.config.Rows > 0 {
		return b.config.Rows, nil, nil
	}
	b.progress.Begin(scenario, 1)
	defer b.progress.End()
	b.progress.Step(d.name + ": how many rows take a second")
	for d.rows = fewestRows; ; {
		took, m, err := b.drainOnce(ctx, d)
		checks = append(checks, m.checks...)
		if err != nil {
			return 0, checks, err
		}
		factor := aim.Seconds() / took.Seconds()
		next := min(max(int(float64(d.rows)*min(factor, 20)), fewestRows), mostRows)
		if took > aim/4 || next == d.rows {
			return next, checks, nil
		}
		d.rows = next
	}
}

// drainOnce writes the backlog of a case and delivers it.
func (b *bench) drainOnce(ctx context.Context, d draining) (took time.Duration, m measurement, err error) {
	if err := b.database.empty(ctx); err != nil {
		return 0, m, err
	}
	if d.heldOpen {
		tx, err := b.holdOpen(ctx)
		if err != nil {
			return 0, m, err
		}
		defer func() { _ = tx.Rollback() }() // what it wrote never existed
	}
	named, err := b.append(ctx, d.rows)
	if err != nil {
		return 0, m, err
	}
	calls := durations.New()
	took, m.checks, err = b.deliverAll(ctx, named, d.rows, d.to, func(w *watch) {
		if d.calls {
			w.calls = calls
		}
	})
	if err != nil {
		return took, m, err
	}
	m.figures = []result.Figure{throughput.Of(float64(d.rows) / took.Seconds()), rowsOf.Of(float64(d.rows))}
	if d.calls {
		m.figures = append(m.figures, callP50.Of(calls.Percentile(50)), callP99.Of(calls.Percentile(99)))
	}
	if len(d.to) == 1 {
		m.figures = append(m.figures, atMost.Of(float64(d.to[0].settings.Parallelism.Most())))
	}
	return took, m, nil
}

// deliverAll delivers the rows of the log, one whole batch, to all of these destinations.
func (b *bench) deliverAll(ctx context.Context, named batch, rows int, to []destination, look func(*watch)) (time.Duration, []result.Check, error) {
	d, err := b.deliver(ctx, named, to, look)
	if err != nil {
		return 0, nil, err
	}
	took, stalled := d.await(rows)
	checks, err := d.end(ctx, rows)
	return took, checks, errors.Join(stalled, err)
}

// holdOpen begins a transaction whose id and offset come before those of the backlog.
func (b *bench) holdOpen(ctx context.Context) (*sql.Tx, error) {
	tx, err := b.database.DB.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("hold a transaction open: %w", err)
	}
	if _, err := tx.ExecContext(ctx, b.database.named(`INSERT INTO outbox (type, payload) VALUES ('`+Type+`', '{}')`)); err != nil {
		_ = tx.Rollback()
		return nil, fmt.Errorf("hold a transaction open: %w", err)
	}
	return tx, nil
}
