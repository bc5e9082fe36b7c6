// Package receiver has the destinations of deliveries: nowhere (a function that counts), a Kafka
// broker inside the process, a Kafka cluster outside it, an HTTP server and a mail server. Each
// counts what arrives, and reports which orders were repeated or out of order.
package receiver

import (
	"context"
	"fmt"
	"time"
)

// Kind is a kind of destination.
type Kind string

// The kinds.
const (
	Nowhere Kind = "nowhere"
	Kafka   Kind = "kafka"
	// Cluster is the Kafka cluster of Config.Brokers, outside the process.
	Cluster Kind = "cluster"
	HTTP    Kind = "http"
	Mail    Kind = "mail"
)

// Destination is the address of a receiver. Fields of other kinds are empty.
type Destination struct {
	Kind Kind
	// InFlight is the most deliveries that may be in flight.
	InFlight int
	// Orders is the number of orders to deliver, for limits that make up their orders; 0 if it is
	// unknown.
	Orders int
	// Take is called with each payload, for the kind Nowhere. If each order must arrive several
	// times, Takes has a function for each time; the first one is Take.
	Take  func(payload []byte)
	Takes []func(payload []byte)
	// Brokers and Topic are for the kind Kafka.
	Brokers []string
	Topic   string
	// URL accepts POST requests, for the kind HTTP.
	URL string
	// SMTP is the host and port of a mail server, for the kind Mail. MailAddress returns the
	// recipient of an order.
	SMTP string
}

// Receiver is a running destination.
type Receiver interface {
	Destination() Destination
	// Arrived returns the number of deliveries so far.
	Arrived() int
	// Expect returns a channel that is closed when n deliveries have arrived.
	Expect(n int) <-chan struct{}
	// Verdict returns what has arrived. Call it once, after the last delivery.
	Verdict(ctx context.Context) (Verdict, error)
	Close() error
}

// Config of a receiver.
type Config struct {
	Kind Kind
	// InFlight is copied to the Destination.
	InFlight int
	// Brokers are the addresses of a Kafka cluster, for the kind Cluster.
	Brokers []string
	// Delay is the time until each response.
	Delay time.Duration
	// Copies is how often each order must arrive, for the kind Nowhere; 0 means once.
	Copies int
	// Capacity is the most orders that can arrive.
	Capacity int
	// Orders is copied to the Destination.
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

// nowhere counts payloads in a function.
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

// NewTimed returns a receiver of the kind Nowhere, and its tally, which keeps the times of arrivals.
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
