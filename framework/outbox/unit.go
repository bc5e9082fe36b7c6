package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"slices"
)

// Aggregate is what a [Unit] tracks: a pointer to anything that keeps what happened to it
// until that is published. Embed a [Recorder], or write the two methods by hand, in a
// package that knows nothing of outboxes:
//
//	func (c *Customer) Events() []any     { return c.events }
//	func (c *Customer) ClearEvents(n int) { c.events = c.events[n:] }
type Aggregate interface {
	// Events returns what is recorded and not cleared yet, in its order: domain events
	// or notifications.
	Events() []any
	// ClearEvents drops the first n of them.
	ClearEvents(n int)
}

// Unit is a unit of work: it publishes what its aggregates have recorded in the
// transaction that stores them, and clears it once that is committed. A transaction that
// rolled back leaves it recorded, so that another try publishes the same.
//
// [Publisher.RunUnit] does all of it. Where the application begins and commits by itself:
//
//	unit := publisher.NewUnit()
//	unit.Track(order, customer)
//	… // begin tx, and store them
//	if err := unit.Publish(ctx, tx); err != nil { … }
//	if err := tx.Commit(); err != nil { … }
//	unit.Committed()
//
// It is not safe for concurrent use.
type Unit struct {
	publisher *Publisher
	tracked   []Aggregate
	published []int // how many events of each the last Publish took
	running   bool  // in the function of RunUnit
}

// NewUnit returns a unit that tracks nothing yet.
func (p *Publisher) NewUnit() *Unit { return &Unit{publisher: p} }

// RunUnit runs f in a transaction of db, as [Publisher.RunInTx] does, with a unit of work
// that publishes after f has returned nil, and before the commit:
//
//	err := publisher.RunUnit(ctx, db, nil, func(ctx context.Context, tx *sql.Tx, u *outbox.Unit) error {
//		u.Track(order, customer)
//		return errors.Join(orders.Save(ctx, tx, order), customers.Save(ctx, tx, customer))
//	})
//
// After the commit nothing of it is recorded any more. After any error all is, also after
// one of the commit, which may hide that the transaction was committed: find that out, as
// by the aggregate's version, before another try.
func (p *Publisher) RunUnit(ctx context.Context, db *sql.DB, opts *sql.TxOptions, f func(ctx context.Context, tx *sql.Tx, u *Unit) error) error {
	u := p.NewUnit()
	err := p.RunInTx(ctx, db, opts, func(ctx context.Context, tx *sql.Tx) error {
		u.running = true
		if err := f(ctx, tx, u); err != nil {
			return err
		}
		u.running = false
		return u.Publish(ctx, tx)
	})
	if err != nil {
		return err
	}
	u.clear()
	return nil
}

// Track adds aggregates, before or after something happens to them. One that is tracked
// already is not added again.
func (u *Unit) Track(aggregates ...Aggregate) {
	for _, a := range aggregates {
		if reflect.ValueOf(a).Kind() != reflect.Pointer || !slices.Contains(u.tracked, a) {
			u.tracked = append(u.tracked, a) // what is no pointer is an error of Publish
		}
	}
}

// Publish publishes what the aggregates have recorded, in the caller's transaction, with
// one call of [Publisher.Publish]: in the order in which they are tracked, and of each in
// the order in which it was recorded. Aggregates that share a *Recorder keep their order
// among each other; track the Recorder then, in place of them.
//
// Call it once for each transaction, as the last before the commit. It clears nothing. It
// fails with ErrUnit where it tracks something else than a pointer to an aggregate, and
// in the function of RunUnit, which calls it.
func (u *Unit) Publish(ctx context.Context, tx Tx) error {
	u.published = nil
	if u.running {
		return fmt.Errorf("%w: RunUnit publishes once its function has returned", ErrUnit)
	}
	var all []any
	counts := make([]int, len(u.tracked))
	for i, a := range u.tracked {
		if v := reflect.ValueOf(a); v.Kind() != reflect.Pointer || v.IsNil() {
			return fmt.Errorf("%w: %T is not a pointer to an aggregate, or nil: what it has recorded could not be cleared", ErrUnit, a)
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

// Committed clears what the last Publish has published, and wakes the forwarders as
// [Publisher.Announce] does. Call it after the commit, and only if that returned no error.
// What was recorded since Publish stays recorded. The unit tracks nothing after it. Without
// a Publish that succeeded it clears nothing.
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
