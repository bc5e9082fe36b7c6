// Package quota bounds how many statements of a forwarder run at once, and so how many
// connections it uses, for any number of sinks and lanes.
//
// Statements of one kind wait only for each other, in the order of their arrival: reading a
// backlog does not hold up checkpoints, and neither holds up renewing leases.
package quota

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Least is the least number of connections of a forwarder: one each for the feed, which reads
// the log for all lanes that have caught up, for leases, for reading and for writing.
const Least = 4

// Store is the store to bound.
type Store interface {
	store.Log
	store.Leases
	store.Deliveries
}

// Bounded is a store that runs a limited number of statements at once. The feed has a separate
// connection: it runs one statement at a time.
type Bounded struct {
	store Store // not embedded: a method that is not bounded must not compile

	leasing   bound // leases: few and small statements
	reading   bound
	backlogs  bound // reading pages of backlogs, which takes long, leaves a connection for reading parked deliveries
	elsewhere bool  // the log is a store.Source: reading it uses no connection, and may take long
	writing   bound
	eachWrite int // most writing statements of one sink

	mu    sync.Mutex
	sinks map[string]bound
}

var (
	_ Store           = (*Bounded)(nil)
	_ store.Presences = (*Bounded)(nil)
)

// New bounds a store to a number of connections, at least Least, including the feed's.
func New(s Store, connections int) *Bounded {
	rest := connections - 2 // the feed's, and the one for leases
	writing := rest / 2
	reading := rest - writing
	return &Bounded{
		store:     s,
		leasing:   newBound(1),
		reading:   newBound(reading),
		backlogs:  newBound(max(1, reading-1)),
		writing:   newBound(writing),
		elsewhere: store.SourceOf(s) != nil,
		eachWrite: max(1, writing-1),
		sinks:     make(map[string]bound),
	}
}

// bound lets a number of statements pass at once, in the order of their arrival.
type bound struct{ *semaphore.Weighted }

func newBound(n int) bound { return bound{semaphore.NewWeighted(int64(n))} }

// within runs a statement after all bounds let it pass. They are acquired in order: the narrower
// one first, so that a statement that waits there uses no connection of the wider one.
func within(ctx context.Context, run func() error, bounds ...bound) error {
	for _, b := range bounds {
		if err := b.Acquire(ctx, 1); err != nil {
			return fmt.Errorf("wait for one of the forwarder's connections: %w", err)
		}
		defer b.Release(1)
	}
	return run()
}

// read runs a statement that reads the log.
func (b *Bounded) read(ctx context.Context, run func() error, bounds ...bound) error {
	if b.elsewhere {
		return run()
	}
	return within(ctx, run, bounds...)
}

// Prune runs a statement that removes old rows. Like the reading of a backlog, it may wait.
func (b *Bounded) Prune(ctx context.Context, run func() error) error {
	return within(ctx, run, b.backlogs, b.reading)
}

// write runs a statement that writes the cursors of a sink. If it waits for a lock or a hook, it
// leaves connections for the other sinks.
func (b *Bounded) write(ctx context.Context, sink string, run func() error) error {
	return within(ctx, run, b.ofSink(sink), b.writing)
}

func (b *Bounded) ofSink(sink string) bound {
	b.mu.Lock()
	defer b.mu.Unlock()
	own, ok := b.sinks[sink]
	if !ok {
		own = newBound(b.eachWrite)
		b.sinks[sink] = own
	}
	return own
}

// Probe implements store.Log.
func (b *Bounded) Probe(ctx context.Context) (target store.Target, err error) {
	err = b.read(ctx, func() error { target, err = b.store.Probe(ctx); return err }, b.reading)
	return target, err
}

// NewReader implements store.Log.
func (b *Bounded) NewReader(position json.RawMessage, filter store.Filter) (store.Reader, error) {
	r, err := b.store.NewReader(position, filter)
	if err != nil {
		return nil, err
	}
	return &reader{r, b}, nil
}

type reader struct {
	pages   store.Reader
	bounded *Bounded
}

// Next implements store.Reader.
func (r *reader) Next(ctx context.Context, target store.Target, limit int) (page store.Page, err error) {
	b := r.bounded
	err = b.read(ctx, func() error { page, err = r.pages.Next(ctx, target, limit); return err }, b.backlogs, b.reading)
	return page, err
}

// Due implements store.Deliveries.
func (b *Bounded) Due(ctx context.Context, q store.DueQuery) (due []store.Parked, next time.Time, err error) {
	err = within(ctx, func() error { due, next, err = b.store.Due(ctx, q); return err }, b.reading)
	return due, next, err
}

