package scenario

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waybill-go/waybill/benchmarks/child"
	"github.com/waybill-go/waybill/benchmarks/database"
	"github.com/waybill-go/waybill/benchmarks/peer"
	"github.com/waybill-go/waybill/benchmarks/receiver"
)

const (
	stageTopic      = "orders"
	stagePartitions = 12 // divisible among 1, 2 and 4 processes
	stageDelay      = 20 * time.Millisecond
	stageThreshold  = 32
	// manyPartners is the number of partners that each get every order.
	manyPartners      = 10
	partnersThreshold = 8
	// joinLimit is how long the processes may take to start, and joinLook the pause between two looks.
	joinLimit = time.Minute
	joinLook  = 20 * time.Millisecond
)

// staged is a second stage: processes that deliver the records of a topic by HTTP.
type staged struct {
	records   int
	processes int
	threshold int  // of each process, for each partner
	partners  int  // partners whose deliveries count
	others    int  // further partners
	dead      bool // nothing listens on the ports of the others
}

func secondStage(s Sizes) Scenario {
	perProcess := stageThreshold * int(time.Second/stageDelay)
	scenario := Scenario{
		Name: "second-stage", Title: "Waybill: a second stage behind Kafka", Metrics: []Metric{rate, ownCPU, theirCPU}, Once: true,
		About: english.Sprintf("A topic of %d partitions (kfake) holds %d orders, as the kafka sink writes them. Forwarders in separate processes deliver them to an HTTP server that takes %s to answer; they share a PostgreSQL for their cursors. "+
			"A process has %d slots, so it can make at most %d/s. With ten partners, one process with %d slots for each partner delivers %d orders to all ten, and the deliveries to nine of them count. If the tenth is dead, nothing listens on its port. "+
			"The time starts when all processes are ready.",
			stagePartitions, s.Staged, stageDelay, stageThreshold, perProcess, partnersThreshold, s.Staged/8),
	}
	add := func(name, configuration string, work staged) {
		scenario.Contenders = append(scenario.Contenders, Contender{Name: name, Configuration: configuration, Run: work.run})
	}
	for _, n := range []int{1, 2, 4} {
		name := english.Sprintf("Waybill, %d processes", n)
		if n == 1 {
			name = "Waybill, 1 process"
		}
		add(name, fmt.Sprintf("threshold %d in each, single deliveries, LISTEN; all else default", stageThreshold),
			staged{records: s.Staged, processes: n, threshold: stageThreshold, partners: 1})
	}
	for _, dead := range []bool{false, true} {
		tenth := "lives"
		if dead {
			tenth = "is dead"
		}
		add("Waybill, 9 partners of 10, the tenth "+tenth, fmt.Sprintf("threshold %d for each partner, single deliveries, LISTEN; all else default", partnersThreshold),
			staged{records: s.Staged / 8, processes: 1, threshold: partnersThreshold, partners: manyPartners - 1, others: 1, dead: dead})
	}
	return scenario
}

func (w staged) run(ctx context.Context, server *database.Server) (_ Sample, err error) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(stagePartitions, stageTopic))
	if err != nil {
		return Sample{}, err
	}
	defer cluster.Close()
	dsn, drop, err := server.Copy(ctx, "second stage", func(context.Context, string) error { return nil })
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	partners, err := w.open()
	defer func() { err = errors.Join(err, partners.close()) }()
	if err != nil {
		return Sample{}, err
	}
	stage := peer.Stage{DSN: dsn, Brokers: cluster.ListenAddrs(), Topic: stageTopic, Partners: partners.urls, Threshold: w.threshold}
	if err := peer.WriteStage(ctx, stage.Brokers, stage.Topic, w.records); err != nil {
		return Sample{}, err
	}
	if err := stage.Migrate(ctx); err != nil {
		return Sample{}, err
	}
	return w.measure(ctx, server, stage, partners)
}

