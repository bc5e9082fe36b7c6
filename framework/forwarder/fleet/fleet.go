// Package fleet runs one forwarder over databases that come and go: those of a list, or of a query that is
// asked again by the clock. Threshold, breaker, rate and fairness of a sink count over all of them.
//
// Each database is worked on by itself: one that is away, has no tables or is wrong in another way is tried
// again, and costs the others nothing. A database in which there is nothing to do sleeps: its lanes are given
// back, and one look a second finds what comes. Neighbours, schemas of one database, share that look.
//
// Several forwarders may run one fleet. Without a control database each works on all databases, and
// the lanes' leases share the work. A control database leases each database to one of them. That only
// spreads the work: it is the lanes' leases that keep two forwarders from working on one lane.
//
// The files in the order in which to read them: fleet.go, member.go, watch.go, control.go.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/pace"
)

// Defaults of a Config.
const (
	DefaultRefresh = time.Minute
	DefaultSleep   = 10 * time.Second
)

// Never as a Config's Sleep keeps databases awake.
const Never = time.Duration(1<<63 - 1)

// Database is one of a fleet.
type Database struct {
	// Name tells it from the others. It travels as metadata of all that is read there.
	Name string
	// Address is where it is; it may hold a password. A database with another address than before is opened
	// again.
	Address string
	// Identity is the address without its secrets. Forwarders that share a control database take databases
	// with different identities for different ones.
	Identity string
}

// Lister knows the databases of a fleet.
type Lister interface {
	// List returns them, each name once. Where that fails those that were known stay.
	List(ctx context.Context) ([]Database, error)
}

// Static is a Lister of databases that stay the same.
type Static []Database

// List implements Lister.
func (s Static) List(context.Context) ([]Database, error) { return s, nil }

// Outbox is a database that is open.
type Outbox struct {
	Store forwarder.Store
	Close func()
}

// Config is what a fleet works with. Forwarder, Databases and Open are required.
type Config struct {
	// Forwarder is one with Config.Fleet, which Run runs.
	Forwarder *forwarder.Forwarder
	Databases Lister
	// Open opens a database; its error is tried again.
	Open func(ctx context.Context, d Database) (Outbox, error)
	// Control leases databases to forwarders; nil: each works on all.
	Control ControlStore
	// Identity is what the configurations of forwarders that share Control have in common, such as the names
	// of the sinks.
	Identity string
	// Lease is how long a database stays with a forwarder that does not renew its lease; default
	// forwarder.DefaultLease.
	Lease time.Duration
	// Refresh is how often Databases is asked; default DefaultRefresh.
	Refresh time.Duration
	// Sleep is after what time without anything to do a database sleeps; default DefaultSleep. Never keeps
	// all awake.
	Sleep time.Duration
	// Connections is as for forwarder.Database.
	Connections int
	// Listeners is how many databases are listened to at once, of those that are awake; the others are polled.
	Listeners int
	// Logger gets one line for each change of a database's state; default: slog's.
	Logger *slog.Logger
}

// Fleet is a forwarder and its databases. It is safe for concurrent use.
type Fleet struct {
	config  Config
	control *control // nil: there is none
	watch   *watch
	hearing *semaphore.Weighted
	listing *pace.Trouble
	kick    chan struct{} // capacity 1: look at once

	mu      sync.Mutex
	lister  Lister
	asked   int // how often List is to have been asked
	answers int // how often it was
	listed  []Database
	members map[string]*member
	ending  map[string]*member // those that are stopping
	leased  string             // why Control gives this forwarder nothing; "": it does
}

// New returns a fleet. It starts nothing.
func New(c Config) (*Fleet, error) {
	if c.Forwarder == nil || c.Databases == nil || c.Open == nil {
		return nil, errors.New("fleet: forwarder, databases and open are required")
	}
	c.Lease = cmp.Or(c.Lease, forwarder.DefaultLease)
	c.Refresh = cmp.Or(c.Refresh, DefaultRefresh)
	c.Sleep = cmp.Or(c.Sleep, DefaultSleep)
	if c.Sleep == Never {
		c.Sleep = 0
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	f := &Fleet{
		config: c, watch: newWatch(c.Logger), hearing: semaphore.NewWeighted(int64(c.Listeners)), lister: c.Databases, asked: 1, kick: make(chan struct{}, 1),
		listing: pace.NewTrouble(c.Logger, "listing the databases of the fleet", 0),
		members: make(map[string]*member), ending: make(map[string]*member),
	}
	if c.Control != nil {
		f.control = newControl(c.Control, c.Forwarder.Owner(), c.Identity, c.Lease, c.Logger)
	}
	return f, nil
}

// Run runs the forwarder over the databases until ctx is done, and ends gracefully. Its error is that of
// [forwarder.Forwarder.Run].
func (f *Fleet) Run(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var work sync.WaitGroup
	work.Go(func() { f.watch.run(ctx) })
	work.Go(func() { f.follow(ctx) })
	err := f.config.Forwarder.Run(ctx)
	end()
	work.Wait()
	return err
}

// Follow has another list count, and Refresh asks the list at once. Both wake all databases, since what is
// routed to their sinks may have changed.
func (f *Fleet) Follow(l Lister) {
	f.mu.Lock()
	f.lister = l
	f.mu.Unlock()
	f.Refresh()
}

// Refresh asks the list for databases at once, and wakes all that sleep.
func (f *Fleet) Refresh() {
	f.mu.Lock()
	f.asked++
	f.mu.Unlock()
	f.watch.wakeAll()
	f.look()
}

// look has follow begin a turn.
func (f *Fleet) look() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// follow starts and stops the work on databases until ctx is done and all of it has ended.
func (f *Fleet) follow(ctx context.Context) {
	pause := f.config.Refresh
	if f.control != nil {
		pause = min(pause, f.config.Lease/5)
	}
	refresh, timer := time.NewTicker(f.config.Refresh), time.NewTicker(pause)
	defer refresh.Stop()
	defer timer.Stop()
	for ctx.Err() == nil {
		f.list(ctx)
		f.assign(ctx)
		select {
		case <-ctx.Done():
		case <-f.kick:
		case <-timer.C:
		case <-refresh.C:
			f.mu.Lock()
			f.asked++
			f.mu.Unlock()
		}
	}
	for _, m := range f.all() {
		m.stop()
		<-m.done
	}
	if f.control != nil {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.config.Lease)
		defer cancel()
		f.control.leave(bounded)
	}
}

