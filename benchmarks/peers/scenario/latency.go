package scenario

import (
	"context"
	"fmt"
	"time"

	inside "github.com/waybill-go/waybill/benchmarks/receiver"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/benchmarks/peers/database"
	"github.com/waybill-go/waybill/benchmarks/peers/peer"
	"github.com/waybill-go/waybill/benchmarks/peers/receiver"
	"github.com/waybill-go/waybill/benchmarks/result"
)

// lags is a contender whose latency is measured while orders are published at a steady rate.
type lags struct {
	relay peer.Relay
	sizes Sizes
	rate  int // transactions/s
}

// warmUp is the share of a run whose latencies do not count: connections are opened and
// statements prepared.
const warmUp = 0.2

func (l lags) contender() Contender {
	return Contender{Name: l.relay.Name, Configuration: l.relay.Configuration, Lossy: l.relay.Lossy, Run: l.run}
}

func (l lags) run(ctx context.Context, server *database.Server) (Sample, error) {
	return onEmpty(ctx, server, l.relay.Outbox, l.sizes, func(dsn string, from peer.Publisher) (Sample, error) {
		return l.runOn(ctx, server, dsn, from)
	})
}

func (l lags) runOn(ctx context.Context, server *database.Server, dsn string, from peer.Publisher) (sample Sample, err error) {
	n := max(l.sizes.Fewest, int(l.sizes.Publishing.Seconds()*float64(l.rate)))
	made, waits := inside.NewMade(n), inside.NewWaits(int(warmUp*float64(n)))
	to, err := receiver.New(ctx, receiver.Config{Kind: receiver.Nowhere, InFlight: l.sizes.InFlight, Made: made, Waits: waits})
	if err != nil {
		return Sample{}, err
	}
	relay := start(ctx, l.relay, dsn, to.Destination())
	defer func() { _ = relay.stop() }() // stopped before, unless something failed

	m := newMeter(ctx, server)
	began := time.Now()
	err = publishSteadily(ctx, recording{from, made, waits}, n, l.rate, l.sizes.Clients)
	if err != nil {
		return Sample{}, err
	}
	took := time.Since(began)
	if sample.Complete, err = relay.await(ctx, to.Expect(n), l.sizes.Limit); err != nil {
		return sample, err
	}
	_, sample.Metrics = m.stop(ctx, to.Arrived()-int(warmUp*float64(n)))
	sample.Metrics[published.Name] = float64(n) / took.Seconds()
	if err := relay.stop(); err != nil {
		return sample, err
	}
	for name, p := range map[string]float64{"p50": 50, "p95": 95, "p99": 99, "max": 100} {
		sample.Metrics[name] = waits.Percentile(p)
	}
	return sample, sample.judge(ctx, to, n, l.relay, dsn)
}

// publishSteadily runs n transactions at a steady rate. A slow transaction does not delay the
// later ones unless all clients are in use.
func publishSteadily(ctx context.Context, to peer.Publisher, n, rate, clients int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(clients)
	began := time.Now()
	for number := range n {
		due := began.Add(time.Duration(number) * time.Second / time.Duration(rate))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return group.Wait()
		}
		group.Go(func() error {
			_, err := to.Publish(ctx, number)
			return err
		})
	}
	return group.Wait()
}

// The percentiles of the time from the beginning of a commit to the arrival.
var (
	p50 = result.Quantity{Name: "p50", Unit: "ms", Better: "lower", Title: "p50, ms"}
	p95 = result.Quantity{Name: "p95", Unit: "ms", Better: "lower", Title: "p95, ms"}
	p99 = result.Quantity{Name: "p99", Unit: "ms", Better: "lower", Title: "p99, ms"}
	top = result.Quantity{Name: "max", Unit: "ms", Better: "lower", Title: "max, ms"}
)

var latencyMetrics = []result.Quantity{p50, p95, p99, top, published, ownCPU, theirCPU}

// usualRate is the rate of the scenario "latency", in transactions/s. It has all contenders in all
// configurations.
const usualRate = 500

func latency(s Sizes, rate int) Scenario {
	relays := []peer.Relay{waybillSingle(s.InFlight), waybillPolling(), watermillTuned(), riverTuned(), peer.Textbook(), peer.SkipLocked()}
	scenario := Scenario{
		Name: "latency", Title: "From the commit to the sink", Metrics: latencyMetrics,
		About: fmt.Sprintf("%s transactions a second for %s, and at least %s. The latency is the time from the beginning of a commit to the delivery, which is to nowhere. Publisher and relay share only the database. The first fifth of a run does not count.", n(rate), s.Publishing, n(s.Fewest)),
	}
	if rate == usualRate {
		relays = append(relays, watermillDefault(), riverDefault())
	}
	if rate != usualRate {
		scenario.Name += fmt.Sprintf("-%d", rate)
		scenario.Title += fmt.Sprintf(", %s/s", n(rate))
	}
	for _, r := range relays {
		scenario.Contenders = append(scenario.Contenders, lags{relay: r, sizes: s, rate: rate}.contender())
	}
	return scenario
}
