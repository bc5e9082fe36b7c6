package demo

import (
	"context"

	"github.com/waybill-go/waybill/framework/forwarder"
)

// Names of the demo's sinks.
const (
	kafkaSink = "kafka"
	httpSink  = "http"
	mailSink  = "email"
)

// destination is where a sink delivers to. It counts what arrives.
type destination interface {
	// sink delivers to this destination.
	sink() (forwarder.Sink, error)
	// arrived is what came so far.
	arrived() *arrivals
	// counts says, in a word for people, where arrivals are counted.
	counts() string
	// catchUp returns once all is counted that the sink delivered. It is called
	// when the sink is closed, so nothing is on its way any more.
	catchUp(ctx context.Context) error
	// close ends what was started.
	close() error
}
