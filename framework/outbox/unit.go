package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"slices"
)

// Aggregate is what a [Unit] tracks: a pointer to a value that keeps its events until they
// are published. Embed a [Recorder], or write the two methods by hand, in a package that
// does not import this one:
//
//	func (c *Customer) Events() []any     { return c.events }
//	func (c *Customer) ClearEvents(n int) { c.events = c.events[n:] }
type Aggregate interface {
	// Events returns the events that are recorded and not yet cleared, in order: domain events
	// or notifications.
	Events() []any
	// ClearEvents drops the first n events.
	ClearEvents(n int)
}

// Unit is a unit of work: it publishes the events that its aggregates have recorded, in the
// transaction that stores the aggregates, and clears the events after the commit. After a
// rollback the events stay recorded, so that a retry publishes them again.
//
// [Publisher.RunUnit] does all of it. In a program that begins and commits transactions itself:
//
//	unit := publisher.NewUnit()
//	unit.Track(order, customer)
//	… // begin tx, and store the aggregates
//	if err := unit.Publish(ctx, tx); err != nil { … }
//	if err := tx.Commit(); err != nil { … }
//	unit.Committed()
//
// A Unit is not safe for concurrent use.
type Unit struct {
	publisher *Publisher
	tracked   []Aggregate
	published []int // number of events of each aggregate that the last Publish took
	running   bool  // the function of RunUnit is running
}

// NewUnit returns a unit of work that tracks no aggregate yet.
func (p *Publisher) NewUnit() *Unit { return &Unit{publisher: p} }

// RunUnit runs f in a transaction of db, as [Publisher.RunInTx] does, with a unit of work.
// After f has returned nil, the unit publishes, and then the transaction commits:
//
//	err := publisher.RunUnit(ctx, db, nil, func(ctx context.Context, tx *sql.Tx, u *outbox.Unit) error {
//		u.Track(order, customer)
//		return errors.Join(orders.Save(ctx, tx, order), customers.Save(ctx, tx, customer))
//	})
//
// After the commit the published events are cleared. After any error all events stay
// recorded. After an error of the commit, the transaction may still have been committed: check
// that, for example by the aggregate's version, before a retry.
func (p *Publisher) RunUnit(ctx context.Context, db *sql.DB, opts *sql.TxOptions, f func(ctx context.Context, tx *sql.Tx, u *Unit) error) error {
	u := p.NewUnit()
	return u.ending(p.RunInTx(ctx, db, opts, func(ctx context.Context, tx *sql.Tx) error {
		return u.publishAfter(ctx, tx, func() error { return f(ctx, tx, u) })
	}))
}

// RunUnitInPgx is [Publisher.RunUnit] in a pgx transaction, which it begins and ends as [RunInPgx] does.
func RunUnitInPgx[Tx PgxTx[Tag], Tag PgxTag, Options any](ctx context.Context, p *Publisher, db PgxDB[Tx, Options], options Options, f func(ctx context.Context, tx Tx, u *Unit) error) error {
	u := p.NewUnit()
	return u.ending(RunInPgx(ctx, p, db, options, func(ctx context.Context, tx Tx) error {
		return u.publishAfter(ctx, Pgx(tx), func() error { return f(ctx, tx, u) })
	}))
}

func (u *Unit) publishAfter(ctx context.Context, tx Tx, f func() error) error {
	u.running = true
	if err := f(); err != nil {
		return err
	}
	u.running = false
	return u.Publish(ctx, tx)
}

// ending clears the published events unless the transaction failed with err.
func (u *Unit) ending(err error) error {
	if err == nil {
		u.clear()
	}
	return err
}

// Track adds aggregates, before or after they record events. An aggregate that is already
// tracked is not added again.
func (u *Unit) Track(aggregates ...Aggregate) {
	for _, a := range aggregates {
		if reflect.ValueOf(a).Kind() != reflect.Pointer || !slices.Contains(u.tracked, a) {
			u.tracked = append(u.tracked, a) // Publish refuses a value that is not a pointer
		}
	}
}

// Publish publishes the recorded events in the caller's transaction, with one call of
// [Publisher.Publish]: aggregate by aggregate in the order of Track, and the events of each in
// the order in which they were recorded. To keep one order across several aggregates, let them
// share a *Recorder and track that in place of them.
//
// Call it once for each transaction, as the last statement before the commit. It clears
// nothing. It fails with ErrUnit if a tracked value is not a pointer to an aggregate, and in
// the function of RunUnit, which publishes itself.
func (u *Unit) Publish(ctx context.Context, tx Tx) error {
	u.published = nil
	if u.running {
		return fmt.Errorf("%w: RunUnit publishes once its function has returned", ErrUnit)
	}
	var all []any
	counts := make([]int, len(u.tracked))
	for i, a := range u.tracked {
		if v := reflect.ValueOf(a); v.Kind() != reflect.Pointer || v.IsNil() {
			return fmt.Errorf("%w: %T is not a pointer to an aggregate, or is nil: its events could not be cleared", ErrUnit, a)
		}
		events := a.Events()
		all, counts[i] = append(all, events...), len(events)
	}
	if err := u.publisher.Publish(ctx, tx, all...); err != nil {
		return err
	}
	u.published = counts
	return nil
}

// Committed clears the events that the last Publish has published, and wakes the forwarders
// as [Publisher.Announce] does. Call it after the commit, and only if the commit returned no
// error. Events recorded since Publish stay recorded. Afterwards the unit tracks nothing.
// Without a successful Publish it clears nothing.
func (u *Unit) Committed() {
	u.clear()
	u.publisher.Announce()
}

func (u *Unit) clear() {
	if u.published == nil {
		return
	}
	for i, n := range u.published {
		u.tracked[i].ClearEvents(n)
	}
	u.tracked, u.published = nil, nil
}
