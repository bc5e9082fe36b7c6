package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-go/waybill/framework/notification"
)

// Deliveries hold how far each sink has come: its cursors and parked deliveries.
type Deliveries interface {
	// Checkpoint writes everything that was settled since the last one, in one short
	// transaction, and renews the lease. If the lease was lost to another owner, it changes
	// nothing and returns ErrLeaseLost. It returns ErrServerChanged if another server gave the
	// lease. A numbered checkpoint that is already written changes nothing more, so one with
	// an unknown outcome (the connection died during its commit) is simply repeated.
	Checkpoint(ctx context.Context, c Checkpoint) error

	// Due returns parked deliveries of the lane that are due at now, in the order of their
	// times: retrying ones, scheduled and cancelled ones whose key has nothing parked before
	// them, and settling and dead ones whose hook must be called again. next is when the next
	// delivery of the sink becomes due, in any lane; zero if none waits for a time.
	Due(ctx context.Context, q DueQuery) (due []Parked, next time.Time, err error)

	// Followers returns the first limit parked deliveries of each key that hold back later
	// ones, in log order: retrying and blocked ones, and with halt also dead ones. Blocked ones
	// with no other before them are free to go. The result is grouped by key, in the order of
	// keys. Each key is given once and is not empty.
	//
	// If the payloads add up to some megabytes, the result ends early: keys[:answered] are
	// complete, and nothing is returned for the others. If the payloads of a single key are
	// that large, it counts as answered with its first deliveries. At least one key is
	// answered, unless none is given.
	Followers(ctx context.Context, lane Lane, keys []string, halt bool, limit int) (parked []Parked, answered int, err error)

	// HeldKeys returns the keys of the lane that parked deliveries hold back: those of retrying
	// and blocked ones, and with halt also of dead ones. It returns at most limit keys greater
	// than after, in the order in which the database compares keys; after "" it begins with
	// the first. The empty key never holds anything back and is left out.
	HeldKeys(ctx context.Context, lane Lane, halt bool, after string, limit int) ([]HeldKey, error)

	// CloseCollections closes collections that are due: what it finds of them has from then on the
	// number of their collection, and the first member of each is due; see Due. No member is added to a closed
	// collection, and the group's next one is not closed before it has ended.
	CloseCollections(ctx context.Context, q CloseQuery) (Closed, error)

	// Members returns the members of closed collections, in log order, grouped by collection, in the order of
	// the collections. As for Followers, large payloads end the result early: collections[:answered] are
	// complete, and at least one is answered.
	Members(ctx context.Context, sink string, collections []CollectionRef) (members []Parked, answered int, err error)

	// KeepsReceipts reports whether checkpoints archive receipts. If not, callers need not
	// collect them.
	KeepsReceipts() bool

	// OldVersions returns about how many old versions of the cursors' rows the database keeps, as
	// of some seconds ago: while a snapshot is held, none of them can be removed. Each checkpoint
	// adds one, and looks at all of its lane. It is 0 in databases in which they cost nothing. It
	// runs no statement.
	OldVersions() int
}

// Checkpoint is what was settled since the last checkpoint.
type Checkpoint struct {
	Lease Lease
	// TTL is how long the lease lasts from now.
	TTL time.Duration
	// Number numbers the checkpoints of a lane across leases: the first one of a lease follows
	// Lease.Checkpoint. A checkpoint whose number is not above the last written one is already
	// written: it changes nothing and does not renew the lease. 0 is not counted and always
	// written: with only Lease and TTL it renews the lease.
	Number int64
	// Position is after the last row of the settled prefix. nil leaves the cursor's position
	// and settled offsets unchanged.
	Position Position
	// Settled are offsets after Position that were settled out of order, ascending.
	Settled []OffsetRange
	// Park are deliveries to insert, or to replace if they are already parked. A blocked one
	// replaces nothing: it was read from the log, and its parked form is from an earlier reading.
	Park []Parked
	// Hooked are settling and dead deliveries that stay parked after another call of their hook:
	// DueAt, HookError and HookFailures are replaced if the delivery still has its State. What a
	// person has requeued or discarded meanwhile stays unchanged.
	Hooked []Parked
	// Unpark are parked deliveries to delete, since they are delivered.
	Unpark []Ref
	// Collect are deliveries to add to the open collection of their Group. One that is parked already
	// stays as it is: it was read from the log once more.
	Collect []Parked
	// CollectTerms say when what Collect adds to is due.
	CollectTerms CollectTerms
	// Collected are closed collections that have ended, whose members are unparked or dead.
	Collected []CollectionRef
	// Released are those of Park that were in a collection, and are in the slots of their keys now.
	Released []Ref
	// Receipts are archived if the store keeps receipts.
	Receipts []Receipt
	// InTx, if set, runs inside the checkpoint's transaction, before its commit. Its error
	// rolls everything back. ErrSpoiled: it returned no error, but the transaction cannot be
	// committed.
	InTx func(ctx context.Context, tx *sql.Tx) error
}

