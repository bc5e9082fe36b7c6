// Package receiver has the destinations that deliveries are made to: nowhere, a
// Kafka broker inside the process or beside it, an HTTP server, and a mail server. Each counts
// what arrives and knows afterwards which orders were lost, repeated or out of order.
package receiver

import (
	"context"
	"fmt"
	"time"
)

// Kind of a destination.
type Kind string

// The kinds.
const (
	Nowhere Kind = "nowhere"
	Kafka   Kind = "kafka"
	// Cluster is that of Config.Brokers, which is outside of the process.
	Cluster Kind = "cluster"
	HTTP    Kind = "http"
	Mail    Kind = "mail"
)

// Destination says how to reach a receiver.
type Destination struct {
	Kind Kind
	// InFlight is how many deliveries may be under way at once.
	InFlight int
	// Orders is how many are to come, for those who make them up as they go; 0 where
	// that is not known.
	Orders int
	// Take is called with each payload, where the kind is Nowhere. Where each order is to
	// come several times, Takes has one such function for each time, Take among them.
	Take  func(payload []byte)
	Takes []func(payload []byte)
	// Brokers and Topic, where the kind is Kafka.
	Brokers []string
	Topic   string
	// URL takes POST requests, where the kind is HTTP.
	URL string
	// SMTP is the host and port of a mail server, where the kind is Mail. The recipient is
	// made by MailAddress of the order's id.
	SMTP string
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
	// Brokers are the addresses of a Kafka cluster, where the kind is Cluster.
	Brokers []string
	// Delay is what each reply takes.
	Delay time.Duration
	// Copies is how often each order is to come nowhere; 0 means once.
	Copies int
	// Capacity is how many orders there may be.
	Capacity int
	// Orders is handed on in the Destination.
	Orders int
	// Made notes the transactions, where orders are made while they arrive nowhere.
	Made *Made
}

// New starts a receiver.
func New(c Config) (Receiver, error) {
	switch c.Kind {
	case Nowhere:
		return newNowhere(c), nil
	case Kafka:
		return newBroker(c)
	case Cluster:
		return newCluster(c)
	case HTTP:
		return newServer(c)
	case Mail:
		return newMailServer(c)
	}
	return nil, fmt.Errorf("unknown kind of receiver %q", c.Kind)
}

// nowhere takes payloads by a function call.
type nowhere struct {
	tallies []*Tally // one for each copy
	arrived countdown
	to      Destination
}

func newNowhere(c Config) *nowhere {
	n := &nowhere{arrived: newCountdown(), to: Destination{Kind: Nowhere, InFlight: c.InFlight, Orders: c.Orders}}
	for range max(1, c.Copies) {
		tally := NewTally(c.Capacity)
		tally.distinct, tally.made = n.arrived, c.Made
		n.tallies, n.to.Takes = append(n.tallies, tally), append(n.to.Takes, tally.Take)
	}
	n.to.Take = n.to.Takes[0]
	return n
}

// NewTimed returns a receiver nowhere whose tally keeps times.
func NewTimed(c Config) (Receiver, *Tally) {
	n := newNowhere(c)
	n.tallies[0].KeepTimes()
	return n, n.tallies[0]
}

func (n *nowhere) Destination() Destination         { return n.to }
func (n *nowhere) Arrived() int                     { return int(n.arrived.n.Load()) }
func (n *nowhere) Expect(count int) <-chan struct{} { return n.arrived.expect(count) }
func (n *nowhere) Close() error                     { return nil }

func (n *nowhere) Verdict(context.Context) (v Verdict, err error) {
	for _, t := range n.tallies {
		one := t.Verdict()
		v.Repeats, v.Foreign, v.Swapped = v.Repeats+one.Repeats, v.Foreign+one.Foreign, v.Swapped+one.Swapped
	}
	v.Distinct = n.Arrived()
	return v, nil
}
