package demo

import (
	"context"

	"github.com/waybill-go/waybill/framework/forwarder"
)

// The names of the demo's sinks.
const (
	kafkaSink = "kafka"
	httpSink  = "http"
	mailSink  = "email"
)

// destination is the receiver of a sink. It counts arrivals.
type destination interface {
	// sink delivers to this destination.
	sink() (forwarder.Sink, error)
	// arrived has the arrivals so far.
	arrived() *arrivals
	// counts is where arrivals are counted, in a word for people.
	counts() string
	// catchUp returns when all deliveries of the sink are counted. It is called after the sink is
	// closed, so there are no deliveries in flight.
	catchUp(ctx context.Context) error
	// close stops the receiver.
	close() error
}