// CollectTerms say when a collection is due: Wait after its last member came, MaxWait after its first, or
// when it has Size members; with a Size of 0 it has no limit.
type CollectTerms struct {
	Wait, MaxWait time.Duration
	Size          int
}

// CollectionRef identifies a closed collection of a sink. A person can requeue dead ones, so a group can
// have several.
type CollectionRef struct{ Group, Number string }

// ID returns the id of the collection for its sink, a UUID; "" without a number, or if the group is hidden. It
// depends on nothing else, so that it is the same in each attempt.
func (c CollectionRef) ID() string {
	if c.Number == "" || c.Group == "" {
		return ""
	}
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(c.Number+" "+c.Group)).String()
}

// CloseQuery asks to close collections that are due.
type CloseQuery struct {
	// Lease is the lease of the lane, and TTL how long it lasts from now: closing renews it. If it was lost,
	// the result is ErrLeaseLost.
	Lease Lease
	TTL   time.Duration
	Now   time.Time
	// Limit is how many to close at most.
	Limit int
	// CollectTerms bound the members of a collection. What a group has beyond its Size opens its next
	// collection. No collection has more than 10,000 members, nor more than 8 MiB of payloads unless it has a
	// single one; what is left by that is due at once.
	CollectTerms
	// Newest means that all members but the last are removed.
	Newest bool
}

// Closed is what CloseCollections has done.
type Closed struct {
	// Collections is the number of closed collections, and Superseded that of removed members.
	Collections, Superseded int
	// Next is when the next collection of the sink is due, in any lane, apart from what other lanes can close now. It
	// is not after CloseQuery.Now if this lane can close more. Zero: nothing waits for a time.
	Next time.Time
}

// Receipt is the receipt of a delivery, for the archive.
type Receipt struct {
	Offset      int64
	ID          string
	Receipt     notification.Receipt
	Attempt     int
	DeliveredAt time.Time
}

// State says why a delivery is parked.
type State string

// The states of a parked delivery.
const (
	// StateRetrying: an attempt failed, the next one is due at DueAt.
	StateRetrying State = "retrying"
	// StateScheduled: the publisher asked for a time, DueAt.
	StateScheduled State = "scheduled"
	// StateBlocked: an earlier delivery of the same key is parked.
	StateBlocked State = "blocked"
	// StateDead: it is not tried again until a person acts.
	StateDead State = "dead"
	// StateSettling: it is delivered, but a hook failed, which is called again at DueAt. It
	// does not hold back its key.
	StateSettling State = "settling"
	// StateQuiet: it waits for the hours of the sink, which begin at DueAt. Unlike a scheduled one it holds
	// back its key.
	StateQuiet State = "quiet"
	// StateCollecting: it is a member of a collection. Only the first member of a closed collection has a
	// DueAt, and the attempts and the error of the collection.
	StateCollecting State = "collecting"
	// StateCancelled: it was scheduled, and its publisher has cancelled it. It is removed at
	// DueAt. This state is never written: a scheduled delivery is read as cancelled if a
	// cancellation exists.
	StateCancelled State = "cancelled"
)

// SinkUnrouted is the reserved name under which notifications without a route
// are parked as dead.
const SinkUnrouted = "_unrouted"

// SinkPruner is the reserved name whose only lane elects the pruner: the forwarder that leases
// it removes old rows. It is not a sink: nothing is delivered to it or parked for it, and its
// cursor has no position. Forget notes there that sinks were forgotten, since their cursors no
// longer show that the log was in use.
const SinkPruner = "_pruner"

// Parked is a delivery that could not be made when its turn came. It holds the whole envelope,
// so that retention of the log never loses it.
type Parked struct {
	Envelope notification.Envelope
	State    State
	// Attempt is the number of attempts so far.
	Attempt int
	// DueAt is when its next attempt, or the next call of its hook, is due; zero for blocked
	// deliveries, and for dead ones whose hook has succeeded.
	DueAt time.Time
	// LastError is the error of the last attempt; see Failure for its class. It stays when a person requeues the
	// delivery, and so do Attempts.
	LastError string
	// Attempts are the last failed attempts after which it was parked, at most MaxPastAttempts, the newest first. Blocked
	// and scheduled deliveries, and members of collections but the first, have none.
	Attempts []PastAttempt
	// Receipt is the sink's receipt for a settling delivery.
	Receipt notification.Receipt
	// HookError is why the last call of its hook failed, and HookFailures how often in a row
	// hooks failed.
	HookError    string
	HookFailures int
	// FirstParkedAt is when it was first parked; the store keeps the first value written.
	FirstParkedAt time.Time
	// Group is the group in which it is collected, and Collection the number of its collection once that is
	// closed; "" if it is not. They stay when a collection is dead.
	Group, Collection string
}

