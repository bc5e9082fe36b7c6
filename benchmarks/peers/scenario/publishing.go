package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	inside "github.com/waybill-go/waybill/benchmarks/receiver"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/benchmarks/peers/database"
	"github.com/waybill-go/waybill/benchmarks/peers/peer"
	"github.com/waybill-go/waybill/benchmarks/peers/receiver"
	"github.com/waybill-go/waybill/benchmarks/result"
)

// maxRate is an upper bound of transactions/s, above what any machine reaches.
const maxRate = 100_000

// publish runs transactions with all clients at full speed for s.Publishing, and returns their
// number.
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

// recording is a publisher that records the times of its transactions.
type recording struct {
	peer.Publisher
	made  *inside.Made
	waits *inside.Waits
}

func (p recording) Publish(ctx context.Context, number int) (committing time.Time, err error) {
	p.made.Begin(number)
	committing, err = p.Publisher.Publish(ctx, number)
	p.made.End(number)
	if err == nil {
		p.waits.Committed(number, committing)
	}
	return committing, err
}

// onEmpty lends an empty outbox and a publisher for one run.
func onEmpty(ctx context.Context, server *database.Server, o peer.Outbox, s Sizes, run func(dsn string, from peer.Publisher) (Sample, error)) (_ Sample, err error) {
	dsn, drop, err := filled(ctx, server, o, 0)
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	from, err := o.Open(ctx, dsn, s.Clients)
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	return run(dsn, from)
}

// writers is a contender that publishes without a relay.
type writers struct {
	outbox peer.Outbox
	sizes  Sizes
	// insert, if set, is the same outbox without what happens after the commit: the server's processor time
	// for its INSERT is measured too.
	insert peer.Outbox
}

func (w writers) run(ctx context.Context, server *database.Server) (Sample, error) {
	return onEmpty(ctx, server, w.outbox, w.sizes, func(dsn string, to peer.Publisher) (Sample, error) {
		m := newMeter(ctx, server)
		n, err := publish(ctx, to, w.sizes)
		took, metrics := m.stop(ctx, n)
		if err != nil {
			return Sample{}, err
		}
		metrics[published.Name] = float64(n) / took.Seconds()
		if w.insert != nil && w.sizes.Session > 0 {
			if micros, ok, err := measureInsert(ctx, server, w.insert, w.sizes); err != nil {
				return Sample{}, err
			} else if ok {
				metrics[insertCPU.Name] = micros
			}
		}
		sample := Sample{Metrics: metrics, Complete: true}
		if _, none := w.outbox.(peer.Business); none {
			return sample, nil
		}
		return sample, sample.judgeUnread(ctx, w.outbox, n, dsn)
	})
}

// judgeUnread adds to the sample how many of n orders are not in an outbox that nothing reads.
func (s *Sample) judgeUnread(ctx context.Context, o peer.Outbox, n int, dsn string) error {
	stored, err := o.Pending(ctx, dsn)
	s.Check = result.Check{Expected: int64(n), Arrived: int64(stored), Lost: max(0, int64(n-stored))}
	return err
}

var published = result.Quantity{Name: "published", Unit: "transactions/s", Better: "higher", Title: "transactions/s"}

func transactions(s Sizes) Scenario {
	contender := func(name, configuration string, o, insert peer.Outbox) Contender {
		return Contender{Name: name, Configuration: configuration, Run: writers{o, s, insert}.run}
	}
	metrics := []result.Quantity{published, ownCPU, theirCPU}
	about := fmt.Sprintf("%d clients run transactions for %s, each with one business INSERT and one notification. No relay runs. Each contender uses the driver that it is made for, and Waybill and the plain table use both.", s.Clients, s.Publishing)
	if s.Session > 0 {
		metrics = append(metrics, insertCPU)
		about += fmt.Sprintf(" The processor time for the INSERT is measured afterwards, in a single session: turns of %s transactions with and without a notification alternate, %d of each; the figure is the difference of the least times, for a transaction.", n(s.Session), insertTurns)
	}
	return Scenario{
		Name: "transactions", Title: "What publishing costs a transaction", Metrics: metrics, About: about,
		Contenders: []Contender{
			contender("Limit: business INSERT, lib/pq", "nothing published", peer.Business{}, nil),
			contender("Raw INSERT into Waybill's outbox", "one more INSERT in the transaction; lib/pq", peer.Waybill{Raw: true}, peer.Waybill{Raw: true}),
			contender("Waybill", "outbox.Publish in the transaction, NOTIFY after the commit, coalesced; lib/pq; the processor time for the INSERT is without the NOTIFY, which has a transaction of its own", peer.Waybill{}, peer.Waybill{Silent: true}),
			contender("Waybill, prepared", "as Waybill; the INSERT is prepared (Config.Prepare); lib/pq", peer.Waybill{Prepare: true}, peer.Waybill{Silent: true, Prepare: true}),
			contender("Watermill", "forwarder.Publisher over the SQL publisher, made for each transaction; lib/pq", peer.Watermill{}, peer.Watermill{}),
			contender("Plain table", "one more INSERT in the transaction, as for the textbook's and the home-made outbox; lib/pq", peer.Table{}, peer.Table{}),
			contender("Plain table, prepared", "as the plain table; the INSERT is prepared; lib/pq", peer.Table{Prepare: true}, peer.Table{Prepare: true}),
			contender("Limit: business INSERT, pgx", "nothing published", peer.Business{Pgx: true}, nil),
			contender("Waybill, pgx", "as Waybill; pgx", peer.Waybill{Pgx: true}, nil),
			contender("Waybill, pgxbatch", "as Waybill; a transaction of pgxbatch, whose INSERT travels with the COMMIT; pgx", peer.Waybill{Pgx: true, Batch: true}, nil),
			contender("Raw INSERT into Waybill's outbox, pgx.Batch", "the publisher's INSERT by hand, sent with the COMMIT as a pgx.Batch; pgx", peer.Waybill{Pgx: true, Raw: true}, nil),
			contender("Plain table, pgx.Batch", "one more INSERT, sent with the COMMIT as a pgx.Batch; pgx", peer.Table{Batch: true}, nil),
			contender("River", "InsertTx; pgx", peer.River{}, nil),
		},
	}
}

