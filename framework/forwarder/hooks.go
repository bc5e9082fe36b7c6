package forwarder

import "github.com/waybill-go/waybill/framework/forwarder/internal/policy"

// Hooks are called with what becomes of deliveries, in the transaction of the checkpoint
// that writes it down: their effects commit with it, or not at all. See the fields
// Delivered, Parked and Dead.
//
// A hook is called with at most 1,000 deliveries and must be quick; its context ends
// after a third of the lease. It neither commits nor rolls back. One that returns nil for a transaction that has ended or cannot be
// committed, since a statement of it failed or a deferred constraint is broken, has failed. A delivery for which it fails is held back, and no other: it
// is parked as settling, or as dead, with the hook's error, is not delivered again, and its
// Delivered or Dead is called again after 1 s, then 2 s, and so on up to 5 min, until it
// succeeds. Parked is not called again for the same attempt. After a crash, a delivery that
// is repeated reaches the hook again as well.
type Hooks = policy.Hooks

// Parked is a delivery that could not be made: Delivery, State, DueAt and Error.
type Parked = policy.Parked

// Delivered is a delivery that a sink has taken: Delivery and Receipt.
type Delivered = policy.Delivered

// Observer is called with what a forwarder does: attempts, batches, what is parked and
// dead, checkpoints, leases, breakers, throttling and looks at the log. It is called
// from many goroutines, some of which hold locks of the engine: it must be quick and
// must not call the forwarder. It needs no transaction and changes nothing of how
// deliveries are made; without an observer nothing is measured. Embed [Unobserved] and
// write the methods that you need.
type Observer = policy.Observer

// What an Observer is called with.
type (
	Attempt       = policy.Attempt       // one attempt of one delivery
	Batch         = policy.Batch         // one call of a sink of batches
	Checkpoint    = policy.Checkpoint    // one that was written
	BreakerChange = policy.BreakerChange // a breaker that opens or closes
	Throttling    = policy.Throttling    // a sink that waits for its destination
	Wake          = policy.Wake          // one look at the log
	WakeCause     = policy.WakeCause     // why
)

// The causes of a look at the log.
const (
	WakePoll     = policy.WakePoll
	WakeAsked    = policy.WakeAsked
	WakeListened = policy.WakeListened
)

// Unobserved is an Observer that does nothing, to be embedded.
type Unobserved = policy.Unobserved
