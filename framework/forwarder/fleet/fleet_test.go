package fleet_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/forwarder/fleet"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// sink records database and id of its deliveries.
type sink struct {
	mu    sync.Mutex
	given []string
}

func (s *sink) Deliver(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.given = append(s.given, d.Metadata[notification.MetadataDatabase]+" "+d.ID)
	return "", nil
}

func (s *sink) has(deliveries ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(deliveries, func(d string) bool { return !slices.Contains(s.given, d) })
}

// of returns the ids of a database, in the order of delivery.
func (s *sink) of(database string) (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.given {
		if id, ok := strings.CutPrefix(d, database+" "); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// lists is a Lister with a list that the test changes.
type lists struct {
	mu     sync.Mutex
	listed []fleet.Database
	err    error
}

func (l *lists) List(context.Context) ([]fleet.Database, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.listed), l.err
}

func (l *lists) set(err error, listed ...fleet.Database) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listed, l.err = listed, err
}

// folder contains SQLite outboxes.
type folder struct {
	t    *testing.T
	path string
}

func newFolder(t *testing.T) folder { return folder{t, t.TempDir()} }

// outbox creates an outbox.
func (f folder) outbox(name string) fleet.Database {
	f.t.Helper()
	db := f.open(name)
	_, err := sqlite.Migrate(f.t.Context(), db, sqlite.Config{})
	require.NoError(f.t, err)
	return f.at(name, name)
}

// at returns the database in a file.
func (f folder) at(name, file string) fleet.Database {
	path := filepath.Join(f.path, file+".db")
	return fleet.Database{Name: name, Address: path, Identity: path}
}

func (f folder) open(name string) *sql.DB {
	f.t.Helper()
	db, err := sqlite.OpenDB(filepath.Join(f.path, name+".db"))
	require.NoError(f.t, err)
	f.t.Cleanup(func() { require.NoError(f.t, db.Close()) })
	return db
}

func (f folder) publish(name string, ids ...string) {
	f.t.Helper()
	db, err := sqlite.OpenDB(filepath.Join(f.path, name+".db"))
	require.NoError(f.t, err)
	defer db.Close()
	for _, id := range ids {
		_, err := db.ExecContext(f.t.Context(), `INSERT INTO outbox (id, type, key, payload) VALUES (?, 't', 'k', '{}')`, id)
		require.NoError(f.t, err)
	}
}

func openOutbox(ctx context.Context, d fleet.Database) (fleet.Outbox, error) {
	db, err := sqlite.OpenDB(d.Address)
	if err != nil {
		return fleet.Outbox{}, err
	}
	s, err := sqlite.Open(ctx, db, sqlite.Config{})
	if err != nil {
		return fleet.Outbox{}, errors.Join(err, db.Close())
	}
	return fleet.Outbox{Store: s, Close: func() { _ = db.Close() }}, nil
}

// opened returns the store of a database until the end of the test.
func (f folder) opened(d fleet.Database) forwarder.Store {
	f.t.Helper()
	o, err := openOutbox(f.t.Context(), d)
	require.NoError(f.t, err)
	f.t.Cleanup(o.Close)
	return o.Store
}

func isOpen(s fleet.ControlStore) func(context.Context) (fleet.ControlStore, error) {
	return func(context.Context) (fleet.ControlStore, error) { return s, nil }
}

// running is a running fleet.
type running struct {
	*fleet.Fleet
	t    *testing.T
	stop context.CancelFunc
	done chan error
	once sync.Once

	folder folder
	sink   *sink
}

func start(f folder, s *sink, list fleet.Lister, adjust ...func(*fleet.Config)) *running {
	t := f.t
	t.Helper()
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	delivering, err := forwarder.New(forwarder.Config{
		Fleet: true, Routes: route.Routes{"*": route.To("sink")}, Sinks: map[string]forwarder.Sink{"sink": {Sink: s}}, Lease: 10 * time.Second, Logger: logger,
	})
	require.NoError(t, err)
	c := fleet.Config{Forwarder: delivering, Databases: list, Open: openOutbox, Lease: 2 * time.Second, Refresh: time.Hour, Sleep: fleet.Never, Logger: logger}
	for _, a := range adjust {
		a(&c)
	}
	all, err := fleet.New(c)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &running{Fleet: all, t: t, stop: stop, done: make(chan error, 1), folder: f, sink: s}
	go func() { r.done <- all.Run(ctx) }()
	t.Cleanup(r.end)
	return r
}

func (r *running) end() {
	r.once.Do(func() {
		r.stop()
		require.NoError(r.t, <-r.done)
	})
}

