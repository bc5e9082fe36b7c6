// Package receiver has the destinations of the comparison's deliveries: nowhere (a function that
// counts), a Kafka broker inside the process or a Kafka cluster outside it, and an HTTP server. Each
// counts what arrives, and reports which orders were repeated or out of order.
package receiver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/waybill-go/waybill/benchmarks/peers/workload"
	inside "github.com/waybill-go/waybill/benchmarks/receiver"
	"github.com/waybill-go/waybill/benchmarks/result"
)

// Kind is a kind of destination.
type Kind string

// The kinds.
const (
	Nowhere Kind = "nowhere"
	Kafka   Kind = "kafka"
	HTTP    Kind = "http"
)

// Destination is the address of a receiver. Fields of other kinds are empty.
type Destination struct {
	Kind Kind
	// InFlight is the most deliveries that may be in flight.
	InFlight int
	// Orders is the number of orders to deliver, for limits that make up their orders; 0 if it is
	// unknown.
	Orders int
	// Take is called with each payload, for the kind Nowhere.
	Take func(payload []byte)
	// Brokers and Topic are for the kind Kafka.
	Brokers []string
	Topic   string
	// URL accepts POST requests, for the kind HTTP.
	URL string
}

// Config of a receiver.
type Config struct {
	Kind     Kind
	InFlight int // copied to the Destination
	Orders   int // copied to the Destination
	// Brokers are the addresses of a Kafka cluster outside the process; none: a broker is started.
	Brokers []string
	// Delay is the time until each response, for HTTP and for a broker that is started.
	Delay time.Duration
	// Made records the transactions if orders are published while they arrive.
	Made *inside.Made
	// Waits measures the time until each arrival; nil: it is not measured.
	Waits *inside.Waits
}

// Receiver is a running destination.
type Receiver struct {
	to      Destination
	arrived *inside.Counter
	tally   *inside.Tally
	waits   *inside.Waits
	catchUp func(ctx context.Context) error // nil if arrivals are checked at once
	close   func() error
}

// New starts a receiver.
func New(ctx context.Context, c Config) (*Receiver, error) {
	r := &Receiver{to: Destination{Kind: c.Kind, InFlight: c.InFlight, Orders: c.Orders}, tally: inside.NewTally(workload.Keys, c.Made), waits: c.Waits}
	r.arrived, r.close = r.tally.Counter, func() error { return nil }
	switch c.Kind {
	case Nowhere:
		r.to.Take = r.take
		return r, nil
	case Kafka:
		return r, r.openKafka(ctx, c)
	case HTTP:
		return r, r.openHTTP(c)
	}
	return nil, fmt.Errorf("unknown kind of receiver %q", c.Kind)
}

func (r *Receiver) take(payload []byte) {
	number, known := workload.Number(payload)
	if first := r.tally.Note(number, known); first && r.waits != nil {
		r.waits.Arrived(number, time.Now())
	}
}

func (r *Receiver) openHTTP(c Config) error {
	server, err := inside.OpenWebhook(func(answer http.ResponseWriter, request *http.Request) {
		payload, err := io.ReadAll(request.Body)
		if err != nil {
			return // the client has disconnected
		}
		r.take(payload)
		if c.Delay > 0 {
			time.Sleep(c.Delay)
		}
		answer.WriteHeader(http.StatusOK)
	})
	if err != nil {
		return err
	}
	r.to.URL, r.close = server.URL, server.Close
	return nil
}

const (
	// countEvery is the interval at which the records of a topic are counted.
	countEvery = 2 * time.Millisecond
	// patience is how long a new topic may take until all its partitions have a leader.
	patience = 30 * time.Second
)

// openKafka counts the records of a new topic during the run. Afterwards all of them are consumed and
// checked.
func (r *Receiver) openKafka(ctx context.Context, c Config) error {
	stop := func() {}
	r.to.Brokers = c.Brokers
	if len(c.Brokers) == 0 {
		broker, err := inside.StartBroker("", c.Delay)
		if err != nil {
			return err
		}
		r.to.Brokers, stop = broker.Addresses, broker.Close
	}
	topic, err := inside.OpenTopic(ctx, r.to.Brokers, "waybill-peers")
	if err != nil {
		stop()
		return err
	}
	r.to.Topic, r.arrived = topic.Name, inside.NewCounter()
	var counting sync.WaitGroup
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	var failed error
	ready := make(chan struct{})
	counting.Go(func() { failed = r.count(running, topic, ready) })
	r.catchUp = func(ctx context.Context) error {
		topic.Consume(func(_ string, value []byte) { r.take(value) })
		return topic.CatchUp(ctx)
	}
	r.close = func() error {
		end()
		counting.Wait()
		err := topic.Close()
		stop()
		return errors.Join(failed, err)
	}
	select {
	case <-ready:
		return nil
	case <-time.After(patience):
		return errors.Join(fmt.Errorf("the topic %s is not usable after %s", topic.Name, patience), r.close())
	}
}

// count counts the records of the topic until ctx is done. It closes ready once the topic is usable.
func (r *Receiver) count(ctx context.Context, topic *inside.Topic, ready chan<- struct{}) error {
	usable := false
	for next := time.NewTicker(countEvery); ; {
		switch n, err := topic.Stored(ctx); {
		case err == nil:
			r.arrived.Add(n - r.arrived.Count())
			if !usable {
				usable = true
				close(ready)
			}
		case usable && ctx.Err() == nil:
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		}
	}
}

// Destination returns where to deliver.
func (r *Receiver) Destination() Destination { return r.to }

// Arrived returns the number of deliveries so far.
func (r *Receiver) Arrived() int { return int(r.arrived.Count()) }

// Expect returns a channel that is closed when n deliveries have arrived.
func (r *Receiver) Expect(n int) <-chan struct{} { return r.arrived.Expect(n) }

// Check compares what has arrived with the orders below n. Call it once, after the last delivery.
func (r *Receiver) Check(ctx context.Context, n int) (result.Check, error) {
	if r.catchUp != nil {
		if err := r.catchUp(ctx); err != nil {
			return result.Check{}, err
		}
	}
	return r.tally.Check(n), nil
}

// Close stops the receiver.
func (r *Receiver) Close() error { return r.close() }
