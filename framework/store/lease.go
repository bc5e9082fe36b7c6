package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// Leases decide which forwarder works on which lane.
type Leases interface {
	// Cut creates the cursors of a sink, for the given number of lanes, in one transaction, at
	// start; a start that is not valid fails with ErrStart. Existing cursors stay as they are. If
	// they have another number of lanes, that number is stored as the wanted one, for Recut: the
	// last call decides.
	//
	// With the default start, a sink begins at StartOldest until a lane of any sink was leased,
	// and at StartNow from then on, even if that sink is forgotten. So a forwarder creates the
	// cursors of all its sinks before it leases a lane, and they all start alike. SinkPruner
	// reads nothing: it has no start and does not count.
	Cut(ctx context.Context, sink string, lanes int, start Start) (Created, error)

	// Recut replaces the lanes of a sink by the wanted number of new lanes, at the position of
	// the old ones. leases are the leases of all its lanes, and end with the call. It fails with
	// ErrNotLevel if the cursors are at different positions, or have settled offsets after them.
	Recut(ctx context.Context, sink string, leases []Lease) error

	// Heartbeat records that a forwarder is running until ttl from now, by the database's
	// clock; another call renews that. Leave ends it at once.
	Heartbeat(ctx context.Context, member Member, ttl time.Duration) error
	Leave(ctx context.Context, owner string) error

	// Membership returns the running forwarders and the lanes of all sinks.
	Membership(ctx context.Context) (Membership, error)

	// Acquire leases a lane for the owner until ttl from now, by the database's clock. If another
	// owner has an unexpired lease, it fails with ErrLeaseHeld. A lease of the same owner is
	// replaced, since the response to an earlier call may have been lost. It fails with ErrLanes
	// if the lane does not exist, because the sink has another number of lanes or none. Each
	// lease of a lane has a higher epoch than the one before.
	Acquire(ctx context.Context, lane Lane, owner string, ttl time.Duration) (Lease, error)

	// Route lets each of the given sinks take other types, as soon as none of their lanes is leased
	// and none of SinkUnrouted; until then it stores them as wanted, and returns false. The last call
	// decides. Without sinks it goes on with what is wanted. true means that nothing is wanted any
	// more. SinkUnrouted stays wanted until it is known what every other sink takes.
	//
	// SinkUnrouted takes the types that no sink takes. The change loses and repeats nothing: rows
	// that no sink reads any more, and that SinkUnrouted has passed, are parked under it; rows that
	// it has parked and that a sink now reads are not parked any more; and its scheduled deliveries
	// of a type that a sink takes go to that sink. If the log is a source, only the types change.
	Route(ctx context.Context, sinks map[string]notification.TypeFilter) (done bool, err error)

	// Release ends a lease at once. Releasing a lost lease is not an error.
	Release(ctx context.Context, lease Lease) error
}

// Lease is the right to work on one lane until it expires.
type Lease struct {
	Lane  Lane
	Owner string
	Epoch int64
	// Server identifies the life of the database server that gave the lease; "" if the database
	// has none. What this process knows, but no checkpoint has stored, is not valid in another
	// life: a crash or a failover undoes transactions, and assigns their ids again.
	Server string
	// Position is the cursor's position; nil for a new one.
	Position json.RawMessage
	// Settled are offsets after the position that are already settled, ascending.
	Settled []OffsetRange
	// Types are the types that the sink takes; nil before Route. For SinkUnrouted they are those
	// that no sink takes.
	Types *notification.TypeFilter
	// Checkpoint is the number of the lane's last written checkpoint, under any lease; 0 before
	// the cursor's first one.
	Checkpoint int64
	// Revision is the revision of the sink's parked deliveries when the lease was given; see
	// LaneState.
	Revision int64
}