func (r *running) await(database string, state fleet.State) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return r.state(database) == state }, time.Minute, 5*time.Millisecond,
		"database %s should become %s", database, state)
}

// fails waits until a database fails with a text in its error. A busy machine may cause others before.
func (r *running) fails(database, text string) {
	r.t.Helper()
	eventually(r.t, func() bool {
		return slices.ContainsFunc(r.Databases(), func(d fleet.Status) bool {
			return d.Database == database && d.State == fleet.StateFailing && strings.Contains(d.Error, text)
		})
	}, "database "+database+" should fail: "+text)
}

func (r *running) state(database string) fleet.State {
	for _, d := range r.Databases() {
		if d.Database == database {
			return d.State
		}
	}
	return ""
}

// awake counts the databases that the fleet works on.
func (r *running) awake() (n int) {
	for _, d := range r.Databases() {
		if d.State == fleet.StateAwake {
			n++
		}
	}
	return n
}

// delivers publishes one more notification to each of some databases, and waits for its delivery.
func (r *running) delivers(id string, databases ...string) {
	r.t.Helper()
	for _, name := range databases {
		r.folder.publish(name, id)
	}
	for _, name := range databases {
		eventually(r.t, func() bool { return r.sink.has(name + " " + id) }, fmt.Sprintf("%s should be delivered from %s", id, name))
	}
}

func eventually(t *testing.T, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, 5*time.Millisecond, what)
}

func TestDatabasesAreAddedAndRemovedWhileOthersDeliver(t *testing.T) {
	t.Parallel()
	f, s, list := newFolder(t), &sink{}, &lists{}
	eu, us := f.outbox("eu"), f.outbox("us")
	list.set(nil, eu)
	r := start(f, s, list)
	r.delivers("1", "eu")

	list.set(nil, eu, us)
	r.Refresh()
	r.delivers("1", "us")

	list.set(errors.New("the list cannot be read"))
	r.Refresh()
	r.delivers("2", "eu", "us") // without a list the databases should stay

	list.set(nil)
	r.Refresh()
	r.delivers("3", "eu", "us") // an empty list should stop no database

	list.set(nil, us)
	r.Refresh()
	eventually(t, func() bool { return len(r.Databases()) == 1 }, "eu should be removed")
	r.delivers("4", "us")
	r.end()
	require.Equal(t, []string{"1", "2", "3"}, s.of("eu"))
}

func TestAWrongEntryOfTheListCostsTheOthersNothing(t *testing.T) {
	t.Parallel()
	f, s := newFolder(t), &sink{}
	eu, us := f.outbox("eu"), f.outbox("us")
	control := f.opened(f.outbox("control"))
	list := fleet.Static{eu, us, {Name: "?", Mistake: "a database has a name"}, eu, f.at("us", "eu")}
	r := start(f, s, list, func(c *fleet.Config) { c.Control = isOpen(control) })
	r.await("us", fleet.StateFailing)
	r.await("?", fleet.StateFailing)
	found := r.Databases()
	require.Len(t, found, 3)
	require.Contains(t, found[0].Error, "a database has a name")
	require.Contains(t, found[2].Error, "several addresses")
	r.delivers("1", "eu")
}

func TestADatabaseWithTwoNamesIsDeliveredOnceAndInOrder(t *testing.T) {
	t.Parallel()
	f, s := newFolder(t), &sink{}
	r := start(f, s, fleet.Static{f.outbox("eu"), f.at("twin", "eu")})
	r.await("eu", fleet.StateAwake)
	r.await("twin", fleet.StateAwake)
	var ids []string
	for i := range 300 {
		ids = append(ids, fmt.Sprint(i))
	}
	f.publish("eu", ids...)
	eventually(t, func() bool { return len(s.of("eu"))+len(s.of("twin")) >= len(ids) }, "all should be delivered")
	r.end()
	var given []string
	for _, d := range s.given {
		_, id, _ := strings.Cut(d, " ")
		given = append(given, id)
	}
	require.Equal(t, ids, given, "the names share the lane like two forwarders")
}

func TestADatabaseThatMovesIsOpenedAgain(t *testing.T) {
	t.Parallel()
	f, s, list := newFolder(t), &sink{}, &lists{}
	f.outbox("old")
	f.outbox("new")
	list.set(nil, f.at("eu", "old"))
	r := start(f, s, list)
	f.publish("old", "1")
	eventually(t, func() bool { return s.has("eu 1") }, "the forwarder should deliver from the old address")
	list.set(nil, f.at("eu", "new"))
	r.Refresh()
	f.publish("new", "2")
	eventually(t, func() bool { return s.has("eu 2") }, "the forwarder should deliver from the new address")
	f.publish("old", "3")
	r.end()
	require.NotContains(t, s.of("eu"), "3")
}

