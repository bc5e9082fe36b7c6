package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/benchmarks/database"
	"github.com/waybill-go/waybill/benchmarks/peer"
	"github.com/waybill-go/waybill/benchmarks/receiver"
)

// lags is a contender that delivers what is published at a steady rate.
type lags struct {
	relay peer.Relay
	sizes Sizes
}

// warmUp is the share of a run whose latencies do not count: connections are made,
// statements prepared.
const warmUp = 0.2

func (l lags) run(ctx context.Context, server *database.Server) (Sample, error) {
	return onEmpty(ctx, server, l.relay.Outbox, l.sizes, func(dsn string, from peer.Publisher) (Sample, error) {
		return l.runOn(ctx, server, dsn, from)
	})
}

func (l lags) runOn(ctx context.Context, server *database.Server, dsn string, from peer.Publisher) (sample Sample, err error) {
	n := int(l.sizes.Publishing.Seconds() * float64(l.sizes.Rate))
	to, tally := receiver.NewTimed(receiver.Config{InFlight: l.sizes.InFlight, Capacity: n})
	relay := start(ctx, l.relay, dsn, to.Destination())
	defer func() { _ = relay.stop() }() // stopped before, unless something failed

	m := newMeter(ctx, server)
	committing, err := publishSteadily(ctx, from, n, l.sizes)
	if err != nil {
		return Sample{}, err
	}
	if sample.Complete, err = relay.await(ctx, to.Expect(n), l.sizes.Limit); err != nil {
		return sample, err
	}
	_, sample.Metrics = m.stop(ctx)
	if err := relay.stop(); err != nil {
		return sample, err
	}
	addLatencies(sample.Metrics, committing, tally)
	return sample, sample.judge(ctx, to, n, l.relay, dsn)
}

// publishSteadily begins n transactions at their times, whatever the earlier ones
// take, as far as there are clients; it returns when each began to commit.
func publishSteadily(ctx context.Context, to peer.Publisher, n int, s Sizes) (committing []time.Time, err error) {
	committing = make([]time.Time, n)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(s.Clients)
	began := time.Now()
	for number := range n {
		due := began.Add(time.Duration(number) * time.Second / time.Duration(s.Rate))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return nil, group.Wait()
		}
		group.Go(func() (err error) {
			committing[number], err = to.Publish(ctx, number)
			return err
		})
	}
	return committing, group.Wait()
}

func addLatencies(metrics map[string]float64, committing []time.Time, tally *receiver.Tally) {
	var all []time.Duration
	for number := int(warmUp * float64(len(committing))); number < len(committing); number++ {
		if at, ok := tally.Arrived(number); ok {
			all = append(all, at.Sub(committing[number]))
		}
	}
	if len(all) == 0 {
		return
	}
	slices.Sort(all)
	for key, share := range map[string]float64{"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1} {
		metrics[key] = float64(all[min(int(share*float64(len(all))), len(all)-1)].Microseconds()) / 1000
	}
}

func latency(s Sizes) Scenario {
	var contenders []Contender
	for _, r := range []peer.Relay{
		waybillSingle(s.InFlight), waybillPolling(),
		watermillDefault(), watermillTuned(), riverDefault(), riverTuned(), peer.Textbook(), peer.SkipLocked(),
	} {
		contenders = append(contenders, Contender{Name: r.Name, Configuration: r.Configuration, Run: lags{r, s}.run})
	}
	return Scenario{
		Name: "latency", Title: "From the commit to the sink",
		Metrics: []Metric{
			{Key: "p50", Title: "p50, ms", Decimals: 2}, {Key: "p95", Title: "p95, ms", Decimals: 2},
			{Key: "p99", Title: "p99, ms", Decimals: 2}, {Key: "max", Title: "max, ms", Decimals: 2}, ownCPU, theirCPU,
		},
		About: fmt.Sprintf("%d transactions a second for %s, and the time from when each begins to commit until its delivery, which is to nowhere. Publisher and relay share nothing but the database. The first fifth of a run does not count.",
			s.Rate, s.Publishing),
		Contenders: contenders,
	}
}
