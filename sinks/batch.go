package sinks

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// Batcher is a sink that delivers many notifications in one call. The engine calls DeliverBatch
// instead of Deliver. A batch counts as one call for the parallelism threshold.
//
// The rules of [Sink] apply to batches, too: calls may overlap, the context limits the whole
// batch, and the batch must not be kept or changed after DeliverBatch has returned.
type Batcher interface {
	Sink

	// BatchLimits returns how large batches may be. It is called once, after Open.
	BatchLimits() BatchLimits

	// DeliverBatch returns a result for each delivery, in the order of the batch. The class
	// of each error decides what happens to that delivery. A missing result counts as a
	// transient failure.
	DeliverBatch(ctx context.Context, batch []*notification.Delivery) []Result
}

// BatchLimits are the limits of a sink's batches.
type BatchLimits struct {
	// Size is the largest number of deliveries in a batch. With less than 2, the engine
	// makes no batches.
	Size int
	// Wait is how long a delivery may wait for its batch to fill; with 0 a batch takes what
	// is pending.
	Wait time.Duration
	// Ordered promises that the sink delivers a batch in order, and after a failure delivers
	// no later one of the same key. A batch may then have several deliveries of a key.
	// Otherwise it has at most one, and the next one of the key waits for the batch to end.
	Ordered bool
}

// Result is the outcome of one delivery of a batch.
type Result struct {
	// Receipt is the sink's proof of a delivery that was made; see [Sink].
	Receipt notification.Receipt
	// Err is nil if the delivery was made. Its class says what happens otherwise; see [Classify].
	Err error
}

// Failed returns the same error for all deliveries of a batch, for sinks that deliver a batch as
// a whole or not at all.
func Failed(batch []*notification.Delivery, err error) []Result {
	results := make([]Result, len(batch))
	for i := range results {
		results[i].Err = err
	}
	return results
}