func TestADatabaseWithoutTablesCostsTheOthersNothing(t *testing.T) {
	t.Parallel()
	f, s := newFolder(t), &sink{}
	eu := f.outbox("eu")
	r := start(f, s, fleet.Static{eu, f.at("us", "us")})
	r.fails("us", "waybill migrate --in us")
	r.delivers("1", "eu")
	f.outbox("us")
	r.delivers("1", "us")
}

// dying is a database that answers until it is dead.
type dying struct {
	forwarder.Store
	dead  atomic.Bool
	beats atomic.Int64
}

var errDead = errors.New("the database is dead")

func (d *dying) Probe(ctx context.Context) (store.Target, error) {
	if d.dead.Load() {
		return nil, errDead
	}
	return d.Store.Probe(ctx)
}

func (d *dying) Heartbeat(ctx context.Context, m store.Member, ttl time.Duration) error {
	d.beats.Add(1)
	return d.Store.Heartbeat(ctx, m, ttl)
}

func TestADatabaseThatDiesIsFailingAndTakesNoTurns(t *testing.T) {
	t.Parallel()
	f, s, its := newFolder(t), &sink{}, &dying{}
	r := start(f, s, fleet.Static{f.outbox("eu"), f.outbox("us")}, func(c *fleet.Config) {
		c.Awake, c.Sleep = 1, 200*time.Millisecond
		c.Open = func(ctx context.Context, d fleet.Database) (fleet.Outbox, error) {
			o, err := openOutbox(ctx, d)
			if err != nil || d.Name != "eu" {
				return o, err
			}
			if its.dead.Load() {
				o.Close()
				return fleet.Outbox{}, errDead
			}
			its.Store, o.Store = o.Store, its // dying is no store.Sampler, so this database does not sleep
			return o, nil
		}
	})
	r.await("eu", fleet.StateAwake)
	r.await("us", fleet.StateAsleep)
	its.dead.Store(true)
	r.await("eu", fleet.StateFailing)
	r.delivers("1", "us")
	r.await("eu", fleet.StateFailing)
	turns := its.beats.Load()
	for _, id := range []string{"2", "3"} {
		r.await("us", fleet.StateAsleep)
		r.delivers(id, "us")
	}
	require.Equal(t, turns, its.beats.Load(), "a dead database takes turns")
}

func TestADatabaseSleepsAndWakesForARow(t *testing.T) {
	t.Parallel()
	f, s := newFolder(t), &sink{}
	r := start(f, s, fleet.Static{f.outbox("eu")}, func(c *fleet.Config) { c.Sleep = 200 * time.Millisecond })
	r.delivers("1", "eu")
	r.await("eu", fleet.StateAsleep)
	var owned int
	require.NoError(t, f.open("eu").QueryRowContext(t.Context(), `SELECT count(*) FROM outbox_cursors WHERE owner IS NOT NULL`).Scan(&owned))
	require.Zero(t, owned, "its lanes are released")
	r.delivers("2", "eu")
	r.await("eu", fleet.StateAsleep)
	r.end()
	require.Equal(t, []string{"1", "2"}, s.of("eu"))
}

func TestADatabaseWakesForAnAction(t *testing.T) {
	t.Parallel()
	f, s := newFolder(t), &sink{}
	r := start(f, s, fleet.Static{f.outbox("eu")}, func(c *fleet.Config) { c.Sleep = 200 * time.Millisecond })
	r.await("eu", fleet.StateAsleep)
	operator := admin.New(f.opened(f.at("eu", "eu")).(admin.Store), "ada")
	_, err := operator.Pause(t.Context(), "sink")
	require.NoError(t, err)
	eventually(t, func() bool { return r.state("eu") == fleet.StateAwake }, "the pause should wake it")
	f.publish("eu", "1")
	r.await("eu", fleet.StateAsleep) // a paused sink has nothing to do
	require.False(t, s.has("eu 1"))
	_, err = operator.Resume(t.Context(), "sink")
	require.NoError(t, err)
	eventually(t, func() bool { return s.has("eu 1") }, "resuming should wake it")
}

