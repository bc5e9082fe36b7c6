package sinks

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// Batcher is a sink that can take many deliveries at once. The engine then calls
// DeliverBatch instead of Deliver; a batch counts as one call where the
// parallelism threshold is concerned.
//
// What is said of Deliver holds for a batch as well: it may be called in
// parallel, the context bounds the whole batch, and nothing of the batch may be
// kept or changed after DeliverBatch returned.
type Batcher interface {
	Sink

	// BatchLimits says how large batches are. It is asked once, after Open.
	BatchLimits() BatchLimits

	// DeliverBatch returns one result for each delivery, at the same place. Only
	// those with an error are tried again, or dead: each by its own class.
	// Deliveries of a result that is missing count as failed for the moment.
	DeliverBatch(ctx context.Context, batch []*notification.Delivery) []Result
}

// BatchLimits are the bounds of a sink's batches.
type BatchLimits struct {
	// Size is how many deliveries a batch has at most; less than 2 makes none.
	Size int
	// Wait is how long a delivery may wait for a batch to fill; 0 takes what is
	// there.
	Wait time.Duration
	// Ordered says that the sink delivers a batch in its order, and once a delivery
	// fails delivers no later one of the same key. A batch may then hold several
	// deliveries of one key. Without, it holds one, and the next one of the key
	// waits for the batch to end.
	Ordered bool
}

// Result is what came of one delivery of a batch.
type Result struct {
	Receipt notification.Receipt
	Err     error
}

// Failed gives all deliveries of a batch the same error, for a sink that takes a
// batch as a whole or not at all.
func Failed(batch []*notification.Delivery, err error) []Result {
	results := make([]Result, len(batch))
	for i := range results {
		results[i].Err = err
	}
	return results
}
