// Package fleet runs one forwarder for changing databases: those of a list, or of a query
// that is repeated. The threshold, breaker, rate and fairness of a sink apply to all of them
// together.
//
// Each database is independent: if one cannot be reached, has no tables or has another problem, it
// is tried again without affecting the others. A database with nothing to do sleeps: its lanes are
// released, and looks, usually one a second, notice new rows. Neighbours (schemas of one database)
// share a look.
//
// Several forwarders may run one fleet. Without a control database each of them works on all
// databases, and the leases of the lanes distribute the work. A control database leases each
// database to one of the forwarders. That only distributes the work better: it is still the leases
// of the lanes that prevent two forwarders from working on one lane.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/pace"
)

// Defaults of Config.
const (
	DefaultRefresh = time.Minute
	DefaultSleep   = 10 * time.Second
)

// Never, as Config.Sleep, keeps databases awake.
const Never = time.Duration(1<<63 - 1)

// Database is a database of a fleet.
type Database struct {
	// Name identifies it. It is added as metadata to every envelope read from it.
	Name string
	// Address is its address, which may contain a password. If a database's address changes, it
	// is closed and opened again.
	Address string
	// Identity is the address without its secrets. Forwarders that share a control database
	// treat databases with different identities as different databases.
	Identity string
	// Mistake says why the database cannot be opened, if its entry of the list is wrong. It is
	// listed as failing.
	Mistake string
}

// Lister knows which databases the fleet has.
type Lister interface {
	// List returns them. If it fails or returns none, the databases of the last list remain. A
	// name with several addresses is a Mistake.
	List(ctx context.Context) ([]Database, error)
}

// Static is a Lister of a fixed list of databases.
type Static []Database

// List implements Lister.
func (s Static) List(context.Context) ([]Database, error) { return s, nil }

// Outbox is an open database.
type Outbox struct {
	Store forwarder.Store
	Close func()
	// Connects means that a look at it needs a connection, of which there may be too few; see
	// Config.Looks.
	Connects bool
}

// Config is the configuration of a fleet. Forwarder, Databases and Open are required.
type Config struct {
	// Forwarder has Config.Fleet set. Run runs it.
	Forwarder *forwarder.Forwarder
	Databases Lister
	// Open opens a database. It is called again after an error.
	Open func(ctx context.Context, d Database) (Outbox, error)
	// Control opens the control database, which leases databases to forwarders. It is called again
	// after an error. nil means that each forwarder works on all databases, as each does while the
	// control database is away for longer than two leases.
	Control func(ctx context.Context) (ControlStore, error)
	// Identity is what forwarders that share Control must have in common in their configurations,
	// such as the names of the sinks.
	Identity string
	// Lease is how long a forwarder keeps a database without renewing its lease; default
	// forwarder.DefaultLease.
	Lease time.Duration
	// Refresh is the interval between two calls of List; default DefaultRefresh.
	Refresh time.Duration
	// Sleep is how long a database has nothing to do before it sleeps; default DefaultSleep. Never
	// keeps all databases awake.
	Sleep time.Duration
	// Connections are those of each forwarder.Database.
	Connections int
	// Listeners is how many awake databases are listened to at once; the others are polled.
	Listeners int
	// Awake is how many databases are worked on at once; 0: no bound. With more of them those that have
	// something to do take turns, and one that has nothing to do sleeps at once. It has no effect with Sleep Never.
	Awake int
	// Looks is how many looks at sleeping databases in a second need a connection, at most; neighbours
	// need one together. 0: no bound. With more databases each is looked at less often than once a
	// second, in turn.
	Looks int
	// Logger gets one line for each change in the state of a database; default: slog's.
	Logger *slog.Logger
}

// Fleet is a forwarder and its databases. It is safe for concurrent use.
type Fleet struct {
	config  Config
	control *control // nil without Config.Control
	watch   *watch
	hearing *semaphore.Weighted
	turns   *turns
	listing *pace.Trouble
	kick    chan struct{} // capacity 1: begin a turn now

	mu      sync.Mutex
	lister  Lister
	asked   int // how many calls of List were requested
	answers int // how many of them have been answered
	listed  []Database
	members map[string]*member
	ending  map[string]*member // being stopped
	leased  string             // why Control leases nothing to this forwarder; "" if it does
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
		config: c, watch: newWatch(c.Logger, c.Looks), hearing: semaphore.NewWeighted(int64(c.Listeners)), turns: newTurns(c.Awake, c.Sleep), lister: c.Databases, asked: 1, kick: make(chan struct{}, 1),
		listing: pace.NewTrouble(c.Logger, "listing the databases of the fleet", 0),
		members: make(map[string]*member), ending: make(map[string]*member),
	}
	if c.Control != nil {
		f.control = newControl(c.Control, c.Forwarder.Owner(), c.Identity, c.Lease, c.Logger)
	}
	return f, nil
}

