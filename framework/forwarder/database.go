package forwarder

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/coordinate"
	"github.com/waybill-go/waybill/framework/forwarder/internal/named"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/forwarder/internal/quota"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/tracing"
)

// Database is an outbox of several that one forwarder works on. Name and Store are required.
type Database struct {
	// Name tells it from the others: in log lines and metrics, and as the metadata
	// [notification.MetadataDatabase] of all that is read there.
	Name  string
	Store Store
	// Connections is how many statements run in this database at once; default, and least, as
	// for Config.Connections.
	Connections int
	// Polled says that the database is not listened to, which would take a connection.
	Polled bool
	// Sleep, if set, ends the work once there was nothing to do for so long: RunDatabase returns an *Idle. It
	// needs a store.Sampler and a log that says when it may be left alone; see [store.QuietTarget].
	Sleep time.Duration
}

// DatabaseError is an error of one of several databases, as an Observer and RunDatabase have it.
type DatabaseError = named.Error

// RunDatabase forwards what one more outbox has, through the same sinks, until ctx or that of Run is done. Then it stops as
// gracefully as Run, and returns nil; an *Idle where Database.Sleep is set and there is nothing left to do. Any other
// error, a *DatabaseError, is one that waiting would not mend.
// Threshold, breaker, rate and fairness of a sink count over all databases of the process: so many databases
// send no more to a destination than one does.
//
// It may be called any number of times, at any time: before Run has opened the sinks it waits for
// that. After Run it returns ErrNotRunning. A name that is worked on already is ErrConfig.
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
	ctx, end := context.WithCancel(tracing.Detach(ctx))
	defer end()
	o := f.newOutbox(d)
	stop, err := f.admit(o)
	if err != nil {
		return err
	}
	defer f.dismiss(o)
	defer context.AfterFunc(stop, end)()
	defer o.reserve(ctx)()
	err = o.run(ctx)
	if idle, ok := err.(*Idle); ok {
		return idle
	}
	if err != nil {
		return &DatabaseError{Database: d.Name, Err: err}
	}
	return nil
}

// Forget drops what is remembered of a database that is no longer one of the fleet: deliveries that were
// made, and could not be written before a lease ended.
func (f *Forwarder) Forget(database string) {
	for _, w := range f.working() {
		w.dispatcher.Retain(func(l store.Lane) bool { return l.Database != database })
	}
}

func (f *Forwarder) checkDatabase(d Database) error {
	p := &policy.Problems{}
	p.Require(d.Name != "", "a database has no name")
	p.Require(d.Store != nil, "database %s: the store is missing", d.Name)
	p.Require(d.Connections == 0 || d.Connections >= quota.Least, "database %s: connections is %d: use at least %d", d.Name, d.Connections, quota.Least)
	p.Require(store.SourceOf(d.Store) == nil || f.config.Lanes == 1, "database %s: its lanes are the partitions of its source: lanes is to be 1", d.Name)
	return p.Err()
}

// DatabaseFigures are what a forwarder does in one database at one moment.
type DatabaseFigures struct {
	// Database is its name; "" for Config.Store.
	Database string
	// Listening says that the database announces new rows.
	Listening bool
	// Looked and Coordinated are when the two loops, which look at the log and at the
	// leases, last began a turn; zero: not yet. A turn ends within a lease or a minute also where
	// the database does not answer.
	Looked, Coordinated time.Time
	// Answered is when the database last answered a look at the log; zero: not yet.
	Answered time.Time
}

// sum makes the figures of all databases together of those of each.
func (f *Figures) sum() {
	f.Listening = len(f.Databases) > 0
	for _, d := range f.Databases {
		f.Listening = f.Listening && d.Listening
		f.Looked, f.Coordinated = earlier(f.Looked, d.Looked), earlier(f.Coordinated, d.Coordinated)
	}
}

// earlier is the earlier one of two times that are not zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// begin lets databases in until finish.
func (f *Forwarder) begin(stop context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stop = stop
	close(f.began)
}

// admit takes one more database in, whose work is to end when stop is done.
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
	f.guests.Add(1)
	return f.stop, nil
}

// dismiss ends what admit began.
func (f *Forwarder) dismiss(o *outbox) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.admitted, o.name)
	f.guests.Done()
}

// finish lets no more databases in, and waits until the work on those that there are has ended.
func (f *Forwarder) finish() {
	f.mu.Lock()
	f.stop = nil
	f.mu.Unlock()
	f.guests.Wait()
}

// enter begins the work on an outbox, with the sinks as they are at that moment: from then on a reload
// tells its coordinator.
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
		f.share(func(s *fleet) { delete(s.members, o) })
	}
}

// workedOn are the outboxes that the forwarder works on now.
func (f *Forwarder) workedOn() []*outbox {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.outboxes)
}

// fleet is what shares the rates of the sinks.
type fleet struct {
	mu                    sync.Mutex
	databases, forwarders int             // as Share has said
	members               map[*outbox]int // forwarders that live, by database
}

// Share says how many databases the fleet has, and how many forwarders work on them as far as the caller
// knows. It is for a forwarder with Config.Fleet: the rate of a sink is over the whole fleet, and each forwarder
// has the same part of it. Where there are more forwarders than databases, each database has, cut by its
// lanes. It may be called at any time.
func (f *Forwarder) Share(databases, forwarders int) {
	f.share(func(s *fleet) { s.databases, s.forwarders = databases, forwarders })
}

// share changes what the rates are shared by.
func (f *Forwarder) share(change func(s *fleet)) {
	s := &f.fleet
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
	forwarders := s.forwarders
	for _, n := range s.members {
		forwarders = max(forwarders, n)
	}
	for _, w := range f.working() {
		w.dispatcher.Divide(s.databases, forwarders)
	}
}

// inDatabase tells an observer in which database it was.
type inDatabase struct {
	policy.Observer
	name string
}

// Wake implements Observer.
func (o inDatabase) Wake(w Wake) {
	w.Database = o.name
	o.Observer.Wake(w)
}

// DatabaseError implements Observer.
func (o inDatabase) DatabaseError(op DatabaseOp, err error) {
	o.Observer.DatabaseError(op, &DatabaseError{Database: o.name, Err: err})
}

// Pruned implements Observer.
func (o inDatabase) Pruned(p Pruned) {
	p.Database = o.name
	o.Observer.Pruned(p)
}
