package bench

import (
	"context"
	"fmt"

	"github.com/waybill-go/waybill/benchmarks/durations"
	"github.com/waybill-go/waybill/benchmarks/result"
	"github.com/waybill-go/waybill/framework/forwarder"
)

var (
	callP50 = result.Quantity{Name: "call_p50", Unit: "ms", Better: "lower"}
	callP99 = result.Quantity{Name: "call_p99", Unit: "ms", Better: "lower"}
	atMost  = result.Quantity{Name: "threshold"}
)

// sweepSeparator is between the sink and the threshold in the name of a case.
const sweepSeparator = ", threshold "

// sweep drains a backlog with one parallelism threshold after the other. Throughput grows until the
// receiver or the machine is saturated; above that, only the calls take longer.
func (b *bench) sweep(ctx context.Context) ([]result.Case, error) {
	var all []result.Case
	thresholds := b.config.Thresholds
	if len(thresholds) == 0 {
		thresholds = DefaultThresholds
	}
	for _, to := range b.config.chosenOrNoOp() {
		var trials []trial
		tried := make([][]result.Check, len(thresholds))
		if to.delay == 0 {
			to.delay = defaultSweepDelay
		}
		for i, n := range thresholds {
			to.settings.Parallelism = forwarder.Parallelism{Threshold: n, Above: to.settings.Parallelism.Above}
			name := fmt.Sprintf("%s%s%d", to.title(), sweepSeparator, n)
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
			cases[i].AddChecks(tried[i]...)
		}
		all = append(all, cases...)
	}
	return all, nil
}

func (b *bench) rowsUnder(ctx context.Context, name string, to destination) (int, []result.Check, error) {
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
			figures: []result.Figure{
				perSecond(rows, took),
				callP50.Of(calls.Percentile(50)),
				callP99.Of(calls.Percentile(99)),
				atMost.Of(float64(to.settings.Parallelism.Most())),
			},
			checks: checks,
		}, err
	}
}
