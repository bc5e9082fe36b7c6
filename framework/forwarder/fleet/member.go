package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/store"
)

// member is the work on one database, from start to stop.
type member struct {
	Database
	fleet     *Fleet
	stop      context.CancelFunc
	done      chan struct{}
	before    *member // the previous member with this name, if any; it ends first
	forgotten bool    // no longer listed

	mu    sync.Mutex
	state State
	since time.Time
	err   error
	store forwarder.Store
}

func (f *Fleet) start(ctx context.Context, d Database, before *member) *member {
	ctx, stop := context.WithCancel(ctx)
	m := &member{Database: d, fleet: f, stop: stop, done: make(chan struct{}), before: before}
	m.enter(StateOpening, nil)
	go m.run(ctx)
	return m
}

// longestTry is the longest pause between two attempts at a failing database.
const longestTry = 15 * time.Second

// openTime bounds one attempt to open a database.
const openTime = 15 * time.Second

// run works on the database until ctx is done.
func (m *member) run(ctx context.Context) {
	defer m.fleet.look()
	defer close(m.done)
	if m.before != nil {
		<-m.before.done
		m.before = nil
	}
	trouble := pace.NewTrouble(m.fleet.config.Logger.With("database", m.Name), "forwarding from the database", longestTry)
	for ctx.Err() == nil {
		err := m.work(ctx, trouble)
		if ctx.Err() != nil || errors.Is(err, forwarder.ErrNotRunning) {
			return
		}
		if errors.Is(err, store.ErrNotMigrated) {
			err = fmt.Errorf("%w (waybill migrate --in %s)", err, m.Name)
		}
		m.enter(StateFailing, err)
		pause := trouble.Met(err)
		if errors.Is(err, store.ErrMixed) {
			<-ctx.Done() // until a person restarts the program
			return
		}
		pace.Sleep(ctx, pause)
	}
}

// work opens the database and works on it while it is awake, until ctx is done or something fails.
func (m *member) work(ctx context.Context, trouble *pace.Trouble) error {
	if m.Mistake != "" {
		return errors.New(m.Mistake)
	}
	bounded, cancel := context.WithTimeout(ctx, openTime)
	o, err := m.fleet.config.Open(bounded, m.Database)
	cancel()
	if err != nil {
		return err
	}
	defer o.Close()
	defer m.keep(nil)
	m.keep(o.Store)
	trouble.Over()
	for {
		calls := m.fleet.watch.called()
		err := m.wake(ctx, o.Store)
		var idle *forwarder.Idle
		switch {
		case errors.As(err, &idle):
			m.enter(StateAsleep, nil)
			if err := m.fleet.watch.sleep(ctx, m, o, idle, calls); err != nil || ctx.Err() != nil {
				return err
			}
		case errors.Is(err, errTurn):
			m.enter(StateOpening, nil)
			if err := m.answers(ctx, o.Store); err != nil {
				return err
			}
		case err == nil:
			return forwarder.ErrNotRunning // the forwarder stops
		default:
			return err
		}
	}
}

// answers returns an error if the database is away: then it waits until it can be opened, and takes no
// turns from the others meanwhile.
func (m *member) answers(ctx context.Context, s forwarder.Store) error {
	bounded, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	_, err := s.Probe(bounded)
	return err
}

// errTurn is why the work on a database pauses: others wait for their turn.
var errTurn = errors.New("others wait for their turn")

// wake works on the database until it is idle, others wait for their turn (errTurn), or ctx is done.
func (m *member) wake(ctx context.Context, s forwarder.Store) error {
	f := m.fleet
	turn, end, err := f.turns.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	m.enter(StateAwake, nil)
	hears := f.hearing.TryAcquire(1)
	if hears {
		defer f.hearing.Release(1)
	}
	err = f.config.Forwarder.RunDatabase(turn, forwarder.Database{
		Name: m.Name, Store: s, Connections: f.config.Connections, Polled: !hears, Sleep: f.turns.sleep(),
	})
	if err == nil && turn.Err() != nil && ctx.Err() == nil {
		return errTurn
	}
	return err
}

// enter sets the state.
func (m *member) enter(s State, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state != s {
		m.state, m.since = s, time.Now()
	}
	m.err = err
}

// looked records the result of a look at a sleeping database, which may be awake by then.
func (m *member) looked(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state == StateAsleep {
		m.err = err
	}
}

func (m *member) keep(s forwarder.Store) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store = s
}

// status returns the status. failed is why the last look failed while the database is awake.
func (m *member) status(failed error) Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state == StateAwake && failed != nil {
		return Status{Database: m.Name, State: StateFailing, Since: m.since, Error: failed.Error(), Store: m.store}
	}
	s := Status{Database: m.Name, State: m.state, Since: m.since, Store: m.store}
	if m.err != nil {
		s.Error = m.err.Error()
	}
	return s
}