// InCollection reports whether it is a member of a closed collection.
func (p *Parked) InCollection() bool { return p.State == StateCollecting && p.Collection != "" }

// Ref distinguishes deliveries of one sink. The offset alone is not enough: a truncated log
// assigns the same offsets again, while earlier deliveries are still parked. Nor is the id:
// publishers may choose it.
type Ref struct {
	Offset int64
	ID     string
}

// RefOf returns the Ref of an envelope.
func RefOf(e *notification.Envelope) Ref { return Ref{Offset: e.Offset, ID: e.ID} }

// DueQuery asks for parked deliveries that are due.
type DueQuery struct {
	Lane Lane
	Now  time.Time
	// Limit is how many to return at most.
	Limit int
	// Except are deliveries to leave out, since they are already being worked on.
	Except []Ref
	// Halt reports that dead deliveries also hold back their key.
	Halt bool
}

// HeldKey is a key that parked deliveries hold back.
type HeldKey struct {
	Key string
	// Head reports that one of the deliveries will be tried again, or is dead and halts the
	// key. Without a head, the first blocked one is free to go once all rows before it in the
	// log are settled.
	Head bool
}

// OffsetRange is a closed range of offsets, from First to Last.
type OffsetRange struct{ First, Last int64 }

// Count returns the number of offsets in the range.
func (r OffsetRange) Count() int64 { return r.Last - r.First + 1 }

// CountOffsets returns the number of offsets in all ranges.
func CountOffsets(ranges []OffsetRange) (n int64) {
	for _, r := range ranges {
		n += r.Count()
	}
	return n
}

// OffsetRanges returns the ranges of ascending offsets.
func OffsetRanges(offsets ...int64) (ranges []OffsetRange) {
	for _, offset := range offsets {
		if n := len(ranges); n > 0 && ranges[n-1].Last+1 == offset {
			ranges[n-1].Last = offset
			continue
		}
		ranges = append(ranges, OffsetRange{offset, offset})
	}
	return ranges
}

// JoinOffsets returns ranges that have no offset in common in ascending order, with gaps between them.
func JoinOffsets(ranges []OffsetRange) (joined []OffsetRange) {
	ranges = slices.SortedFunc(slices.Values(ranges), func(a, b OffsetRange) int { return cmp.Compare(a.First, b.First) })
	for _, r := range ranges {
		if n := len(joined); n > 0 && joined[n-1].Last+1 == r.First {
			joined[n-1].Last = r.Last
			continue
		}
		joined = append(joined, r)
	}
	return joined
}

// ContainsOffset reports whether ascending ranges contain an offset.
func ContainsOffset(ranges []OffsetRange, offset int64) bool {
	_, found := slices.BinarySearchFunc(ranges, offset, func(r OffsetRange, offset int64) int {
		switch {
		case r.Last < offset:
			return -1
		case r.First > offset:
			return 1
		}
		return 0
	})
	return found
}

// EncodeOffsets encodes ascending ranges for a cursor, such as "5-9,12"; no ranges give "". The
// offsets must be positive, and the ranges ascending with gaps between them: DecodeOffsets
// refuses anything else.
func EncodeOffsets(ranges []OffsetRange) string {
	var b []byte
	for i, r := range ranges {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, r.First, 10)
		if r.Last > r.First {
			b = append(b, '-')
			b = strconv.AppendInt(b, r.Last, 10)
		}
	}
	return string(b)
}

// DecodeOffsets is the inverse of EncodeOffsets; "" gives nil. Text that EncodeOffsets cannot
// have written fails with ErrPosition.
func DecodeOffsets(text string) ([]OffsetRange, error) {
	if text == "" {
		return nil, nil
	}
	var ranges []OffsetRange
	var previous int64
	for part := range strings.SplitSeq(text, ",") {
		first, last, err := parseOffsetRange(part)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: settled offsets %.40q: %w", ErrPosition, text, err)
		case first <= previous:
			return nil, fmt.Errorf("%w: settled offsets %.40q: %d does not follow %d", ErrPosition, text, first, previous)
		}
		ranges = append(ranges, OffsetRange{first, last})
		previous = last
	}
	return ranges, nil
}

// parseOffsetRange parses "5-9", or "12" as the range from 12 to 12.
func parseOffsetRange(text string) (first, last int64, err error) {
	from, to, isRange := strings.Cut(text, "-")
	if first, err = parseOffset(from); err != nil || !isRange {
		return first, first, err
	}
	if last, err = parseOffset(to); err != nil {
		return 0, 0, err
	}
	if last <= first {
		return 0, 0, fmt.Errorf("range %q does not ascend", text)
	}
	return first, last, nil
}

// parseOffset accepts only the digits that AppendInt writes: no sign and no leading zero.
func parseOffset(text string) (int64, error) {
	if text == "" || text[0] < '1' || text[0] > '9' {
		return 0, fmt.Errorf("%q is not an offset", text)
	}
	return strconv.ParseInt(text, 10, 64)
}