// Followers implements store.Deliveries.
func (b *Bounded) Followers(ctx context.Context, lane store.Lane, keys []string, halt bool, limit int) (parked []store.Parked, answered int, err error) {
	err = within(ctx, func() error { parked, answered, err = b.store.Followers(ctx, lane, keys, halt, limit); return err }, b.reading)
	return parked, answered, err
}

// HeldKeys implements store.Deliveries.
func (b *Bounded) HeldKeys(ctx context.Context, lane store.Lane, halt bool, after string, limit int) (keys []store.HeldKey, err error) {
	err = within(ctx, func() error { keys, err = b.store.HeldKeys(ctx, lane, halt, after, limit); return err }, b.reading)
	return keys, err
}

// CloseCollections implements store.Deliveries.
func (b *Bounded) CloseCollections(ctx context.Context, q store.CloseQuery) (closed store.Closed, err error) {
	err = b.write(ctx, q.Lease.Lane.Sink, func() error { closed, err = b.store.CloseCollections(ctx, q); return err })
	return closed, err
}

// Members implements store.Deliveries.
func (b *Bounded) Members(ctx context.Context, sink string, collections []store.CollectionRef) (members []store.Parked, answered int, err error) {
	err = within(ctx, func() error { members, answered, err = b.store.Members(ctx, sink, collections); return err }, b.reading)
	return members, answered, err
}

// Checkpoint implements store.Deliveries.
func (b *Bounded) Checkpoint(ctx context.Context, c store.Checkpoint) error {
	return b.write(ctx, c.Lease.Lane.Sink, func() error { return b.store.Checkpoint(ctx, c) })
}

// Release implements store.Leases. It may wait for a lock on the cursor, and must not hold up
// the renewal of other leases meanwhile.
func (b *Bounded) Release(ctx context.Context, lease store.Lease) error {
	return b.write(ctx, lease.Lane.Sink, func() error { return b.store.Release(ctx, lease) })
}

// Recut implements store.Leases.
func (b *Bounded) Recut(ctx context.Context, sink string, leases []store.Lease) error {
	return b.write(ctx, sink, func() error { return b.store.Recut(ctx, sink, leases) })
}

// Cut implements store.Leases.
func (b *Bounded) Cut(ctx context.Context, sink string, lanes int, start store.Start) (created store.Created, err error) {
	err = within(ctx, func() error { created, err = b.store.Cut(ctx, sink, lanes, start); return err }, b.leasing)
	return created, err
}

// Route implements store.Leases.
func (b *Bounded) Route(ctx context.Context, sinks map[string]notification.TypeFilter) (done bool, err error) {
	err = within(ctx, func() error { done, err = b.store.Route(ctx, sinks); return err }, b.writing)
	return done, err
}

// Acquire implements store.Leases.
func (b *Bounded) Acquire(ctx context.Context, lane store.Lane, owner string, ttl time.Duration) (lease store.Lease, err error) {
	err = within(ctx, func() error { lease, err = b.store.Acquire(ctx, lane, owner, ttl); return err }, b.leasing)
	return lease, err
}

// Heartbeat implements store.Leases.
func (b *Bounded) Heartbeat(ctx context.Context, member store.Member, ttl time.Duration) error {
	return within(ctx, func() error { return b.store.Heartbeat(ctx, member, ttl) }, b.leasing)
}

// Leave implements store.Leases.
func (b *Bounded) Leave(ctx context.Context, owner string) error {
	return within(ctx, func() error { return b.store.Leave(ctx, owner) }, b.leasing)
}

// Membership implements store.Leases.
func (b *Bounded) Membership(ctx context.Context) (m store.Membership, err error) {
	err = within(ctx, func() error { m, err = b.store.Membership(ctx); return err }, b.leasing)
	return m, err
}

// KeepsReceipts implements store.Deliveries. It runs no statement.
func (b *Bounded) KeepsReceipts() bool { return b.store.KeepsReceipts() }

// OldVersions implements store.Deliveries. It runs no statement.
func (b *Bounded) OldVersions() int { return b.store.OldVersions() }

// OpenPresence implements store.Presences. Neither the session nor its few statements wait for a bound: while
// the others used up the connections, they would take this process for dead.
func (b *Bounded) OpenPresence(ctx context.Context, owner string) (store.Presence, error) {
	opener, ok := b.store.(store.Presences)
	if !ok {
		return nil, store.ErrNoPresence
	}
	return opener.OpenPresence(ctx, owner)
}
