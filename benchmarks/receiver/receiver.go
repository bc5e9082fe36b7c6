// Package receiver has the destinations that deliveries are made to: nowhere, a
// Kafka broker inside the process, and an HTTP server. Each counts what arrives
// and knows afterwards which orders were lost, repeated or out of order.
package receiver

import (
	"context"
	"fmt"
	"time"
)

// Kind of a destination.
type Kind string

// The three kinds.
const (
	Nowhere Kind = "nowhere"
	Kafka   Kind = "kafka"
	HTTP    Kind = "http"
)

// Destination says how to reach a receiver.
type Destination struct {
	Kind Kind
	// InFlight is how many deliveries may be under way at once.
	InFlight int
	// Orders is how many are to come, for those who make them up as they go; 0 where
	// that is not known.
	Orders int
	// Take is called with each payload, where the kind is Nowhere.
	Take func(payload []byte)
	// Brokers and Topic, where the kind is Kafka.
	Brokers []string
	Topic   string
	// URL takes POST requests, where the kind is HTTP.
	URL string
}

// Receiver is a running destination.
type Receiver interface {
	Destination() Destination
	// Arrived is how many deliveries have come so far.
	Arrived() int
	// Expect returns a channel that is closed when n have come.
	Expect(n int) <-chan struct{}
	// Verdict says what came. It may be called once, when nothing comes any more.
	Verdict(ctx context.Context) (Verdict, error)
	Close() error
}

// Config of a receiver.
type Config struct {
	Kind Kind
	// InFlight is handed on in the Destination.
	InFlight int
	// Delay is what each reply takes.
	Delay time.Duration
	// Capacity is how many orders there may be.
	Capacity int
	// Orders is handed on in the Destination.
	Orders int
}

// New starts a receiver.
func New(c Config) (Receiver, error) {
	switch c.Kind {
	case Nowhere:
		return newNowhere(c), nil
	case Kafka:
		return newBroker(c)
	case HTTP:
		return newServer(c)
	}
	return nil, fmt.Errorf("unknown kind of receiver %q", c.Kind)
}

// nowhere takes payloads by a function call.
type nowhere struct {
	*Tally
	to Destination
}

func newNowhere(c Config) *nowhere {
	tally := NewTally(c.Capacity)
	return &nowhere{tally, Destination{Kind: Nowhere, InFlight: c.InFlight, Orders: c.Orders, Take: tally.Take}}
}

// NewTimed returns a receiver nowhere whose tally keeps times.
func NewTimed(c Config) (Receiver, *Tally) {
	n := newNowhere(c)
	n.KeepTimes()
	return n, n.Tally
}

func (n *nowhere) Destination() Destination                 { return n.to }
func (n *nowhere) Arrived() int                             { return int(n.distinct.n.Load()) }
func (n *nowhere) Expect(count int) <-chan struct{}         { return n.distinct.expect(count) }
func (n *nowhere) Verdict(context.Context) (Verdict, error) { return n.Tally.Verdict(), nil }
func (n *nowhere) Close() error                             { return nil }
