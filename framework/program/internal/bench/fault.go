package bench

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/benchmarks/result"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// ofHealthy is the throughput during a fault, as a share of the throughput without one.
var ofHealthy = result.Quantity{Name: "of_healthy", Better: "higher"}

// Cases of fault.
const (
	healthy         = "two sinks, all well"
	oneDead         = "beside a third that is dead"
	openTransaction = "beside a transaction held open"
)

// fault measures the throughput to two sinks while a third one is dead, and while a transaction is
// open that began before all others. It also measures the throughput from a large backlog.
func (b *bench) fault(ctx context.Context) ([]result.Case, error) {
	to := b.twoSinks()
	b.progress.Begin("fault", 1)
	b.progress.Step("how many rows take a second")
	rows, tried, err := b.rowsToDrain(ctx, to)
	if err != nil {
		return nil, err
	}
	b.progress.End()
	trials := []trial{
		{healthy, b.faultTrial(rows, to, false)},
		{oneDead, b.faultTrial(rows, append([]destination{dead()}, to...), false)},
	}
	if b.database.postgres || b.database.mysql {
		trials = append(trials, trial{openTransaction, b.faultTrial(rows, to, true)})
	}
	cases, err := b.rounds(ctx, "fault", trials)
	if err != nil {
		return nil, err
	}
	cases[0].AddChecks(tried...)
	for i := range cases {
		cases[i].AddShare(ofHealthy, throughput.Name, &cases[0])
	}
	if !b.database.postgres && !b.database.mysql {
		cases = append(cases, result.Case{Name: openTransaction, Skipped: "SQLite has one writer at a time, which holds up all others"})
	}
	large, err := b.largeBacklog(ctx)
	return append(cases, large...), err
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
	return destination{name: "dead", settings: threshold(unlimited), open: func(context.Context, opening) (*opened, error) {
		return &opened{sink: sinks.Func(func(context.Context, *notification.Delivery) (notification.Receipt, error) {
			return "", sinks.Unavailable(context.DeadlineExceeded)
		})}, nil
	}}
}

// faultTrial returns a trial that drains a backlog of this many rows to the sinks that are not dead.
func (b *bench) faultTrial(rows int, to []destination, heldOpen bool) func(context.Context, round) (measurement, error) {
	return func(ctx context.Context, _ round) (m measurement, err error) {
		if err := b.database.empty(ctx); err != nil {
			return m, err
		}
		if heldOpen {
			tx, err := b.holdOpen(ctx)
			if err != nil {
				return m, err
			}
			defer func() { _ = tx.Rollback() }() // what it wrote never existed
		}
		named, err := b.append(ctx, rows)
		if err != nil {
			return m, err
		}
		took, checks, err := b.drainOnce(ctx, named, rows, to, nil)
		return measurement{figures: []result.Figure{perSecond(rows, took), rowsOf.Of(float64(rows))}, checks: checks}, err
	}
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

// largeBacklog drains a backlog that the forwarder must not load into memory as a whole.
func (b *bench) largeBacklog(ctx context.Context) ([]result.Case, error) {
	rows, to := b.config.Rows, b.twoSinks()[:1]
	if rows == 0 {
		rows = largeBacklog
	}
	b.progress.Begin("fault", 1)
	b.progress.Step("a large backlog")
	named, err := b.fill(ctx, rows)
	if err != nil {
		return nil, err
	}
	b.progress.End()
	return b.rounds(ctx, "fault", []trial{{fmt.Sprintf("a backlog of %s to one sink", result.Count(int64(rows))), func(ctx context.Context, _ round) (measurement, error) {
		if err := b.database.again(ctx); err != nil {
			return measurement{}, err
		}
		stop := peakMemory()
		took, checks, err := b.drainOnce(ctx, named, rows, to, nil)
		return measurement{
			figures: []result.Figure{perSecond(rows, took), rowsOf.Of(float64(rows)), memory.Of(stop())},
			checks:  checks,
		}, err
	}}})
}

// peakMemory samples the memory of the process until stop is called. stop returns the highest sample
// in MB.
func peakMemory() (stop func() float64) {
	done, result := make(chan struct{}), make(chan float64)
	go func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		most := residentMB()
		for {
			select {
			case <-done:
				result <- max(most, residentMB())
				return
			case <-ticker.C:
				most = max(most, residentMB())
			}
		}
	}()
	return func() float64 {
		close(done)
		return <-result
	}
}
