package forwarder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder/internal/coordinate"
	"github.com/waybill-go/waybill/framework/forwarder/internal/quota"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/tracing"
)

// Database is one of several outboxes that a forwarder works on. Name and Store are required.
type Database struct {
	// Name identifies the database: in log lines and metrics, and in the metadata
	// [notification.MetadataDatabase] of every envelope read from it.
	Name string
	// Store is the outbox in this database.
	Store Store
	// Connections is how many statements run in this database at once; the default and the
	// minimum are those of Config.Connections.
	Connections int
	// Polled means that the forwarder does not listen to the database, which saves a connection.
	Polled bool
	// Sleep, if set, ends the work when there has been nothing to do for this long: RunDatabase
	// returns an *Idle. It requires a store.Sampler whose targets are a [store.QuietTarget].
	Sleep time.Duration
}

// DatabaseError is an error of one of several databases, as RunDatabase returns it.
type DatabaseError struct {
	Database string
	Err      error
}

func (e *DatabaseError) Error() string { return fmt.Sprintf("database %s: %v", e.Database, e.Err) }
func (e *DatabaseError) Unwrap() error { return e.Err }

// RunDatabase forwards from another outbox, through the same sinks, until its ctx or that of Run
// is done. Then it stops gracefully, as Run does, and returns nil. If Database.Sleep is set and
// there is nothing left to do, it returns an *Idle. Any other error, a *DatabaseError, is one that
// waiting cannot repair.
//
// The threshold, breaker, rate and fairness of a sink apply to all databases of the process
// together: many databases send no more to a destination than one.
//
// RunDatabase may be called any number of times, at any time. It waits until Run has opened the
// sinks. After Run it returns ErrNotRunning. For a name that is already in use it returns
// ErrConfig.
func (f *Forwarder) RunDatabase(ctx context.Context, d Database) error {
	if err := f.checkDatabase(d); err != nil {
		return err
	}
	select {
	case <-f.began:
	case <-f.over:
		return ErrNotRunning
	case <-ctx.Done():
		return nil
	}
	err := f.workOn(tracing.Detach(ctx), d)
	var idle *Idle
	switch {
	case err == nil, errors.Is(err, ErrNotRunning), errors.Is(err, ErrConfig), errors.As(err, &idle):
		return err
	}
	return &DatabaseError{Database: d.Name, Err: err}
}

// workOn works on a database until ctx or that of Run is done, and then stops gracefully. Its error is one that
// waiting cannot repair, or an *Idle.
func (f *Forwarder) workOn(ctx context.Context, d Database) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	o := f.newOutbox(d)
	stop, err := f.admit(o)
	if err != nil {
		return err
	}
	defer f.dismiss(o)
	defer context.AfterFunc(stop, end)()
	defer o.reserve(ctx)()
	return o.run(ctx)
}

// Forget discards what the forwarder remembers of a database that is no longer in the fleet:
// deliveries that were made but could not be recorded before a lease ended.
func (f *Forwarder) Forget(database string) {
	f.reporter.forget(database)
	for _, a := range f.activeSinks() {
		a.dispatcher.Retain(func(l store.Lane) bool { return l.Database != database })
	}
}

func (f *Forwarder) checkDatabase(d Database) error {
	p := &settings.Problems{}
	p.Require(d.Name != "", "a database has no name")
	p.Require(d.Store != nil, "database %s: the store is missing", d.Name)
	p.Require(d.Connections == 0 || d.Connections >= quota.Least, "database %s: connections is %d: use at least %d", d.Name, d.Connections, quota.Least)
	p.Require(store.SourceOf(d.Store) == nil || f.config.Lanes == 1, "database %s: its lanes are the partitions of its source, so lanes must be 1", d.Name)
	for name, a := range f.activeSinks() {
		checkResidents(p, map[string]Sink{name: a.Sink}, d.Name, d.Store)
	}
	return p.Err()
}

