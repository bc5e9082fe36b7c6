package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/waybill-go/waybill/benchmarks/peers/database"
	"github.com/waybill-go/waybill/benchmarks/peers/peer"
	"github.com/waybill-go/waybill/benchmarks/peers/receiver"
	"github.com/waybill-go/waybill/benchmarks/result"
)

// stopLimit is how long a relay may take to stop.
const stopLimit = time.Minute

// drain is the work of delivering a backlog to a receiver.
type drain struct {
	relay   peer.Relay
	to      receiver.Config
	backlog int
	limit   time.Duration
}

func (d drain) contender() Contender {
	return Contender{Name: d.relay.Name, Configuration: d.relay.Configuration, Lossy: d.relay.Lossy, Run: d.run}
}

func (d drain) run(ctx context.Context, server *database.Server) (_ Sample, err error) {
	dsn, drop, err := filled(ctx, server, d.relay.Outbox, d.backlog)
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	return d.runOn(ctx, server, dsn)
}

// runOn drains the database at dsn, which holds the backlog.
func (d drain) runOn(ctx context.Context, server *database.Server, dsn string) (_ Sample, err error) {
	d.to.Orders = d.backlog
	n := d.backlog
	to, err := receiver.New(ctx, d.to)
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()

	all := to.Expect(n)
	m := newMeter(ctx, server)
	relay := start(ctx, d.relay, dsn, to.Destination())
	defer func() { _ = relay.stop() }() // stopped before, unless something failed
	sample := Sample{}
	if sample.Complete, err = relay.await(ctx, all, d.limit); err != nil {
		return sample, err
	}
	arrived := to.Arrived()
	took, metrics := m.stop(ctx, arrived)
	metrics["rate"] = float64(arrived) / took.Seconds()
	sample.Metrics = metrics
	if err := relay.stop(); err != nil {
		return sample, err
	}
	return sample, sample.judge(ctx, to, n, d.relay, dsn)
}

// judge adds to the sample what became of n orders, from the receiver's check and the outbox.
func (s *Sample) judge(ctx context.Context, r *receiver.Receiver, n int, relay peer.Relay, dsn string) (err error) {
	if s.Check, err = r.Check(ctx, n); err != nil {
		return err
	}
	if s.Check.Unknown > 0 {
		return fmt.Errorf("%d arrivals are not orders of this run", s.Check.Unknown)
	}
	missing, pending := s.Check.Lost, int64(0)
	switch {
	case !relay.Bare:
		left, err := relay.Outbox.Pending(ctx, dsn)
		if err != nil {
			return fmt.Errorf("count what is pending: %w", err)
		}
		pending = int64(left)
	case !s.Complete:
		pending = missing
	}
	s.Check.Lost, s.Check.Unsettled = max(0, missing-pending), max(0, pending-missing)
	return nil
}

// running is a relay that was started.
type running struct {
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // set before ended is closed
}

func start(ctx context.Context, relay peer.Relay, dsn string, to receiver.Destination) *running {
	ctx, cancel := context.WithCancel(ctx)
	r := &running{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		err := relay.Deliver(ctx, dsn, to)
		if stopped := relay.Bare && ctx.Err() != nil; err != nil && !stopped { // stopping a limit is not a failure
			r.err = fmt.Errorf("%s: %w", relay.Name, err)
		}
	}()
	return r
}

// stop stops the relay and waits until it has ended. Further calls return the same.
func (r *running) stop() error {
	r.cancel()
	select {
	case <-r.ended:
		return r.err
	case <-time.After(stopLimit):
		return fmt.Errorf("did not stop within %s", stopLimit)
	}
}

