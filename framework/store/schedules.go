package store

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Schedules keeps when the schedules of an outbox are due, so that of many processes that
// run a schedule one makes each tick. Each schedule is a row, found by its name, which
// processes change by comparing: see MoveSchedule.
type Schedules interface {
	// Schedules lists all, by name.
	Schedules(ctx context.Context) ([]Schedule, error)

	// AddSchedule makes the row of a schedule that has none yet, with no Spec: whoever runs
	// the schedule sets what it is. It is no error if the row is there.
	AddSchedule(ctx context.Context, name string) error

	// MoveSchedule writes Spec, Missed, LastTick, NextTick and RequestedAt in the caller's
	// transaction, or by itself if that is a database, and reports whether it did: the row
	// has to be as it was read, which Revision shows. Where another transaction has just
	// written it, MoveSchedule waits for its end; so of all transactions that move one
	// reading exactly one commits. ErrCollision: the isolation level allows no waiting. It
	// is the first statement of its transaction, which the server may end if the next one
	// does not come within ten seconds: a process that is stopped holds up no other.
	MoveSchedule(ctx context.Context, tx Execer, s Schedule) (moved bool, err error)

	// PauseSchedule has the ticks of a schedule pass without a notification, or with paused
	// false has them made again, as part of an action. RequestTick asks for a tick now, by
	// the database's clock, beside the others; a request that nobody has met yet stays as it
	// is. Both report whether that changes anything. ForgetSchedule deletes the row.
	// ErrUnknownSchedule if there is no row.
	PauseSchedule(ctx context.Context, action, name string, paused bool) (changed bool, err error)
	RequestTick(ctx context.Context, action, name string) (changed bool, err error)
	ForgetSchedule(ctx context.Context, action, name string) error
}

// Schedule is the row of one.
type Schedule struct {
	Name string
	// ID is of this row alone: a schedule of the same name in another outbox, or made again
	// after it was forgotten, has another one.
	ID string
	// Spec is when the schedule is due, as text, and Missed what becomes of missed ticks,
	// both for people, and to see that they are others now; "" before a process ran it.
	Spec, Missed string
	// LastTick is the last one that was made; zero before.
	LastTick time.Time
	// NextTick is the first one that was neither made nor passed over.
	NextTick time.Time
	// RequestedAt is when a person has asked for a tick that is not made yet; zero for none.
	RequestedAt time.Time
	Paused      bool
	// Revision changes with each write.
	Revision int64
	// ReadAt is the database's clock when this was read.
	ReadAt time.Time
}

// Late reports whether a tick is due and was not made for more than a minute, as of ReadAt.
func (s Schedule) Late() bool {
	due := s.NextTick
	if !s.RequestedAt.IsZero() && s.RequestedAt.Before(due) {
		due = s.RequestedAt
	}
	return s.ReadAt.Sub(due) > time.Minute
}

// NotificationID is the id of what a tick publishes, unless the program chooses another one.
// It is the same each time that the tick is made, such as in a database that was restored.
func (s Schedule) NotificationID(tick time.Time) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(s.ID+" "+tick.UTC().Format(time.RFC3339Nano))).String()
}
