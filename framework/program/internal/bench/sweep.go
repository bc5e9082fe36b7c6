package bench

import (
	"context"
	"fmt"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/program/internal/durations"
)

var (
	callP50 = Quantity{Name: "call_p50", Unit: "ms", Better: "lower"}
	callP99 = Quantity{Name: "call_p99", Unit: "ms", Better: "lower"}
	atMost  = Quantity{Name: "threshold"}
)

// sweep drains a backlog with one parallelism threshold after the other. Throughput grows until the
// receiver or the machine is saturated; above that, only the calls take longer.
func (b *bench) sweep(ctx context.Context) ([]Case, error) {
	var all []Case
	for _, to := range b.config.chosenOrNoOp() {
		var trials []trial
		tried := make([][]Check, len(b.config.Thresholds))
		setDefault(&to.delay, defaultSweepDelay)
		for i, n := range b.config.Thresholds {
			to.settings.Parallelism = forwarder.Parallelism{Threshold: n, Above: to.settings.Parallelism.Above}
			name := fmt.Sprintf("%s, threshold %d", to.title(), n)
			rows, checks, err := b.rowsUnder(ctx, name, to)
			if err != nil {
				return nil, err
			}
			tried[i] = checks
			trials = append(trials, trial{name, b.sweepTrial(to, rows)})
		}
		cases, err := b.rounds(ctx, "sweep", trials)
		if err != nil {
			return nil, err
		}
		for i := range cases {
			cases[i].addChecks(tried[i])
		}
		all = append(all, cases...)
	}
	return all, nil
}

func (b *bench) rowsUnder(ctx context.Context, name string, to destination) (int, []Check, error) {
	b.progress.Begin("sweep", 1)
	defer b.progress.End()
	b.progress.Step(name + ": how many rows take a second")
	return b.rowsToDrain(ctx, []destination{to})
}

func (b *bench) sweepTrial(to destination, rows int) func(context.Context, round) (measurement, error) {
	return func(ctx context.Context, _ round) (measurement, error) {
		named, err := b.fill(ctx, rows)
		if err != nil {
			return measurement{}, err
		}
		calls := durations.New()
		took, checks, err := b.drainOnce(ctx, named, rows, []destination{to}, func(w *watch) { w.calls = calls })
		return measurement{
			figures: []figure{
				perSecond(rows, took),
				{callP50, calls.Percentile(50)},
				{callP99, calls.Percentile(99)},
				{atMost, float64(to.settings.Parallelism.Most())},
			},
			checks: checks,
		}, err
	}
}
