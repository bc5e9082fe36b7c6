// Package bench is `waybill bench`: it measures publishing and delivering on the
// user's own machine and database.
//
// It uses a separate outbox, whose tables have a random prefix and are dropped at the end; it never
// touches the user's tables. It measures each case several times after a warm-up, alternating
// between the cases of a scenario. In every run it checks the ids of all notifications for losses
// and repeats.
//
// The files in the order in which to read them: config.go, scenario.go, database.go, notification.go,
// backlog.go, application.go, watch.go, destination.go, delivering.go; then the scenarios: publish.go, drain.go
// (also sweep and fault), latency.go, sustain.go with space.go; then environment.go, judge.go, advice.go, and the
// output: progress.go, table.go, page.go with charts.go.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/waybill-go/waybill/benchmarks/result"
)

// ErrLost means that notifications did not arrive, or that some arrived that were never published.
// The result has the details.
var ErrLost = errors.New("notifications were lost, or some arrived that were never published: do not trust these figures, and report this")

// bench is one run of the command.
type bench struct {
	config   Config
	folder   string // for all files; removed at the end
	database *database
	progress Progress
	warnings []string
	// watchFor is how long to measure the load of the machine before anything starts.
	watchFor time.Duration
	// stalled is how long a run may go without a delivery before it fails.
	stalled time.Duration
	// tamper, if set, wraps the tallies of the built-in receivers, for tests.
	tamper func(took func(id string)) func(id string)
}

// Run measures and returns the result. If notifications were lost, it returns ErrLost and the
// result. When ctx is done, it removes what it made and returns the error of ctx.
func Run(ctx context.Context, c Config, p Progress) (*result.Result, error) {
	b := &bench{config: c.withDefaults(), progress: p, watchFor: time.Second, stalled: time.Minute}
	return b.measure(ctx)
}

func (b *bench) measure(ctx context.Context) (r *result.Result, err error) {
	if err := b.config.Validate(); err != nil {
		return nil, err
	}
	began := time.Now()
	if b.folder, err = os.MkdirTemp("", "waybill-bench-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.folder)) }()
	if b.database, err = openDatabase(ctx, b.config, b.folder); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.database.Close()) }()

	r = &result.Result{Format: result.Format, Waybill: b.config.Version, Started: began.UTC().Truncate(time.Second), Settings: b.config.settings()}
	if err := b.inspectEnvironment(ctx, r); err != nil {
		return nil, err
	}
	for _, s := range b.config.scenarios() {
		cases, err := s.run(b, ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err() // err is only its consequence
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		r.Scenarios = append(r.Scenarios, result.Scenario{Name: s.name, Cases: cases})
	}
	r.Warnings = append(r.Warnings, b.warnings...)
	r.Seconds = time.Since(began).Seconds()
	judge(r)
	r.Advice = advice(r)
	if !r.OK {
		return r, ErrLost
	}
	return r, nil
}

// warn reports once something that makes figures doubtful.
func (b *bench) warn(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(b.warnings, text) {
		b.warnings = append(b.warnings, text)
	}
}
