package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/benchmarks/database"
	"github.com/waybill-go/waybill/benchmarks/peer"
	"github.com/waybill-go/waybill/benchmarks/receiver"
)

// maxRate is more transactions a second than there can be.
const maxRate = 100_000

// publish makes transactions with all clients at full speed for some time, and
// returns how many there were.
func publish(ctx context.Context, to peer.Publisher, s Sizes) (n int, err error) {
	var next atomic.Int64
	until := time.Now().Add(s.Publishing)
	group, ctx := errgroup.WithContext(ctx)
	for range s.Clients {
		group.Go(func() error {
			for time.Now().Before(until) {
				if _, err := to.Publish(ctx, int(next.Add(1))-1); err != nil {
					return fmt.Errorf("publish: %w", err)
				}
			}
			return nil
		})
	}
	err = group.Wait()
	return int(next.Load()), err
}

// empty returns a database with an outbox that has nothing in it.
func empty(ctx context.Context, server *database.Server, o peer.Outbox) (dsn string, drop func() error, err error) {
	return server.Copy(ctx, key(o, 0), o.Migrate)
}

// writers is a contender that publishes without a relay.
type writers struct {
	outbox peer.Outbox
	sizes  Sizes
}

func (w writers) run(ctx context.Context, server *database.Server) (sample Sample, err error) {
	dsn, drop, err := empty(ctx, server, w.outbox)
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	to, err := w.outbox.Open(ctx, dsn, w.sizes.Clients)
	if err != nil {
		return Sample{}, err
	}
	m := newMeter(ctx, server)
	n, err := publish(ctx, to, w.sizes)
	took, metrics := m.stop(ctx)
	if err := errors.Join(err, to.Close()); err != nil {
		return Sample{}, err
	}
	metrics["published"] = float64(n) / took.Seconds()
	sample = Sample{Metrics: metrics, Complete: true}
	if _, none := w.outbox.(peer.Business); !none {
		stored, err := w.outbox.Pending(ctx, dsn)
		if err != nil {
			return sample, err
		}
		sample.Lost = max(0, n-stored)
	}
	return sample, nil
}

var published = Metric{Key: "published", Title: "transactions/s"}

func transactions(s Sizes) Scenario {
	contender := func(name, configuration string, o peer.Outbox) Contender {
		return Contender{Name: name, Configuration: configuration, Run: writers{o, s}.run}
	}
	return Scenario{
		Name: "transactions", Title: "What publishing costs a transaction", Metrics: []Metric{published, ownCPU, theirCPU},
		About: fmt.Sprintf("%d clients make transactions with one business INSERT each, and one notification, for %s. No relay runs. Each goes through the driver that it is made for, so the transaction without a notification stands there for both.",
			s.Clients, s.Publishing),
		Contenders: []Contender{
			contender("Limit: business INSERT, lib/pq", "nothing published", peer.Business{}),
			contender("Raw INSERT into Waybill's outbox", "one more INSERT in the transaction; lib/pq", peer.Waybill{Raw: true}),
			contender("Waybill", "outbox.Publish in the transaction, NOTIFY after the commit, coalesced; lib/pq", peer.Waybill{}),
			contender("Watermill", "forwarder.Publisher over the SQL publisher, made for each transaction; lib/pq", peer.Watermill{}),
			contender("Limit: business INSERT, pgx", "nothing published", peer.Business{Pgx: true}),
			contender("River", "InsertTx; pgx", peer.River{}),
		},
	}
}

// both is a contender that publishes and delivers at the same time.
type both struct {
	relay peer.Relay
	sizes Sizes
}

func (b both) run(ctx context.Context, server *database.Server) (sample Sample, err error) {
	dsn, drop, err := empty(ctx, server, b.relay.Outbox)
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	from, err := b.relay.Outbox.Open(ctx, dsn, b.sizes.Clients)
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to, err := receiver.New(receiver.Config{
		Kind: receiver.Nowhere, InFlight: b.sizes.InFlight, Capacity: maxRate * int(b.sizes.Publishing/time.Second+1),
	})
	if err != nil {
		return Sample{}, err
	}
	relay := start(ctx, b.relay, dsn, to.Destination())
	defer func() { _ = relay.stop() }() // stopped before, unless something failed

	m := newMeter(ctx, server)
	n, err := publish(ctx, from, b.sizes)
	if err != nil {
		return Sample{}, err
	}
	arrived := to.Arrived()
	took, metrics := m.stop(ctx)
	metrics["published"] = float64(n) / took.Seconds()
	metrics["rate"] = float64(arrived) / took.Seconds()
	behind := time.Now()
	if sample.Complete, err = relay.await(ctx, to.Expect(n), b.sizes.Limit); err != nil {
		return sample, err
	}
	metrics["catch_up"] = time.Since(behind).Seconds()
	sample.Metrics = metrics
	if err := relay.stop(); err != nil {
		return sample, err
	}
	return sample, sample.judge(ctx, to, n, b.relay, dsn)
}

func together(s Sizes) Scenario {
	contenders := []Contender{
		{Name: "Limit: Waybill, no relay", Configuration: "as Waybill below, and nobody delivers", Run: writers{peer.Waybill{}, s}.run},
		{Name: "Limit: River, no relay", Configuration: "as River below, and nobody delivers", Run: writers{peer.River{}, s}.run},
		{Name: "Limit: plain table, no relay", Configuration: "as the home-made one below, and nobody delivers", Run: writers{peer.Table{}, s}.run},
	}
	for _, r := range []peer.Relay{waybillSingle(s.InFlight), waybillPolling(), watermillTuned(), riverTuned(), peer.SkipLocked()} {
		contenders = append(contenders, Contender{Name: r.Name, Configuration: r.Configuration, Run: both{r, s}.run})
	}
	return Scenario{
		Name: "together", Title: "Publishing and delivering together",
		Metrics: []Metric{published, {Key: "rate", Title: "deliveries/s meanwhile"}, {Key: "catch_up", Title: "seconds to the last one", Decimals: 2}, ownCPU, theirCPU},
		About: fmt.Sprintf("%d clients publish at full speed for %s while the relay delivers to nowhere; then it gets up to %s for what is left.",
			s.Clients, s.Publishing, s.Limit),
		Contenders: contenders,
	}
}
