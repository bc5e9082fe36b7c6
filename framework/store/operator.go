package store

import "context"

// Operator is what people do to an outbox. It is recorded in the table of actions.
//
// Bulk actions are made of batches: each is one short transaction, which takes the
// cursors of its sinks first, like a checkpoint, so the two neither deadlock nor
// interleave. A batch adds what it did to its action in the same transaction, so an
// action that was interrupted also shows what was done.
//
// Forwarders notice by the Revision of the sink's lanes. The first batch of an
// action that changes something of the sink raises it, a later one only if the action
// last did so a second ago or longer, and End if something was changed since. A process that
// ends before End leaves the last second's changes to the forwarders' own comparison
// with the table.
type Operator interface {
	// Begin records an action, with nothing done yet, and End that it does nothing more,
	// since all is done or it was cancelled. ErrActionBegun if there is an action of its id;
	// ErrUnknownAction if it was not begun.
	Begin(ctx context.Context, a Action) error
	End(ctx context.Context, id string) error

	// CancelAction ends an action that runs in any process, or was interrupted: its batches that
	// are not committed yet do nothing and return ErrActionCancelled. ErrActionEnded if it
	// has ended or was cancelled before; ErrUnknownAction if it was not begun.
	CancelAction(ctx context.Context, id, who string) error

	// Requeue makes dead and retrying deliveries of one sink due at once, by the
	// database's clock, with no attempt spent; the text of their last error stays.
	// Others do not match. A dead one with an earlier one of its key parked before it
	// becomes blocked behind that, so that the key's order holds. It looks at the
	// next ones behind b.After.
	Requeue(ctx context.Context, b ParkedBatch) (ParkedBatchResult, error)

	// Discard deletes deliveries of one sink, whatever their state.
	Discard(ctx context.Context, b ParkedBatch) (ParkedBatchResult, error)

	// Replay delivers rows of the log again: to one sink, as parked deliveries that
	// are due, so that they have the sink's retries, and the order of their keys. The
	// cursors stay where they are. Only what the sink has settled is replayed: the
	// rest comes by itself. What is parked for it stays as it is.
	//
	// It parks the next rows behind b.After, at most b.Limit, in log order, as part
	// of an action that has got through b.After: the first one of a key is retrying
	// and due, the others are blocked behind it, and all of them behind what is
	// parked of the key. A batch that was written already, or by another process that
	// goes on with the action, changes nothing and returns ErrActionMoved.
	Replay(ctx context.Context, b ReplayBatch) (ReplayResult, error)

	// Reroute takes up what had no route when it was read: what is dead or scheduled
	// under SinkUnrouted goes to the sinks that routes name now. It moves the next
	// deliveries behind b.After, at most b.Limit, in log order: each is parked for every
	// sink of its type and gone from SinkUnrouted, in one transaction. The first one of a
	// key is retrying and due at once, by the database's clock, the others are blocked
	// behind it, and all of them behind what is parked of the key; scheduled ones keep
	// their time.
	//
	// One that a sink of its type has not settled yet, and whose row is still in the
	// log, stays where it is: a forwarder with the routes delivers it from the log, one
	// without them passes over it, and the table does not show which of the two
	// happens. A sink that has it parked already, or has a receipt of it, gets it no
	// second time.
	//
	// A sink of its type that has no cursors gives ErrUnknownSink; ErrOtherLog if they
	// are not of this log. Nothing of the batch is done then.
	Reroute(ctx context.Context, b RerouteBatch) (RerouteResult, error)

	// Pause stops deliveries to a sink, or with paused false lets them go on, as part
	// of an action, and reports whether that changes anything. Forwarders notice it
	// with their next look at the membership. A sink without cursors gives
	// ErrUnknownSink.
	Pause(ctx context.Context, action, sink string, paused bool) (changed bool, err error)

	// Forget deletes the sink's cursors, parked deliveries and receipts, in one
	// transaction, and returns how many there were: a sink that was taken out of the
	// configuration would keep its rows in the log for ever. A forwarder that holds a
	// lease of the sink gives ErrLeaseHeld. The sink may come back: then it begins
	// where its Start says, like any new one.
	Forget(ctx context.Context, sink string) (Traces, error)
}
