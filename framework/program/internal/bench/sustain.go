package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-go/waybill/benchmarks/receiver"
	"github.com/waybill-go/waybill/benchmarks/result"
)

var (
	publishedRate = result.Quantity{Name: "published", Unit: "notifications/s", Better: "higher"}
	deliveredRate = result.Quantity{Name: "delivered", Unit: "notifications/s", Better: "higher"}
	highestLag    = result.Quantity{Name: "highest_lag", Unit: "notifications", Better: "lower"}
	catchUpTime   = result.Quantity{Name: "catch_up", Unit: "s", Better: "lower"}
	lag           = result.Quantity{Name: "lag", Unit: "notifications", Better: "lower"}
)

// sustain publishes and delivers at the same time, and samples figures regularly.
func (b *bench) sustain(ctx context.Context) ([]result.Case, error) {
	to := b.config.chosenOrNoOp()
	var names []string
	for _, one := range to {
		names = append(names, one.title())
	}
	return b.rounds(ctx, "sustain", []trial{{"to " + strings.Join(names, ", "), func(ctx context.Context, r round) (measurement, error) {
		return b.sustainOnce(ctx, r, to)
	}}})
}

func (b *bench) sustainOnce(ctx context.Context, r round, to []destination) (measurement, error) {
	if err := b.database.empty(ctx); err != nil {
		return measurement{}, err
	}
	named := b.database.newBatch()
	waits := receiver.NewWaits(0) // of the first destination
	first := true
	d, err := b.deliver(ctx, named, to, func(w *watch) {
		if first {
			w.waits, first = waits, false
		}
	})
	if err != nil {
		return measurement{}, err
	}
	m, a, err := b.publishBeside(ctx, r, d, named, waits)
	checks, ended := d.end(ctx, publishedBy(a))
	m.checks = checks
	return m, errors.Join(err, ended)
}

// publishBeside publishes for the duration of a run while a forwarder runs, and waits until it has
// delivered everything.
func (b *bench) publishBeside(ctx context.Context, r round, d *delivering, named batch, waits *receiver.Waits) (measurement, *application, error) {
	a, err := b.newApplication(named, b.database.waking().publisher(d.Wake))
	if err != nil {
		return measurement{}, nil, err
	}
	a.committed = waits.Committed
	duration := r.length(b.config.duration(20 * time.Second))
	samples := b.newSampler(d, a, duration)
	took, err := a.run(ctx, duration)
	published, delivered := a.published(), d.slowest()
	if err := errors.Join(err, samples.stop()); err != nil {
		return measurement{}, a, err
	}
	closed := time.Now()
	if _, err := d.await(published); err != nil {
		return measurement{}, a, err
	}
	m := measurement{
		figures: []result.Figure{
			publishedRate.Of(float64(published) / took.Seconds()),
			deliveredRate.Of(float64(delivered) / took.Seconds()),
			highestLag.Of(samples.most(lag)),
			catchUpTime.Of(time.Since(closed).Seconds()),
			p99.Of(waits.Percentile(99)),
		},
		series: samples.series,
	}
	last, err := b.tableSizes(ctx, true)
	if err != nil {
		return measurement{}, a, err
	}
	m.figures = append(m.figures, last...)
	m.figures = append(m.figures, memory.Of(samples.most(memory)))
	return m, a, nil
}

// slowest returns how many different notifications the slowest destination has received.
func (d *delivering) slowest() int {
	least := -1
	for _, p := range d.due() {
		if n := int(p.watch.receipts.Count()); least < 0 || n < least {
			least = n
		}
	}
	return max(least, 0)
}

// sampler measures a run in the background, at regular intervals.
type sampler struct {
	bench  *bench
	series []result.Series
	done   chan struct{}
	ended  chan error
}

func (b *bench) newSampler(d *delivering, a *application, duration time.Duration) *sampler {
	s := &sampler{bench: b, done: make(chan struct{}), ended: make(chan error, 1)}
	pause := min(max(duration/50, 50*time.Millisecond), time.Minute)
	b.progress.Watch(func() string {
		return fmt.Sprintf("%s published, %s delivered", result.Count(int64(a.published())), result.Count(int64(d.slowest())))
	})
	go func() { s.ended <- s.run(d, a, pause) }()
	return s
}

func (s *sampler) run(d *delivering, a *application, pause time.Duration) error {
	began, before := time.Now(), time.Now()
	var published, delivered int
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		select {
		case <-s.done:
			return nil
		case <-d.ctx.Done():
			return nil // the caller that stopped it knows why
		case <-ticker.C:
		}
		p, got, now := a.published(), d.slowest(), time.Now()
		at, passed := now.Sub(began).Seconds(), now.Sub(before).Seconds()
		s.add(at, publishedRate, float64(p-published)/passed)
		s.add(at, deliveredRate, float64(got-delivered)/passed)
		s.add(at, lag, float64(max(p-got, 0)))
		s.add(at, memory, residentMB())
		published, delivered, before = p, got, now
		tables, err := s.bench.tableSizes(d.ctx, false)
		if err != nil && d.ctx.Err() == nil {
			return err
		}
		for _, f := range tables {
			s.add(at, f.Quantity, f.Value)
		}
	}
}

// stop ends the sampling. The series are then complete.
func (s *sampler) stop() error {
	close(s.done)
	return <-s.ended
}

func (s *sampler) add(at float64, q result.Quantity, value float64) {
	for i := range s.series {
		if s.series[i].Quantity == q {
			s.series[i].Points = append(s.series[i].Points, result.Point{Seconds: at, Value: value})
			return
		}
	}
	s.series = append(s.series, result.Series{Quantity: q, Points: []result.Point{{Seconds: at, Value: value}}})
}

// most returns the highest value of a quantity; 0 if the run was too short for a sample.
func (s *sampler) most(q result.Quantity) float64 {
	var most float64
	for _, one := range s.series {
		if one.Quantity != q {
			continue
		}
		for _, p := range one.Points {
			most = max(most, p.Value)
		}
	}
	return most
}
