package bench

import (
	"context"
	"errors"
	"time"

	"github.com/waybill-go/waybill/benchmarks/result"
)

// throughput is in deliveries per second to one sink.
var (
	throughput = result.Quantity{Name: "throughput", Unit: "notifications/s", Better: "higher"}
	rowsOf     = result.Quantity{Name: "rows"}
)

// drain measures how fast a backlog is delivered to each destination, from the start of the forwarder
// to the last receipt.
func (b *bench) drain(ctx context.Context) ([]result.Case, error) {
	var all []result.Case
	for _, to := range b.config.destinations() {
		list := []destination{to}
		b.progress.Begin("drain", 1)
		b.progress.Step(to.title() + ": how many rows take a second")
		rows, tried, err := b.rowsToDrain(ctx, list)
		if err != nil {
			return nil, err
		}
		named, err := b.fill(ctx, rows)
		if err != nil {
			return nil, err
		}
		b.progress.End()
		cases, err := b.rounds(ctx, "drain", []trial{{to.title(), func(ctx context.Context, _ round) (measurement, error) {
			if err := b.database.again(ctx); err != nil {
				return measurement{}, err
			}
			took, checks, err := b.drainOnce(ctx, named, rows, list, nil)
			return measurement{figures: []result.Figure{
				perSecond(rows, took), rowsOf.Of(float64(rows)), atMost.Of(float64(to.settings.Parallelism.Most())),
			}, checks: checks}, err
		}}})
		if err != nil {
			return nil, err
		}
		cases[0].AddChecks(tried...)
		all = append(all, cases...)
	}
	return all, nil
}

// rowsToDrain is rowsFor these destinations. It also returns the checks of its trials.
func (b *bench) rowsToDrain(ctx context.Context, to []destination) (rows int, checks []result.Check, err error) {
	rows, err = b.rowsFor(ctx, func(ctx context.Context, rows int) (time.Duration, error) {
		named, err := b.fill(ctx, rows)
		if err != nil {
			return 0, err
		}
		took, checked, err := b.drainOnce(ctx, named, rows, to, nil)
		checks = append(checks, checked...)
		return took, err
	})
	return rows, checks, err
}

// drainOnce delivers the rows of the log, one whole batch, to all of these destinations.
func (b *bench) drainOnce(ctx context.Context, named batch, rows int, to []destination, look func(*watch)) (time.Duration, []result.Check, error) {
	d, err := b.deliver(ctx, named, to, look)
	if err != nil {
		return 0, nil, err
	}
	took, stalled := d.await(rows)
	checks, err := d.end(ctx, rows)
	return took, checks, errors.Join(stalled, err)
}

func perSecond(n int, took time.Duration) result.Figure {
	return throughput.Of(float64(n) / took.Seconds())
}
