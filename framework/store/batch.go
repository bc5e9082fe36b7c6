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

// Requeueable leaves of the states that a filter selects those that Requeue takes:
// dead and retrying.
func Requeueable(states []State) []State {
	if len(states) == 0 {
		return []State{StateDead, StateRetrying}
	}
	var left []State
	for _, s := range states {
		if s == StateDead || s == StateRetrying {
			left = append(left, s)
		}
	}
	if len(left) == 0 {
		left = []State{""} // no delivery has it
	}
	return left
}