// DatabaseFigures report what a forwarder does in one database at one moment.
type DatabaseFigures struct {
	// Database is its name; "" means Config.Store.
	Database string
	// Listening reports that the database announces new rows.
	Listening bool
	// Looked and Coordinated say when the two loops, which look at the log and at the leases,
	// last began a turn; zero means not yet. A turn ends within a lease or a minute even if the
	// database does not answer.
	Looked, Coordinated time.Time
	// Leased is when a look at the leases last succeeded; zero means not yet.
	Leased time.Time
	// Failed is why the last look at the log or at the leases failed; nil if both succeeded.
	Failed error
}

// sum combines the figures of the databases into those of the forwarder.
func (f *Figures) sum() {
	f.Listening = len(f.Databases) > 0
	for _, d := range f.Databases {
		f.Listening = f.Listening && d.Listening
		f.Looked, f.Coordinated = earlier(f.Looked, d.Looked), earlier(f.Coordinated, d.Coordinated)
		f.Leased = earlier(f.Leased, d.Leased)
	}
}

// earlier returns the earlier of two times, ignoring a zero one.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// begin admits databases until finish.
func (f *Forwarder) begin(stop context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stop = stop
	close(f.began)
}

// admit admits a database. Its work must end when stop is done.
func (f *Forwarder) admit(o *outbox) (stop context.Context, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.stop == nil:
		return nil, ErrNotRunning
	case f.admitted[o.name]:
		return nil, fmt.Errorf("%w: the database %s is worked on already", ErrConfig, o.name)
	}
	f.admitted[o.name] = true
	f.hosted.Add(1)
	return f.stop, nil
}

// dismiss undoes admit.
func (f *Forwarder) dismiss(o *outbox) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.admitted, o.name)
	f.hosted.Done()
}

// finish admits no more databases, and waits until the work on the admitted ones has ended.
func (f *Forwarder) finish() {
	f.mu.Lock()
	f.stop = nil
	f.mu.Unlock()
	f.hosted.Wait()
}

// enter begins the work on an outbox with the sinks of that moment. From then on a reload informs
// its coordinator.
func (f *Forwarder) enter(o *outbox) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o.coordinator = coordinate.New(o.coordination(f.sinks))
	f.outboxes = append(f.outboxes, o)
}

func (f *Forwarder) leave(o *outbox) {
	f.mu.Lock()
	f.outboxes = slices.DeleteFunc(f.outboxes, func(other *outbox) bool { return other == o })
	f.mu.Unlock()
	if f.config.Fleet {
		f.share(func(s *rateShare) { delete(s.members, o) })
	}
}

// workedOn returns the outboxes that the forwarder works on now.
func (f *Forwarder) workedOn() []*outbox {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.outboxes)
}

// rateShare determines this forwarder's part of the sinks' rates.
type rateShare struct {
	mu                    sync.Mutex
	databases, forwarders int             // arguments of Share
	members               map[*outbox]int // live forwarders by database
}

// Share sets how many databases the fleet has and how many forwarders work on them, as far as the
// caller knows. It is for a forwarder with Config.Fleet: the rate of a sink applies to the whole
// fleet, and each forwarder gets an equal part of it. If there are more forwarders than databases,
// each database gets an equal part, which its lanes share. Share may be called at any time.
func (f *Forwarder) Share(databases, forwarders int) {
	f.share(func(s *rateShare) { s.databases, s.forwarders = databases, forwarders })
}

// share sets the numbers by which the rates are divided.
func (f *Forwarder) share(change func(s *rateShare)) {
	s := &f.rateShare
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
	forwarders := s.forwarders
	for _, n := range s.members {
		forwarders = max(forwarders, n)
	}
	for _, a := range f.activeSinks() {
		a.dispatcher.Divide(s.databases, forwarders)
	}
}

// inDatabase adds the name of the database to what an observer gets.
type inDatabase struct {
	observer event.Observer
	name     string
}

// Observe implements event.Observer.
func (o inDatabase) Observe(e event.Event) {
	switch e := e.(type) {
	case *event.Look:
		e.Database = o.name
	case *event.DatabaseFailure:
		e.Database = o.name
	case *event.Pruned:
		e.Database = o.name
	}
	o.observer.Observe(e)
}
