package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/benchmarks/receiver"
	"github.com/waybill-go/waybill/benchmarks/result"
	"github.com/waybill-go/waybill/framework/outbox"
)

// The percentiles of the time from commit to receipt.
var (
	p50     = result.Quantity{Name: "p50", Unit: "ms", Better: "lower"}
	p95     = result.Quantity{Name: "p95", Unit: "ms", Better: "lower"}
	p99     = result.Quantity{Name: "p99", Unit: "ms", Better: "lower"}
	longest = result.Quantity{Name: "max", Unit: "ms", Better: "lower"}
	reached = result.Quantity{Name: "rate", Unit: "transactions/s"}
)

// waking is how a forwarder learns of a commit.
type waking string

const (
	byListen  waking = "woken by LISTEN"      // as a forwarder in a separate process is
	byProcess waking = "woken in the process" // by RunInTx
	byPolling waking = "polling"
)

// publisher returns the configuration of a publisher that wakes forwarders in this way.
func (w waking) publisher(wake func()) outbox.Config {
	switch w {
	case byListen:
		return outbox.Config{}
	case byProcess:
		return outbox.Config{Wake: wake, Announcer: outbox.Silent}
	}
	return outbox.Config{Announcer: outbox.Silent}
}

// waking returns the default way.
func (d *database) waking() waking {
	if d.listens {
		return byListen
	}
	return byProcess
}

// latency measures the time from a commit to the sink's receipt at a steady rate.
func (b *bench) latency(ctx context.Context) ([]result.Case, error) {
	var trials []trial
	add := func(name string, to destination, w waking) {
		rate := usualRate
		trials = append(trials, trial{name, func(ctx context.Context, r round) (measurement, error) { return b.latencyOnce(ctx, r, to, w, &rate) }})
	}
	if chosen := b.config.chosen(); len(chosen) > 0 {
		for _, to := range chosen {
			add(to.title(), to, b.database.waking())
		}
	} else {
		for _, w := range []waking{byListen, byProcess, byPolling} {
			if w != byListen || b.database.listens {
				add(string(w), b.config.tuned(builtIn[noOp]), w)
			}
		}
	}
	return b.rounds(ctx, "latency", trials)
}

// latencyOnce publishes at a rate, after the delivery of a first notification, which shows that the forwarder
// is running. If the warm-up does not reach the rate, it lowers the rate, since otherwise the times would be
// those of a queue.
func (b *bench) latencyOnce(ctx context.Context, r round, to destination, w waking, rate *int) (measurement, error) {
	return b.publishBeside(ctx, []destination{to}, w, func(a *application, d *delivering, waits *receiver.Waits) ([]result.Figure, error) {
		if err := a.transact(ctx); err != nil {
			return nil, err
		}
		if _, err := d.await(1); err != nil {
			return nil, err
		}
		waits.Restart(a.published())
		a.rate = *rate
		b.progress.Watch(func() string { return fmt.Sprintf("%s delivered", result.Count(d.parts[0].watch.receipts.Count())) })
		took, err := a.run(ctx, r.length(b.config.duration(2*time.Second)))
		if err != nil {
			return nil, err
		}
		if _, err := d.await(a.published()); err != nil {
			return nil, err
		}
		got := float64(a.published()) / took.Seconds()
		if r.warmUp && got < 0.9*float64(*rate) {
			*rate = max(1, int(got/2))
			b.warn("latency: the database reached %.0f transactions per second instead of %d, so latency is measured at %d", got, usualRate, *rate)
		}
		return []result.Figure{
			p50.Of(waits.Percentile(50)), p95.Of(waits.Percentile(95)), p99.Of(waits.Percentile(99)), longest.Of(waits.Percentile(100)),
			reached.Of(got),
		}, nil
	})
}

// publishBeside lends publish an application whose notifications are delivered to these destinations meanwhile.
// waits has the time from commit to receipt at the first one. Then it compares what arrived with what was
// published.
func (b *bench) publishBeside(ctx context.Context, to []destination, w waking,
	publish func(a *application, d *delivering, waits *receiver.Waits) ([]result.Figure, error),
) (m measurement, err error) {
	if err := b.database.empty(ctx); err != nil {
		return m, err
	}
	named := b.database.newBatch()
	waits := receiver.NewWaits(0)
	first := true
	d, err := b.deliver(ctx, named, to, func(w *watch) {
		if first {
			w.waits, first = waits, false
		}
	})
	if err != nil {
		return m, err
	}
	a, err := b.newApplication(named, w.publisher(d.Wake))
	published := 0
	if err == nil {
		a.committed = waits.Committed
		m.figures, err = publish(a, d, waits)
		published = a.published()
	}
	checks, ended := d.end(ctx, published)
	m.checks = checks
	return m, errors.Join(err, ended)
}
