package store

import "context"

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
