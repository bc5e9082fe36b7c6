// Package store is the contract between the engine and a database: reading the
// log, leasing lanes, writing checkpoints, and the parked deliveries.
//
// Three nouns live in the database. The log (table outbox) is append-only: rows
// are never updated and never deleted on delivery. A cursor (outbox_cursors)
// says how far one sink has settled one lane of the log. Parked deliveries
// (outbox_parked) are those that could not be delivered when their turn came.
//
// The dialects are in the packages below this one. They differ in how a reader
// finds every committed row exactly once; the engine sees only opaque positions
// and targets.
package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// An outbox in one database plays several narrow roles; what needs one asks for no
// more than that. All methods are safe for concurrent use. An error of the database
// comes back wrapped; what callers must tell apart are the sentinels in errors.go.
// Each method runs in a transaction of its own, or in none, and none leaves one open.

// Log is what a forwarder reads.
type Log interface {
	// Probe looks how far the log reaches now. It is one tiny query, and one
	// probe serves the readers of all sinks and lanes of a process.
	Probe(ctx context.Context) (Target, error)

	// NewReader continues reading at a cursor's position; nil begins at the
	// oldest row. It reads nothing yet. A position that another dialect or a
	// newer program wrote gives ErrPosition.
	NewReader(position json.RawMessage, filter Filter) (Reader, error)
}

// Leases say which forwarder works on which lane.
type Leases interface {
	// Cut has a sink's cursors cut into so many lanes. Where it has none they are
	// all created in one transaction, before the oldest row. Where they are cut into
	// another number they stay as they are, and the number is noted as wanted, for
	// Recut: whoever asks last decides.
	Cut(ctx context.Context, sink string, lanes int) error

	// Recut cuts the lanes of a sink anew into the wanted number, each beginning
	// where all the old ones stand. leases are those of all its lanes, and end with
	// it. Cursors that do not stand at one position with nothing settled ahead of
	// it give ErrNotLevel.
	Recut(ctx context.Context, sink string, leases []Lease) error

	// Heartbeat tells of a forwarder for ttl from now, by the database's clock; called
	// again it renews that. Leave ends it at once.
	Heartbeat(ctx context.Context, member Member, ttl time.Duration) error
	Leave(ctx context.Context, owner string) error

	// Membership lists the forwarders that live and the lanes of all sinks.
	Membership(ctx context.Context) (Membership, error)

	// Acquire leases a lane for the owner until ttl from now, by the database's
	// clock. Whoever else holds the lane with an unexpired lease keeps it: that gives
	// ErrLeaseHeld. One of the same owner is replaced: its answer may have been
	// lost. A lane that does not exist, since the sink is cut into
	// another number of them or not at all, gives ErrLanes. Each lease has a
	// higher epoch than the one before it.
	Acquire(ctx context.Context, lane Lane, owner string, ttl time.Duration) (Lease, error)

	// Release gives a lease back at once. One that was lost is no error.
	Release(ctx context.Context, lease Lease) error
}

// Deliveries are what became of them: cursors and what is parked.
type Deliveries interface {
	// Checkpoint writes everything that was settled since the last one, in one
	// short transaction, and renews the lease. If the lease went to somebody
	// else it changes nothing and gives ErrLeaseLost; ErrServerChanged if the
	// server is not the one that gave it. A numbered checkpoint that
	// is written already changes nothing more, so one whose outcome is unknown
	// (the connection died in its commit) is simply repeated.
	Checkpoint(ctx context.Context, c Checkpoint) error

	// Due returns parked deliveries of the lane that are due at now: retrying
	// ones, and scheduled ones whose key has nothing parked before them, in the
	// order in which they fell due, without those in q.Except. next is when the
	// next one of the sink falls due, whatever its lane; zero when nothing is
	// waiting for a time.
	Due(ctx context.Context, q DueQuery) (due []Parked, next time.Time, err error)

	// Blocked returns the first parked deliveries that hold back later ones of a
	// key, in log order: those that BlockedKeys counts. Blocked ones before which
	// there is no other are free to go.
	Blocked(ctx context.Context, lane Lane, key string, halt bool, limit int) ([]Parked, error)

	// BlockedKeys tells, for each key of the lane, how many parked deliveries hold
	// back later ones: retrying and blocked, and with halt also dead ones.
	// The empty key never holds anything back and is left out.
	BlockedKeys(ctx context.Context, lane Lane, halt bool) (map[string]BlockedKey, error)

	// KeepsReceipts says whether checkpoints archive receipts. Where not, nobody
	// needs to gather them.
	KeepsReceipts() bool
}

