package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// Operator changes an outbox on behalf of people. The table of actions records the changes.
//
// Bulk actions consist of batches. Each batch is one short transaction. Like a checkpoint, it
// first locks the cursors of its sinks, so the two neither deadlock nor interleave. In the same
// transaction it adds to its action what it did, so that an interrupted action also shows what
// was done.
//
// Forwarders notice changes by the Revision of the sink's lanes. It is raised by the first batch
// of an action that changes something of the sink, by later batches if the action raised it at
// least a second ago, and by End if something was changed since. If a process ends before End,
// forwarders find the last second's changes when they compare with the table.
type Operator interface {
	// Begin records an action, with nothing done yet; it fails with ErrActionBegun if an action
	// has its id. End records that it is done or was cancelled; it fails with ErrUnknownAction
	// if it was not begun.
	Begin(ctx context.Context, a Action) error
	End(ctx context.Context, id string) error

	// CancelAction cancels an action that runs in any process, or was interrupted: its batches
	// that are not committed yet change nothing and return ErrActionCancelled. It fails with
	// ErrActionEnded if the action has ended or was already cancelled, and with
	// ErrUnknownAction if it was not begun.
	CancelAction(ctx context.Context, id, who string) error

	// Requeue makes dead and retrying deliveries of one sink due at once, by the database's
	// clock, with all attempts available again; the text of their last error stays. Others do
	// not match. If an earlier delivery of its key is parked, a dead one becomes blocked behind
	// it, so that the key's order is kept. It processes the next ones after b.After.
	Requeue(ctx context.Context, b ParkedBatch) (ParkedBatchResult, error)

	// Discard deletes deliveries of one sink, in any state.
	Discard(ctx context.Context, b ParkedBatch) (ParkedBatchResult, error)

	// Replay delivers rows of the log to one sink again, as parked deliveries that are due, so
	// that they have the sink's retries and the order of their keys. The cursors stay where they
	// are. Only rows that the sink has settled are replayed; the others are delivered as usual.
	// Deliveries parked for the sink stay as they are.
	//
	// It parks the next rows after b.After, at most b.Limit, in log order, for an action that has
	// reached b.After: the first row of a key is retrying and due, the others are blocked behind
	// it, and all of them are behind what is already parked of the key. If the batch was already
	// written, or another process continues the action, it changes nothing and returns
	// ErrActionMoved.
	Replay(ctx context.Context, b ReplayBatch) (ReplayResult, error)

	// Reroute delivers notifications that had no route when they were read: it moves dead and
	// scheduled deliveries from SinkUnrouted to the sinks that routes name now. It processes the
	// next deliveries after b.After, at most b.Limit, in log order, in one transaction: each is
	// parked for every sink of its type and removed from SinkUnrouted. The first one of a key is
	// retrying and due at once, by the database's clock; the others are blocked behind it, and
	// all of them are behind what is already parked of the key. Scheduled ones keep their time.
	//
	// A delivery stays if a sink of its type has not settled it yet and its row is still in the
	// log: a forwarder with the routes will deliver it from the log, and one without them will
	// skip it, and the table does not show which. A sink does not get it again if it has a
	// receipt of it or the delivery is already parked.
	//
	// It fails with ErrUnknownSink if a sink of its type has no cursors, and with ErrOtherLog if
	// they belong to another log. Then the batch changes nothing.
	Reroute(ctx context.Context, b RerouteBatch) (RerouteResult, error)

	// Pause stops deliveries to a sink, or resumes them if paused is false, as part of an action,
	// and reports whether that changes anything. Forwarders notice it at their next look at the
	// membership. It fails with ErrUnknownSink for a sink without cursors.
	Pause(ctx context.Context, action, sink string, paused bool) (changed bool, err error)

	// Forget deletes the sink's cursors, parked deliveries and receipts, in one transaction, and
	// returns how many there were. Otherwise a sink that was removed from the configuration
	// would keep its rows in the log forever. It fails with ErrLeaseHeld if a forwarder has a
	// lease of the sink. If the sink is added again, it begins where its Start says, like any
	// new sink.
	Forget(ctx context.Context, sink string) (Traces, error)
}

// Planner says what an action would change, before a person confirms it, and what became of actions.
type Planner interface {
	// CountParked counts the parked deliveries that match, by sink and state. changed is when
	// the last of them changed, by the database's clock, for ParkedFilter.Until. It fails with
	// ErrUnknownSink if the outbox has nothing of the filter's sink.
	CountParked(ctx context.Context, f ParkedFilter) (counts []ParkedCount, changed time.Time, err error)

	// CountReplay counts what a replay would deliver. It fails with ErrUnknownSink for a sink
	// without cursors, and with ErrOtherLog if they belong to another log.
	CountReplay(ctx context.Context, q ReplayQuery) (ReplayCount, error)

	// CountReroute counts what a reroute would move, by type and state, ordered by these.
	// changed is as in CountParked.
	CountReroute(ctx context.Context, q RerouteQuery) (counts []RerouteCount, changed time.Time, err error)

	// Traces counts what the outbox has of a sink. If it has nothing, it fails with
	// ErrUnknownSink, which names the known sinks.
	Traces(ctx context.Context, sink string) (Traces, error)

	// Action returns an action by its id, or ErrUnknownAction. Actions returns at most limit of
	// the latest actions, newest first; with names, such as pause, only those.
	Action(ctx context.Context, id string) (Action, error)
	Actions(ctx context.Context, limit int, names ...string) ([]Action, error)
}