// await waits until all orders have arrived, the relay has ended or the limit has passed. It
// returns whether all have arrived.
func (r *running) await(ctx context.Context, all <-chan struct{}, limit time.Duration) (complete bool, err error) {
	select {
	case <-all:
		return true, nil
	case <-r.ended:
		select {
		case <-all:
			return true, nil
		default:
			return false, r.err
		}
	case <-time.After(limit):
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// drains returns a contender for each relay.
func drains(to receiver.Config, backlog int, limit time.Duration, relays ...peer.Relay) (list []Contender) {
	for _, r := range relays {
		list = append(list, drain{r, to, backlog, limit}.contender())
	}
	return list
}

var drainMetrics = []result.Quantity{rate, ownCPU, theirCPU}

func nowhere(s Sizes) Scenario {
	to := receiver.Config{Kind: receiver.Nowhere, InFlight: s.InFlight}
	return Scenario{
		Name: "drain-nowhere", Title: "Draining a backlog to nowhere", Metrics: drainMetrics,
		About: fmt.Sprintf("%s orders are pending when the relay starts; a delivery is a function call that counts. A run takes at most %s.", n(s.Backlog), s.Limit),
		Contenders: drains(to, s.Backlog, s.Limit,
			waybillDefault(), waybillSingle(s.InFlight), waybillBatches(),
			watermillDefault(), watermillTuned(), riverDefault(), riverTuned(),
			peer.Textbook(), peer.SkipLocked(), peer.KeysetLimit()),
	}
}

func kafka(s Sizes) Scenario {
	return kafkaTo(s, "drain-kafka", "Draining a backlog to Kafka", s.Backlog, receiver.Config{},
		fmt.Sprintf("%s orders go to a broker inside the process (kfake, 6 partitions, acks=all). After the run everything that it stored is consumed and checked. A run takes at most %s.", n(s.Backlog), s.Limit))
}

func slowKafka(s Sizes) Scenario {
	const delay = 2 * time.Millisecond
	return kafkaTo(s, "drain-kafka-2ms", "Draining a backlog to Kafka, 2 ms away", s.SlowBacklog, receiver.Config{Delay: delay},
		fmt.Sprintf("The same with %s orders, and each response of the broker arrives %s later.", n(s.SlowBacklog), delay))
}

// RealKafka is the environment variable with the brokers of a real cluster, separated by commas.
const RealKafka = "WAYBILL_TEST_KAFKA"

func realKafka(s Sizes) Scenario {
	brokers := os.Getenv(RealKafka)
	about := fmt.Sprintf("The same with a real Apache Kafka, which runs in a separate process on the same machine. A run takes at most %s.", s.Limit)
	to := receiver.Config{Brokers: strings.Split(brokers, ",")}
	scenario := kafkaTo(s, "drain-kafka-real", "Draining a backlog to a real Kafka", s.Backlog, to, about)
	if brokers == "" {
		scenario.Lacks = RealKafka + " names no cluster; make bench-kafka starts one"
	}
	return scenario
}

// kafkaTo returns a scenario with these brokers, or with one inside the process, which may be slow.
func kafkaTo(s Sizes, name, title string, backlog int, to receiver.Config, about string) Scenario {
	to.Kind, to.InFlight = receiver.Kafka, s.InFlight
	return Scenario{
		Name: name, Title: title, Metrics: drainMetrics, About: about,
		Contenders: drains(to, backlog, s.Limit,
			waybillDefault(),
			watermillDefault(), watermillTuned(), riverDefault(), riverTuned(),
			peer.Textbook(), peer.SkipLocked(), peer.FranzGoLimit()),
	}
}

func http(s Sizes) Scenario {
	return httpScenario(s, "drain-http", "Draining a backlog to HTTP", 0,
		fmt.Sprintf("%s orders are POSTed to a server inside the process, which answers 200 at once, with up to %s in flight. A run takes at most %s.", n(s.SlowBacklog), n(s.HTTP), s.Limit))
}

func slowHTTP(s Sizes) Scenario {
	const delay = 5 * time.Millisecond
	return httpScenario(s, "drain-http-5ms", "Draining a backlog to HTTP, 5 ms per response", delay,
		fmt.Sprintf("The same with a server that takes %s to answer: %s in flight allow at most %s/s.", delay, n(s.HTTP), n(s.HTTP*int(time.Second/delay))))
}

func httpScenario(s Sizes, name, title string, delay time.Duration, about string) Scenario {
	to := receiver.Config{Kind: receiver.HTTP, InFlight: s.HTTP, Delay: delay}
	return Scenario{
		Name: name, Title: title, Metrics: drainMetrics, About: about,
		Contenders: drains(to, s.SlowBacklog, s.Limit,
			waybillSingle(s.HTTP),
			watermillDefault(), watermillTuned(), riverDefault(), riverTuned(),
			peer.Textbook(), peer.SkipLocked(), peer.HTTPLimit()),
	}
}