// Store is all that a forwarder and the status of an outbox need.
type Store interface {
	Log
	Leases
	Deliveries

	// Status reports the log, the cursors and what is parked.
	Status(ctx context.Context, q StatusQuery) (Status, error)
}

// Target is an upper bound of the log: the rows that were committed when it was
// probed. It belongs to the store that made it.
type Target interface {
	// Last is the highest offset that was handed out by then. Rows up to it may
	// still be uncommitted.
	Last() int64
}

// Position is a place between two rows in the order in which a reader sees
// them. The engine keeps positions and hands them back in a checkpoint; what
// they look like is the dialect's own business.
type Position interface {
	json.Marshaler
}

// Reader walks through the log for one sink and lane, in log order: for each
// key, the order in which its transactions committed, as long as they
// serialized on any lock.
//
// A reader keeps its place in memory and is for one goroutine.
type Reader interface {
	// Next returns the next rows that are committed as of target, at most limit. A
	// target that is older than those which led to the reader's position adds
	// nothing: what those reached may still come.
	// A page that came short because of the payloads' size is followed by
	// another. After an error Next can be called again and repeats nothing that
	// a page carried, save after ErrServerChanged: then a new reader must begin at
	// the stored position.
	Next(ctx context.Context, target Target, limit int) (Page, error)
}

// Page is a run of rows and the positions between them.
type Page struct {
	Envelopes []notification.Envelope
	// Start is the position before the first row.
	Start Position
	// End is the position behind the last row, and behind everything that the
	// reader passed over without finding a row for this lane.
	End Position
	// CaughtUp says that there is nothing more as of the target.
	CaughtUp bool
	// Rebased tells, once, why the reader had to start over at the oldest row:
	// the log it knew is gone, and with it the meaning of the offsets that were
	// settled in it. "" is the usual case.
	Rebased string

	// After is the position behind Envelopes[i].
	After func(i int) Position
}

// Lane is a range of slots of one sink: the unit that one forwarder leases.
type Lane struct {
	Sink string
	// Number counts from 0; Of is how many lanes the sink is cut into.
	Number, Of int
	// Slots are the first and the last slot that belong to the lane.
	Slots SlotRange
}

// Slots is how many slots there are. The number is part of the stored data and
// fixed for ever.
const Slots = 1024

// SlotRange is a closed range of slots.
type SlotRange struct{ First, Last int }

// All says whether the range leaves nothing out.
func (r SlotRange) All() bool { return r.First == 0 && r.Last == Slots-1 }

// Lanes cuts the slots into count ranges of nearly equal size for a sink.
// count must be between 1 and Slots.
func Lanes(sink string, count int) []Lane {
	lanes := make([]Lane, count)
	for i := range lanes {
		lanes[i] = NewLane(sink, i, count)
	}
	return lanes
}

// NewLane is one of the lanes that Lanes gives: number from 0 to of-1.
func NewLane(sink string, number, of int) Lane {
	return Lane{
		Sink:   sink,
		Number: number,
		Of:     of,
		Slots:  SlotRange{First: number * Slots / of, Last: (number+1)*Slots/of - 1},
	}
}

// Filter says which rows a reader returns; it passes over the others.
type Filter struct {
	Slots SlotRange
	Types notification.TypeFilter
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
}

// Checkpoint is what was settled since the last one.
type Checkpoint struct {
	Lease Lease
	// TTL is how long the lease lasts from now.
	TTL time.Duration
	// Number counts the checkpoints of a lease from 1. One that is not above the
	// last one written is written already. 0 is not counted and always written:
	// with nothing but Lease and TTL it renews the lease.
	Number int64
	// Position is behind the last row of the settled prefix. nil leaves the
	// cursor's position and settled offsets as they are.
	Position Position
	// Settled are offsets settled out of order behind Position, ascending.
	Settled []OffsetRange
	// Park are deliveries to insert, or to replace where they are parked already.
	// A blocked one replaces nothing: it comes from the log, and what is parked of
	// it was read before the log was read anew.
	Park []Parked
	// Unpark are parked deliveries that are delivered.
	Unpark []Ref
	// Receipts are archived if the store keeps receipts.
	Receipts []Receipt
	// InTx, if set, runs inside the checkpoint's transaction, before its commit.
	// Its error rolls everything back.
	InTx func(ctx context.Context, tx *sql.Tx) error
}

// Receipt is a delivery that was made, for the archive.
type Receipt struct {
	Offset      int64
	ID          string
	Receipt     notification.Receipt
	Attempt     int
	DeliveredAt time.Time
}