// Run runs the forwarder over the databases until ctx is done, and then stops gracefully. Its error
// is that of [forwarder.Forwarder.Run].
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

// Follow replaces the list and calls Refresh, which wakes all databases: the routes to their sinks
// may have changed.
func (f *Fleet) Follow(l Lister) {
	f.mu.Lock()
	f.lister = l
	f.mu.Unlock()
	f.Refresh()
}

// Refresh asks the list at once and wakes all sleeping databases.
func (f *Fleet) Refresh() {
	f.mu.Lock()
	f.asked++
	f.mu.Unlock()
	f.watch.wakeAll()
	f.look()
}

// look makes follow begin a turn.
func (f *Fleet) look() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// follow starts and stops the work on databases. It returns when ctx is done and all work has
// ended.
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

// list calls List if that was requested.
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
		listed, err = Accept(listed)
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

// Accept returns the databases of a list, each name once. An empty list is an error: more likely
// something is wrong with it than that there is nothing to do.
func Accept(listed []Database) ([]Database, error) {
	if len(listed) == 0 {
		return nil, errors.New("no database is listed")
	}
	all := make([]Database, 0, len(listed))
	known := make(map[string]int, len(listed))
	for _, d := range listed {
		at, is := known[d.Name]
		switch {
		case !is:
			known[d.Name] = len(all)
			all = append(all, d)
		case all[at] != d:
			all[at] = Database{Name: d.Name, Mistake: "the list has this name with several addresses"}
		}
	}
	return all, nil
}

// assign starts the work on the databases of this forwarder, and stops it on the others.
func (f *Fleet) assign(ctx context.Context) {
	f.mu.Lock()
	listed := slices.Clone(f.listed)
	f.reap()
	f.mu.Unlock()
	mine, forwarders := listed, 1
	if f.control != nil {
		var refused error
		right, wrong := apart(listed)
		mine, forwarders, refused = f.control.look(ctx, right, f.isOver)
		mine = append(mine, wrong...) // which each forwarder shows as failing
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

// apart separates the databases with a Mistake from the others.
func apart(listed []Database) (right, wrong []Database) {
	for _, d := range listed {
		if d.Mistake == "" {
			right = append(right, d)
		} else {
			wrong = append(wrong, d)
		}
	}
	return right, wrong
}

// reap removes the members that have ended. The mutex is held.
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

// isOver reports whether no work on a database is running.
func (f *Fleet) isOver(d Database) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reap()
	works := f.members[d.Name]
	return f.ending[d.Name] == nil && (works == nil || works.Database != d)
}

// all returns the members that work or are stopping.
func (f *Fleet) all() []*member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Values(f.members)), maps.Values(f.ending))
}

// State is the state of the work on a database.
type State string

// The states.
const (
	// StateElsewhere means that another forwarder has leased it, or that none has yet.
	StateElsewhere State = "elsewhere"
	// StateOpening means that it is being opened.
	StateOpening State = "opening"
	// StateAwake means that a forwarder works on it.
	StateAwake State = "awake"
	// StateAsleep means that there is nothing to do.
	StateAsleep State = "asleep"
	// StateFailing means that it cannot be opened, read or leased from; it is tried again.
	StateFailing State = "failing"
)

// Status describes the work on one database.
type Status struct {
	Database string `json:"database"`
	State    State  `json:"state"`
	// Since is when the state began; zero for StateElsewhere.
	Since time.Time `json:"since,omitzero"`
	// Error says why it fails, or why no database is leased to this forwarder.
	Error string `json:"error,omitempty"`
	// Store is nil if the database is not open.
	Store forwarder.Store `json:"-"`
}

// Databases returns the status of each listed database, by name. It uses no database.
func (f *Fleet) Databases() []Status {
	failed := make(map[string]error)
	for _, d := range f.config.Forwarder.Figures().Databases {
		failed[d.Database] = d.Failed
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]Status, 0, len(f.listed))
	for _, d := range f.listed {
		if m := f.members[d.Name]; m != nil {
			all = append(all, m.status(failed[d.Name]))
		} else {
			all = append(all, Status{Database: d.Name, State: StateElsewhere, Error: f.leased})
		}
	}
	slices.SortFunc(all, func(a, b Status) int { return cmp.Compare(a.Database, b.Database) })
	return all
}

// Listed returns the databases of the last list.
func (f *Fleet) Listed() []Database {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.listed)
}
