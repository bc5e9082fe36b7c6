package store

import (
	"context"
	"encoding/json"
	"time"
)

// Leases say which forwarder works on which lane.
type Leases interface {
	// Cut asks for a sink's cursors to be cut into so many lanes. Where it has none they
	// are all created in one transaction, at start; ErrStart if that is none. Where they
	// are cut into another number they stay as they are, and the number is noted as
	// wanted, for Recut: the last call decides.
	//
	// By the default rule a sink begins at StartOldest until a lane of any sink was
	// leased, and at StartNow from then on, also once such a sink is forgotten. So a
	// forwarder that makes the cursors of all its sinks before it leases a lane starts all
	// of them alike. SinkPruner reads nothing: it has no start, and does not count.
	Cut(ctx context.Context, sink string, lanes int, start Start) (Created, error)

	// Recut replaces the lanes of a sink by the wanted number of new ones, each
	// beginning where all the old ones stand. leases are those of all its lanes, and end with
	// it. Cursors that do not stand at one position with nothing settled ahead of
	// it give ErrNotLevel.
	Recut(ctx context.Context, sink string, leases []Lease) error

	// Heartbeat records that a forwarder lives for ttl from now, by the database's
	// clock; called again it renews that. Leave ends it at once.
	Heartbeat(ctx context.Context, member Member, ttl time.Duration) error
	Leave(ctx context.Context, owner string) error

	// Membership lists the forwarders that live and the lanes of all sinks.
	Membership(ctx context.Context) (Membership, error)

	// Acquire leases a lane for the owner until ttl from now, by the database's
	// clock. Another owner's unexpired lease stays: that returns
	// ErrLeaseHeld. One of the same owner is replaced: its answer may have been
	// lost. A lane that does not exist, since the sink is cut into
	// another number of them or not at all, returns ErrLanes. Each lease has a
	// higher epoch than the one before it.
	Acquire(ctx context.Context, lane Lane, owner string, ttl time.Duration) (Lease, error)

	// Release gives a lease back at once. One that was lost is no error.
	Release(ctx context.Context, lease Lease) error
}

// Lease is the right to work on one lane until it expires.
type Lease struct {
	Lane  Lane
	Owner string
	Epoch int64
	// Server is the life of the database server that gave the lease, and "" where
	// there is no such thing. What this process knows and no checkpoint holds is
	// worth nothing in another life: a crash or a failover takes back transactions,
	// and hands out their ids again.
	Server string
	// Position is where the cursor stands; nil for a new one.
	Position json.RawMessage
	// Settled are offsets behind the position that are settled already, ascending.
	Settled []OffsetRange
	// Checkpoint is the number of the last checkpoint that was written for the lane, under
	// whatever lease; 0 before the first one of its cursor.
	Checkpoint int64
	// Revision is that of what is parked for the sink when the lease was given; see
	// LaneState.
	Revision int64
}
