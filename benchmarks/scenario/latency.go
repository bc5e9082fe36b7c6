package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/benchmarks/database"
	"github.com/waybill-go/waybill/benchmarks/peer"
	"github.com/waybill-go/waybill/benchmarks/receiver"
)

// lags is a contender whose latency is measured while orders are published at a steady rate.
type lags struct {
	relay   peer.Relay
	sizes   Sizes
	rate    int     // transactions/s
	trouble trouble // nil: none
}

// warmUp is the share of a run whose latencies do not count: connections are opened and
// statements prepared.
const warmUp = 0.2

func (l lags) contender() Contender {
	return Contender{Name: l.relay.Name, Configuration: l.relay.Configuration, Lossy: l.relay.Lossy, Run: l.run}
}

func (l lags) run(ctx context.Context, server *database.Server) (Sample, error) {
	return onEmpty(ctx, server, l.relay.Outbox, l.sizes, func(dsn string, from peer.Publisher) (_ Sample, err error) {
		over, err := l.trouble.begin(ctx, dsn)
		if err != nil {
			return Sample{}, err
		}
		defer func() { err = errors.Join(err, over()) }()
		return l.runOn(ctx, server, dsn, from)
	})
}

func (l lags) runOn(ctx context.Context, server *database.Server, dsn string, from peer.Publisher) (sample Sample, err error) {
	n := max(l.sizes.Fewest, int(l.sizes.Publishing.Seconds()*float64(l.rate)))
	noted := receiver.NewMade(n)
	to, tally := receiver.NewTimed(receiver.Config{InFlight: l.sizes.InFlight, Capacity: n, Made: noted})
	relay := start(ctx, l.relay, dsn, to.Destination())
	defer func() { _ = relay.stop() }() // stopped before, unless something failed

	m := newMeter(ctx, server)
	began := time.Now()
	made, err := publishSteadily(ctx, noting{from, noted}, n, l.rate, l.sizes.Clients)
	if err != nil {
		return Sample{}, err
	}
	took := time.Since(began)
	if sample.Complete, err = relay.await(ctx, to.Expect(n), l.sizes.Limit); err != nil {
		return sample, err
	}
	_, sample.Metrics = m.stop(ctx, n)
	sample.Metrics["published"] = float64(n) / took.Seconds()
	if err := relay.stop(); err != nil {
		return sample, err
	}
	addTransactions(sample.Metrics, made)
	addLatencies(sample.Metrics, made, tally)
	return sample, sample.judge(ctx, to, n, l.relay, dsn)
}

// transaction has the times of a business transaction.
type transaction struct {
	committing time.Time     // beginning of the commit
	took       time.Duration // from the beginning of the transaction to the end of the commit
}

// publishSteadily runs n transactions at a steady rate. A slow transaction does not delay the
// later ones unless all clients are in use.
func publishSteadily(ctx context.Context, to peer.Publisher, n, rate, clients int) (made []transaction, err error) {
	made = make([]transaction, n)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(clients)
	began := time.Now()
	for number := range n {
		due := began.Add(time.Duration(number) * time.Second / time.Duration(rate))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return nil, group.Wait()
		}
		group.Go(func() (err error) {
			begin := time.Now()
			made[number].committing, err = to.Publish(ctx, number)
			made[number].took = time.Since(begin)
			return err
		})
	}
	return made, group.Wait()
}

const transactionKey = "transaction"

// addTransactions adds the median duration of the transactions, in milliseconds.
func addTransactions(metrics map[string]float64, made []transaction) {
	var all []time.Duration
	for _, t := range made[int(warmUp*float64(len(made))):] {
		all = append(all, t.took)
	}
	slices.Sort(all)
	metrics[transactionKey] = float64(all[len(all)/2].Microseconds()) / 1000
}

func addLatencies(metrics map[string]float64, made []transaction, tally *receiver.Tally) {
	var all []time.Duration
	for number := int(warmUp * float64(len(made))); number < len(made); number++ {
		if at, ok := tally.Arrived(number); ok {
			all = append(all, at.Sub(made[number].committing))
		}
	}
	metrics[samplesKey] = float64(len(all))
	if len(all) == 0 {
		return
	}
	slices.Sort(all)
	for key, share := range map[string]float64{"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1} {
		metrics[key] = float64(all[min(int(share*float64(len(all))), len(all)-1)].Microseconds()) / 1000
	}
}

var latencyMetrics = []Metric{
	{Key: "p50", Title: "p50, ms", Decimals: 2}, {Key: "p95", Title: "p95, ms", Decimals: 2},
	{Key: "p99", Title: "p99, ms", Decimals: 2}, {Key: "max", Title: "max, ms", Decimals: 2}, published, ownCPU, theirCPU,
}

// usualRate is the rate of the scenario "latency", in transactions/s. It has all contenders in all
// configurations.
const usualRate = 500

func latency(s Sizes, rate int) Scenario {
	relays := []peer.Relay{waybillSingle(s.InFlight), waybillPolling(), watermillTuned(), riverTuned(), peer.Textbook(), peer.SkipLocked()}
	scenario := Scenario{
		Name: "latency", Title: "From the commit to the sink", Metrics: latencyMetrics,
		About: english.Sprintf("%d transactions a second for %s, and at least %d. The latency is the time from the beginning of a commit to the delivery, which is to nowhere. Publisher and relay share only the database. The first fifth of a run does not count.",
			rate, s.Publishing, s.Fewest),
	}
	if rate == usualRate {
		relays = append(relays, watermillDefault(), riverDefault())
	}
	if rate != usualRate {
		scenario.Name += fmt.Sprintf("-%d", rate)
		scenario.Title += english.Sprintf(", %d/s", rate)
	}
	for _, r := range relays {
		scenario.Contenders = append(scenario.Contenders, lags{relay: r, sizes: s, rate: rate}.contender())
	}
	return scenario
}
