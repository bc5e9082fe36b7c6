package store

// ParkedBatch is the next part of a bulk action on one sink's parked deliveries.
type ParkedBatch struct {
	// Action is the id of the action that it belongs to.
	Action string
	// Filter has a sink.
	Filter ParkedFilter
	After  Ref
	Limit  int
}

// ParkedBatchResult is what came of a batch.
type ParkedBatchResult struct {
	Changed int
	// Last is the delivery behind which the next batch begins.
	Last Ref
	// Done says that there is no next one.
	Done bool
}