// list asks for the databases, where it is time.
func (f *Fleet) list(ctx context.Context) {
	f.mu.Lock()
	lister, asked := f.lister, f.asked
	f.mu.Unlock()
	if asked == f.answers {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, f.config.Lease)
	defer cancel()
	listed, err := lister.List(bounded)
	if err == nil {
		err = checkNames(listed)
	}
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		pause := f.listing.Met(err)
		time.AfterFunc(pause, f.look)
		return
	}
	f.listing.Over()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed, f.answers = listed, asked
}

// checkNames refuses a list that has a database without a name, or a name twice.
func checkNames(listed []Database) error {
	known := make(map[string]bool, len(listed))
	for _, d := range listed {
		switch {
		case d.Name == "":
			return errors.New("a database of the list has no name")
		case known[d.Name]:
			return fmt.Errorf("the list has the database %s twice", d.Name)
		}
		known[d.Name] = true
	}
	return nil
}

// assign starts the work on the databases that are to be worked on here, and stops it on the others.
func (f *Fleet) assign(ctx context.Context) {
	f.mu.Lock()
	listed := slices.Clone(f.listed)
	f.reap()
	f.mu.Unlock()
	mine, forwarders := listed, 1
	if f.control != nil {
		var refused error
		mine, forwarders, refused = f.control.look(ctx, listed, f.isOver)
		f.mu.Lock()
		f.leased = ""
		if refused != nil {
			f.leased = refused.Error()
		}
		f.mu.Unlock()
	}
	if ctx.Err() != nil {
		return
	}
	f.config.Forwarder.Share(max(1, len(listed)), forwarders)
	f.mu.Lock()
	defer f.mu.Unlock()
	wanted := make(map[string]Database, len(mine))
	for _, d := range mine {
		wanted[d.Name] = d
	}
	for name, m := range f.members {
		if d, is := wanted[name]; !is || d != m.Database {
			m.stop()
			delete(f.members, name)
			f.ending[name] = m
			if !is && !slices.ContainsFunc(listed, func(d Database) bool { return d.Name == name }) {
				m.forgotten = true
				f.config.Logger.Info("the database is no longer one of the fleet", "database", name)
			}
		}
	}
	for name, d := range wanted {
		if f.members[name] == nil {
			f.members[name] = f.start(ctx, d, f.ending[name])
		}
	}
}

// reap forgets those that have ended. The mutex is held.
func (f *Fleet) reap() {
	for name, m := range f.ending {
		select {
		case <-m.done:
			delete(f.ending, name)
			if m.forgotten && f.members[name] == nil {
				f.config.Forwarder.Forget(name)
			}
		default:
		}
	}
}

// isOver reports whether nothing of a database is under way.
func (f *Fleet) isOver(d Database) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reap()
	works := f.members[d.Name]
	return f.ending[d.Name] == nil && (works == nil || works.Database != d)
}

// all are the members that work, or are stopping.
func (f *Fleet) all() []*member {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*member
	for _, m := range f.members {
		all = append(all, m)
	}
	for _, m := range f.ending {
		all = append(all, m)
	}
	return all
}

// State is how the work on a database stands.
type State string

// The states.
const (
	// StateElsewhere: another forwarder has leased it, or none has yet.
	StateElsewhere State = "elsewhere"
	// StateOpening: it is being opened.
	StateOpening State = "opening"
	// StateAwake: it is worked on.
	StateAwake State = "awake"
	// StateAsleep: there is nothing to do.
	StateAsleep State = "asleep"
	// StateFailing: it cannot be opened or worked on, which is tried again.
	StateFailing State = "failing"
)

// States are all states, in the order in which they come.
func States() []State {
	return []State{StateElsewhere, StateOpening, StateAwake, StateAsleep, StateFailing}
}

// Status is how the work on one database stands.
type Status struct {
	Database string `json:"database"`
	State    State  `json:"state"`
	// Since is when that began; zero for one elsewhere.
	Since time.Time `json:"since,omitzero"`
	// Error is why it fails, or why no database is leased to this forwarder.
	Error string `json:"error,omitempty"`
	// Store is open; nil: it is not.
	Store forwarder.Store `json:"-"`
}

// Databases reports how the databases of the list stand, by name. It uses no database.
func (f *Fleet) Databases() []Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]Status, 0, len(f.listed))
	for _, d := range f.listed {
		if m := f.members[d.Name]; m != nil {
			all = append(all, m.status())
		} else {
			all = append(all, Status{Database: d.Name, State: StateElsewhere, Error: f.leased})
		}
	}
	slices.SortFunc(all, func(a, b Status) int { return cmp.Compare(a.Database, b.Database) })
	return all
}

// Listed are the databases as they were last listed.
func (f *Fleet) Listed() []Database {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.listed)
}