// both is a contender that publishes and delivers at the same time.
type both struct {
	relay peer.Relay
	sizes Sizes
}

func (b both) run(ctx context.Context, server *database.Server) (Sample, error) {
	return onEmpty(ctx, server, b.relay.Outbox, b.sizes, func(dsn string, from peer.Publisher) (Sample, error) {
		return b.runOn(ctx, server, dsn, from)
	})
}

func (b both) runOn(ctx context.Context, server *database.Server, dsn string, from peer.Publisher) (sample Sample, err error) {
	capacity := maxRate * int(b.sizes.Publishing/time.Second+1)
	made, waits := inside.NewMade(capacity), inside.NewWaits(0)
	to, err := receiver.New(ctx, receiver.Config{Kind: receiver.Nowhere, InFlight: b.sizes.InFlight, Made: made, Waits: waits})
	if err != nil {
		return Sample{}, err
	}
	relay := start(ctx, b.relay, dsn, to.Destination())
	defer func() { _ = relay.stop() }() // stopped before, unless something failed

	warm := time.AfterFunc(time.Duration(warmUp*float64(b.sizes.Publishing)), func() { waits.Restart(0) })
	defer warm.Stop()
	m := newMeter(ctx, server)
	n, err := publish(ctx, recording{from, made, waits}, b.sizes)
	if err != nil {
		return Sample{}, err
	}
	arrived := to.Arrived()
	took, metrics := m.stop(ctx, n)
	metrics[published.Name] = float64(n) / took.Seconds()
	metrics["rate"] = float64(arrived) / took.Seconds()
	behind := time.Now()
	if sample.Complete, err = relay.await(ctx, to.Expect(n), b.sizes.Limit); err != nil {
		return sample, err
	}
	metrics["catch_up"] = time.Since(behind).Seconds()
	metrics[p50.Name], metrics[p99.Name] = waits.Percentile(50), waits.Percentile(99)
	sample.Metrics = metrics
	if err := relay.stop(); err != nil {
		return sample, err
	}
	return sample, sample.judge(ctx, to, n, b.relay, dsn)
}

// OfNoRelay is the rate of a contender as a share of the rate without a relay.
var OfNoRelay = result.Quantity{Name: "of_no_relay", Better: "higher", Title: "of no relay"}

func together(s Sizes) Scenario {
	var contenders []Contender
	alone := make(map[peer.Outbox]string) // names of the contenders without a relay
	for _, o := range []struct {
		name string
		peer.Outbox
	}{
		{"Waybill", peer.Waybill{}}, {"Waybill without NOTIFY", peer.Waybill{Silent: true}}, {"Watermill", peer.Watermill{}},
		{"River", peer.River{}}, {"plain table", peer.Table{}},
	} {
		alone[o.Outbox] = "Limit: " + o.name + ", no relay"
		contenders = append(contenders, Contender{
			Name: alone[o.Outbox], Configuration: "publishes as with a relay, and nothing is delivered", Run: writers{o.Outbox, s, nil}.run,
		})
	}
	for _, r := range []peer.Relay{waybillSingle(s.InFlight), waybillPolling(), watermillTuned(), riverTuned(), peer.SkipLocked()} {
		contenders = append(contenders, Contender{Name: r.Name, Configuration: r.Configuration, Alone: alone[r.Outbox], Run: both{r, s}.run})
	}
	return Scenario{
		Name: "together", Title: "Publishing and delivering together",
		Metrics: []result.Quantity{
			published, {Name: "rate", Unit: "deliveries/s", Better: "higher", Title: "deliveries/s meanwhile"}, {Name: "catch_up", Unit: "s", Better: "lower", Title: "seconds to the last delivery"},
			p50, p99, ownCPU, theirCPU,
		},
		About: fmt.Sprintf("%d clients publish at full speed for %s while the relay delivers to nowhere; then it gets up to %s for the rest. "+
			"The latency is the time from the beginning of a commit to the delivery, without the first fifth of the run. The last column is the rate of transactions as a share of that of the same publisher without a relay.",
			s.Clients, s.Publishing, s.Limit),
		Contenders: contenders,
	}
}