func TestForwardersShareDatabasesThroughTheControlDatabase(t *testing.T) {
	t.Parallel()
	f, s := newFolder(t), &sink{}
	var all fleet.Static
	for i := range 6 {
		all = append(all, f.outbox(fmt.Sprint("tenant", i)))
	}
	control := f.outbox("control")
	withControl := func(identity string) func(*fleet.Config) {
		return func(c *fleet.Config) {
			c.Control, c.Identity, c.Lease = isOpen(f.opened(control)), identity, 10*time.Second
		}
	}
	first := start(f, s, all, withControl("a"))
	eventually(t, func() bool { return first.awake() == 6 }, "one forwarder should work on all")
	second := start(f, s, all, withControl("a"))
	eventually(t, func() bool { return first.awake() == 3 && second.awake() == 3 }, "two forwarders should share")
	other := start(f, s, all, withControl("b"))
	eventually(t, func() bool {
		found := other.Databases()
		return len(found) > 0 && strings.Contains(found[0].Error, fleet.ErrOtherFleet.Error())
	}, "another fleet should be refused")
	eventually(t, func() bool { return first.awake() == 3 && second.awake() == 3 && other.awake() == 0 }, "the first fleet is not affected")
	first.end()
	eventually(t, func() bool { return second.awake() == 6 }, "the other forwarder should take over")
	second.end()
	eventually(t, func() bool { return other.awake() == 6 }, "the other fleet should get the control database once the first one has ended")
	for i := range 6 {
		f.publish(fmt.Sprint("tenant", i), "1", "2", "3")
	}
	for i := range 6 {
		name := fmt.Sprint("tenant", i)
		eventually(t, func() bool { return s.has(name + " 3") }, "the forwarder should deliver from "+name)
		require.Equal(t, []string{"1", "2", "3"}, s.of(name))
	}
}

// awayStore is a control database that can be away.
type awayStore struct {
	fleet.ControlStore
	away atomic.Bool
}

func (a *awayStore) Membership(ctx context.Context) (store.Membership, error) {
	if a.away.Load() {
		return store.Membership{}, errors.New("connection refused")
	}
	return a.ControlStore.Membership(ctx)
}

func TestAControlDatabaseThatIsAwayStopsNothing(t *testing.T) {
	t.Parallel()
	f, s := newFolder(t), &sink{}
	all := fleet.Static{f.outbox("eu"), f.outbox("us")}
	opens, control := atomic.Bool{}, &awayStore{ControlStore: f.opened(f.outbox("control"))}
	controlled := func(c *fleet.Config) {
		c.Control = func(context.Context) (fleet.ControlStore, error) {
			if !opens.Load() {
				return nil, errors.New("connection refused")
			}
			return control, nil
		}
	}
	first, second := start(f, s, all, controlled), start(f, s, all, controlled)
	eventually(t, func() bool { return first.awake() == 2 && second.awake() == 2 }, "each should work on all databases")
	first.delivers("1", "eu", "us") // delivery should not need the control database

	opens.Store(true)
	eventually(t, func() bool { return first.awake() == 1 && second.awake() == 1 }, "the control database should lease one to each")

	control.away.Store(true)
	second.end()
	first.delivers("2", "eu", "us") // the other forwarder's database should be taken over
	require.Equal(t, []string{"1", "2"}, s.of("eu"))
	require.Equal(t, []string{"1", "2"}, s.of("us"))
}

func TestADatabaseWhoseFileIsReplacedIsOpenedAgain(t *testing.T) {
	t.Parallel()
	for state, sleep := range map[fleet.State]time.Duration{fleet.StateAwake: fleet.Never, fleet.StateAsleep: time.Millisecond} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			f, s := newFolder(t), &sink{}
			r := start(f, s, fleet.Static{f.outbox("eu")}, func(c *fleet.Config) { c.Sleep = sleep })
			r.delivers("1", "eu")
			r.await("eu", state)
			for _, ending := range []string{"", "-wal", "-shm"} {
				require.NoError(t, os.Remove(filepath.Join(f.path, "eu.db"+ending)))
			}
			f.outbox("eu")
			r.delivers("2", "eu")

			r.await("eu", state)
			another, err := f.open("eu").Conn(t.Context()) // keeps the log of the file, even if the forwarder has closed it
			require.NoError(t, err)
			defer another.Close()
			_, err = another.ExecContext(t.Context(), "DELETE FROM outbox WHERE false")
			require.NoError(t, err)
			require.NoError(t, os.Rename(filepath.Join(f.path, "eu.db"), filepath.Join(f.path, "old.db")))
			r.fails("eu", "eu.db-wal still belongs to the old file")
		})
	}
}
