package store

// ParkedBatch is the next part of a bulk action on one sink's parked deliveries.
type ParkedBatch struct {
	// Action is the id of the action that it belongs to.
	Action string
	// Filter must name a sink.
	Filter ParkedFilter
	After  Ref
	Limit  int
}

// ParkedBatchResult is the result of a batch.
type ParkedBatchResult struct {
	Changed int
	// Last is the delivery after which the next batch begins.
	Last Ref
	// Done reports that there is no next batch.
	Done bool
}