// Action is a recorded action of a person.
type Action struct {
	ID  string    `json:"id"`
	At  time.Time `json:"at"`
	Who string    `json:"who"`
	// Address is where the request came from over the network, and Reason why it was made, if
	// known.
	Address string `json:"address,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Name is the name of the action, such as requeue.
	Name string `json:"action"`
	// Filter is what it acts on, as requested.
	Filter json.RawMessage `json:"filter"`
	// Request is a digest of the request that began it; "" if none is kept.
	Request string `json:"-"`
	// Planned is the number of deliveries to change when it began, and Count the number changed
	// so far. Both are 0 for an action that counts nothing.
	Planned int64 `json:"planned,omitempty"`
	Count   int64 `json:"count"`
	// Through is the offset that a replay has reached.
	Through int64 `json:"through,omitempty"`
	// State is the state of the action when it was read.
	State ActionState `json:"state"`
	// UpdatedAt is when its last batch was written, or when it began.
	UpdatedAt time.Time `json:"updated_at,omitzero"`
	// CancelledAt is when CancelledBy cancelled it; zero if it was not cancelled.
	CancelledAt time.Time `json:"cancelled_at,omitzero"`
	CancelledBy string    `json:"cancelled_by,omitempty"`
	// EndedAt is when it ended; zero while it runs, and for good if it was interrupted.
	EndedAt time.Time `json:"ended_at,omitzero"`
}

// PauseLimit is how many pauses and resumes are searched for those of the sinks that are paused.
const PauseLimit = 1000

// Pauses returns, by sink, the action that paused it. actions are the latest ones with the names pause and resume,
// newest first. A sink that is not paused, or was paused before them, is missing.
func Pauses(actions []Action) map[string]Action {
	pauses, resumed := make(map[string]Action), make(map[string]bool)
	for _, a := range actions {
		var of struct{ Sinks []string }
		if json.Unmarshal(a.Filter, &of) != nil {
			continue
		}
		for _, sink := range of.Sinks {
			switch {
			case resumed[sink]:
			case a.Name == "resume":
				resumed[sink] = true
			case a.Count > 0: // otherwise it was paused already
				pauses[sink] = a
			}
		}
	}
	return pauses
}

// ActionState is the state of an action.
type ActionState string

// The states of an action.
const (
	// ActionRunning: it has begun, and its last batch is more recent than ActionSilence.
	ActionRunning ActionState = "running"
	// ActionDone: all of it is done.
	ActionDone ActionState = "done"
	// ActionCancelled: a person cancelled it. What it did before stays.
	ActionCancelled ActionState = "cancelled"
	// ActionInterrupted: it has not ended, but writes nothing any more, because its process
	// ended or met an error.
	ActionInterrupted ActionState = "interrupted"
)

// ActionSilence is how long after its last batch an action counts as interrupted.
const ActionSilence = time.Minute

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

// ReplayQuery selects rows of the log.
type ReplayQuery struct {
	Sink string
	// Types are filters that must all match.
	Types []notification.TypeFilter
	// Since and Until select rows that occurred at Since or later, and before Until. The zero
	// value means no bound.
	Since, Until time.Time
	// From names a record of a source, such as orders/3@1042: its lane is replayed from there,
	// and no other lane is. "" means no bound.
	From string
	// After and UpTo select offsets above After and up to UpTo.
	After, UpTo int64
}

// ReplayCount is what a replay would deliver.
type ReplayCount struct {
	// Rows is the number of rows to deliver again.
	Rows int64 `json:"rows"`
	// Parked is the number of rows that are parked for the sink, and stay as they are.
	Parked int64 `json:"parked"`
	// Unsettled is the number of rows that the sink has not settled yet: they are delivered as
	// usual.
	Unsettled int64 `json:"unsettled"`
	// Oldest is the first row that is still in the log, or nil.
	Oldest *Row `json:"oldest"`
}

// ReplayBatch is the next part of a replay.
type ReplayBatch struct {
	ReplayQuery
	// Action is the id of the action that it belongs to.
	Action string
	Limit  int
}

// ReplayResult is the result of a batch.
type ReplayResult struct {
	Changed int
	// Through is the offset that the replay has reached.
	Through int64
}

// RerouteQuery selects deliveries that had no route.
type RerouteQuery struct {
	// Filter narrows the selection. Its Sink is ignored; without States, all states that can be
	// moved are selected.
	Filter ParkedFilter
	// Sinks are the types of each sink. Types without a sink are left out.
	Sinks map[string]notification.TypeFilter
}

// Unrouted returns the filter of the parked deliveries.
func (q RerouteQuery) Unrouted() ParkedFilter {
	f := q.Filter
	f.Sink = SinkUnrouted
	if len(f.States) == 0 {
		f.States = []State{StateDead, StateScheduled}
	}
	return f
}

// RerouteCount is how many deliveries of a type have a route now.
type RerouteCount struct {
	Type  string `json:"type"`
	State State  `json:"state"`
	Count int64  `json:"count"`
}

// RerouteBatch is the next part of a reroute.
type RerouteBatch struct {
	RerouteQuery
	// Action is the id of the action that it belongs to.
	Action string
	After  Ref
	Limit  int
}

// RerouteResult is the result of a batch.
type RerouteResult struct {
	// Changed is how many were moved; Left is how many stay, since a sink has not settled them.
	Changed, Left int
	// Last is the delivery after which the next batch begins.
	Last Ref
	// Done reports that there is no next batch.
	Done bool
}