// measure starts the processes, waits until they have delivered everything, and stops them.
func (w staged) measure(ctx context.Context, server *database.Server, stage peer.Stage, partners *partners) (sample Sample, err error) {
	stages, err := child.StartStages(stage, w.processes)
	if err != nil {
		return sample, err
	}
	defer func() { err = errors.Join(err, stages.Stop()) }() // does nothing if they are stopped
	if err := w.join(ctx, stage, stages); err != nil {
		return sample, err
	}
	m := newMeter(ctx, server, stages.IDs()...)
	if err := stage.Resume(ctx); err != nil {
		return sample, err
	}
	sample.Complete, err = partners.await(ctx, w.records, stages.Ended())
	n := w.records * w.partners
	took, metrics := m.stop(ctx, partners.arrived())
	if err := errors.Join(err, stages.Stop()); err != nil {
		return sample, err
	}
	metrics["rate"] = float64(partners.arrived()) / took.Seconds()
	sample.Metrics = metrics
	v, err := partners.verdict(ctx)
	if err != nil {
		return sample, err
	}
	pending, err := stage.Pending(ctx, w.partners)
	if err != nil {
		return sample, fmt.Errorf("count what is pending: %w", err)
	}
	return sample, sample.count(v, n, pending)
}

// join waits until all processes work together.
func (w staged) join(ctx context.Context, stage peer.Stage, stages *child.Stages) error {
	ctx, cancel := context.WithTimeoutCause(ctx, joinLimit, fmt.Errorf("not all processes were ready within %s", joinLimit))
	defer cancel()
	look := time.NewTicker(joinLook)
	defer look.Stop()
	for {
		if n, err := stage.Forwarders(ctx); err != nil || n == w.processes {
			return err
		}
		select {
		case <-look.C:
		case <-stages.Ended():
			return errors.New("a process of the second stage has ended")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// partners are HTTP servers. Only the deliveries to watched ones count.
type partners struct {
	urls    []string
	watched []receiver.Receiver
	all     []receiver.Receiver
}

// open starts the partners that are not dead. Close the returned partners also after an error.
func (w staged) open() (*partners, error) {
	p := &partners{}
	for number := range w.partners + w.others {
		if number >= w.partners && w.dead {
			url, err := deadURL()
			if err != nil {
				return p, err
			}
			p.urls = append(p.urls, url)
			continue
		}
		to, err := receiver.New(receiver.Config{Kind: receiver.HTTP, Delay: stageDelay, InFlight: w.threshold, Capacity: w.records, Orders: w.records})
		if err != nil {
			return p, err
		}
		p.all, p.urls = append(p.all, to), append(p.urls, to.Destination().URL)
	}
	p.watched = p.all[:w.partners]
	return p, nil
}

// deadURL returns a URL with a port on which nothing listens.
func deadURL() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return "http://" + listener.Addr().String() + "/orders", listener.Close()
}

// await waits until all watched partners have n orders, a process has ended or the time is up. It
// returns whether they have all orders.
func (p *partners) await(ctx context.Context, n int, ended <-chan struct{}) (complete bool, err error) {
	limit := time.NewTimer(unlimited)
	defer limit.Stop()
	for _, r := range p.watched {
		select {
		case <-r.Expect(n):
		case <-ended:
			return false, nil // Stop returns the reason
		case <-limit.C:
			return false, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	return true, nil
}

func (p *partners) arrived() (n int) {
	for _, r := range p.watched {
		n += r.Arrived()
	}
	return n
}

func (p *partners) verdict(ctx context.Context) (total receiver.Verdict, err error) {
	for _, r := range p.watched {
		v, err := r.Verdict(ctx)
		if err != nil {
			return total, err
		}
		total.Distinct, total.Repeats = total.Distinct+v.Distinct, total.Repeats+v.Repeats
		total.Foreign, total.Swapped = total.Foreign+v.Foreign, total.Swapped+v.Swapped
	}
	return total, nil
}

func (p *partners) close() error {
	var problems []error
	for _, r := range p.all {
		problems = append(problems, r.Close())
	}
	return errors.Join(problems...)
}
