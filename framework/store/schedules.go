package store

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Schedules stores when the schedules of an outbox are due, so that only one of the processes
// that run a schedule makes each tick. Each schedule is a row with its name. Processes change it
// with an optimistic lock: see MoveSchedule.
type Schedules interface {
	// Schedules returns all schedules, by name.
	Schedules(ctx context.Context) ([]Schedule, error)

	// AddSchedule adds the row of a new schedule, without a Spec: a process that runs the
	// schedule sets it. If the row exists, nothing happens.
	AddSchedule(ctx context.Context, name string) error

	// MoveSchedule writes Spec, Missed, LastTick, NextTick and RequestedAt in the caller's
	// transaction, or on its own if tx is a database. It reports whether it did, which requires
	// that Revision is unchanged since the row was read. While another transaction is writing
	// the row, MoveSchedule waits for it to end; so of all transactions that move the same
	// revision exactly one commits. ErrCollision: the isolation level does not allow waiting. It
	// must be the first statement of its transaction. The server may end the transaction if the
	// next statement does not come within ten seconds, so that a stopped process does not hold
	// up others.
	MoveSchedule(ctx context.Context, tx Execer, s Schedule) (moved bool, err error)

	// PauseSchedule lets the ticks of a schedule pass without a notification, or makes them again
	// if paused is false, as part of an action. RequestTick requests an extra tick now, by the
	// database's clock; while a request is pending, another one changes nothing. Both report
	// whether they change anything. ForgetSchedule deletes the row. All fail with
	// ErrUnknownSchedule if there is no row.
	PauseSchedule(ctx context.Context, action, name string, paused bool) (changed bool, err error)
	RequestTick(ctx context.Context, action, name string) (changed bool, err error)
	ForgetSchedule(ctx context.Context, action, name string) error
}

// Schedule is the row of a schedule.
type Schedule struct {
	Name string
	// ID identifies this row: a schedule with the same name in another outbox, or added again
	// after it was forgotten, has another ID.
	ID string
	// Spec is when the schedule is due, and Missed what happens to missed ticks, both as text,
	// for people and to detect changes; "" before a process ran the schedule.
	Spec, Missed string
	// LastTick is the last tick made; zero if there was none.
	LastTick time.Time
	// NextTick is the first tick that was neither made nor skipped.
	NextTick time.Time
	// RequestedAt is when a person requested a tick that is not made yet; otherwise zero.
	RequestedAt time.Time
	Paused      bool
	// Revision changes with each write.
	Revision int64
	// ReadAt is the database's clock when the row was read.
	ReadAt time.Time
}

// ScheduleAlerts is the name of the row with the state of alerts, whose Spec is JSON; see package alerts.
const ScheduleAlerts = "_alerts"

// IsOwn reports whether the row is one of Waybill's own, which are not schedules of people.
func (s Schedule) IsOwn() bool { return strings.HasPrefix(s.Name, "_") }

// Overdue returns for how long a tick has been due, as of ReadAt; negative if none is due yet.
func (s Schedule) Overdue() time.Duration {
	due := s.NextTick
	if !s.RequestedAt.IsZero() && s.RequestedAt.Before(due) {
		due = s.RequestedAt
	}
	return s.ReadAt.Sub(due)
}

// Late reports whether a tick has been due for more than a minute, as of ReadAt: no process runs the
// schedule. Processes look for due ticks every few seconds, and pass over those of a paused schedule.
func (s Schedule) Late() bool { return s.Overdue() > time.Minute }

// NotificationID returns the default id of a tick's notification. It is the same if the tick is
// made again, as after the database was restored.
func (s Schedule) NotificationID(tick time.Time) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(s.ID+" "+tick.UTC().Format(time.RFC3339Nano))).String()
}
