package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// Administrator is a Store in which people can look at single deliveries and act
// on them. What they do is recorded in the table of actions.
//
// Bulk actions are made of batches: each is one short transaction, which takes the
// cursors of the sink first, like a checkpoint, so the two neither deadlock nor
// interleave. It also raises the Revision of the sink's lanes, by which
// forwarders notice. A batch adds what it did to its action in the same
// transaction, so that also an action that was interrupted says what was done.
type Administrator interface {
	// CountParked counts the parked deliveries that match, by sink and state.
	// ErrUnknownSink if the filter names a sink of which the outbox has nothing.
	CountParked(ctx context.Context, f ParkedFilter) ([]ParkedCount, error)

	// FindParked returns at most limit of them, by sink and in log order, from
	// behind a place on; the zero value is before all.
	FindParked(ctx context.Context, f ParkedFilter, after ParkedPlace, limit int) ([]ParkedDelivery, error)

	// Requeue makes dead and retrying deliveries of one sink due, with no attempt
	// spent; the text of their last error stays. Others do not match. A dead one with an
	// earlier one of its key parked before it becomes blocked behind that, so that
	// the key's order holds. It looks at the next ones behind b.After.
	Requeue(ctx context.Context, b ParkedBatch, dueAt time.Time) (ParkedBatchResult, error)

	// Discard deletes deliveries of one sink, whatever their state.
	Discard(ctx context.Context, b ParkedBatch) (ParkedBatchResult, error)

	// Pause has nobody work on a sink, or with paused false go on with it, as part of
	// an action, and says whether that changes anything. Forwarders notice it with
	// their next look at the roster. A sink without cursors gives ErrUnknownSink.
	Pause(ctx context.Context, action, sink string, paused bool) (changed bool, err error)

	// Begin records an action, with nothing done yet, and End that all of it is
	// done. Action is one of them, ErrUnknownAction if there is none; Actions lists
	// the latest, newest first, at most limit.
	Begin(ctx context.Context, a Action) error
	End(ctx context.Context, id string) error
	Action(ctx context.Context, id string) (Action, error)
	Actions(ctx context.Context, limit int) ([]Action, error)

	Census
	Replayer
	Rerouter
	Tracer
}

// ParkedFilter selects parked deliveries. Each field that is set leaves out some;
// the zero value matches all.
type ParkedFilter struct {
	Sink string
	// ID is the notification's.
	ID string
	// Types selects nothing in its zero value, which therefore counts as all.
	Types  notification.TypeFilter
	Key    string
	States []State
	// Heads selects dead deliveries that have a key, and none of it parked before
	// them: where dead ones hold back their key, those that do.
	Heads bool
	// OlderThan and NewerThan bound how long ago a delivery was parked for the
	// first time, by the database's clock.
	OlderThan, NewerThan time.Duration
	// Error is a part of the text of the last error, in any case.
	Error string
}

// ParkedDelivery is a parked delivery as people look at it.
type ParkedDelivery struct {
	Sink string
	Parked
	UpdatedAt time.Time
}

// ParkedPlace is where a list of parked deliveries goes on.
type ParkedPlace struct {
	Sink string
	Ref
}

// Place is the one behind the delivery.
func (d *ParkedDelivery) Place() ParkedPlace {
	return ParkedPlace{Sink: d.Sink, Ref: RefOf(&d.Envelope)}
}

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

// Action is something that a person has done.
type Action struct {
	ID  string    `json:"id"`
	At  time.Time `json:"at"`
	Who string    `json:"who"`
	// Name is what was done, such as requeue.
	Name string `json:"action"`
	// Filter is what it was done to, as it was asked for.
	Filter json.RawMessage `json:"filter"`
	// Count is to how much it was done, so far.
	Count int64 `json:"count"`
	// Through is the offset up to which a replay has got.
	Through int64 `json:"through,omitempty"`
	// EndedAt is zero while it is under way, and stays so if it was interrupted.
	EndedAt time.Time `json:"ended_at,omitzero"`
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
