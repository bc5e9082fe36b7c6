package bench

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/waybill-go/waybill/benchmarks/receiver"
	"github.com/waybill-go/waybill/benchmarks/result"
)

var (
	publishedRate = result.Quantity{Name: "published", Unit: "notifications/s", Better: "higher"}
	deliveredRate = result.Quantity{Name: "delivered", Unit: "notifications/s", Better: "higher"}
	highestLag    = result.Quantity{Name: "highest_lag", Unit: "notifications", Better: "lower"}
	catchUpTime   = result.Quantity{Name: "catch_up", Unit: "s", Better: "lower"}
)

// sustain publishes and delivers at the same time.
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

// sustainOnce publishes for the duration of a run while a forwarder runs, and waits until it has delivered
// everything.
func (b *bench) sustainOnce(ctx context.Context, r round, to []destination) (measurement, error) {
	return b.publishBeside(ctx, to, b.database.waking(), func(a *application, d *delivering, waits *receiver.Waits) ([]result.Figure, error) {
		duration := r.length(b.config.duration(20 * time.Second))
		stop := b.sample(d, a, duration)
		took, err := a.run(ctx, duration)
		published, delivered := a.published(), d.slowest()
		lag, used := stop()
		if err != nil {
			return nil, err
		}
		closed := time.Now()
		if _, err := d.await(published); err != nil {
			return nil, err
		}
		caughtUp := time.Since(closed)
		sizes, err := b.tableSizes(ctx)
		return append([]result.Figure{
			publishedRate.Of(float64(published) / took.Seconds()),
			deliveredRate.Of(float64(delivered) / took.Seconds()),
			highestLag.Of(lag),
			catchUpTime.Of(caughtUp.Seconds()),
			p99.Of(waits.Percentile(99)),
			memory.Of(used),
		}, sizes...), err
	})
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

// sample measures in the background, at regular intervals, how many notifications are published and not yet
// delivered, and the memory of the process. stop returns the highest samples.
func (b *bench) sample(d *delivering, a *application, duration time.Duration) (stop func() (lag, memory float64)) {
	b.progress.Watch(func() string {
		return fmt.Sprintf("%s published, %s delivered", result.Count(int64(a.published())), result.Count(int64(d.slowest())))
	})
	done := make(chan struct{})
	var lag, used float64
	var sampling sync.WaitGroup
	sampling.Go(func() {
		ticker := time.NewTicker(min(max(duration/50, 50*time.Millisecond), time.Minute))
		defer ticker.Stop()
		for {
			lag, used = max(lag, float64(a.published()-d.slowest())), max(used, residentMB())
			select {
			case <-done:
				return
			case <-ticker.C:
			}
		}
	})
	return func() (float64, float64) {
		close(done)
		sampling.Wait()
		return lag, used
	}
}
