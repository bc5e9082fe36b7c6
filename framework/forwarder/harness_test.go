package forwarder_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	outboxes "github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// outbox is a database with an outbox, in a bubble of testing/synctest with fake time.
type outbox struct {
	t     *testing.T
	db    *sql.DB
	store appendable
}

// appendable has the methods of a store that tests need besides the engine's.
type appendable interface {
	forwarder.Store
	outboxes.Log
	store.Inspector
	store.Operator
	store.Pruner
}

// onEachStore runs a test with every database in a bubble with fake time. Waiting for a retry takes
// no time, and synctest.Wait waits until all goroutines are blocked. WAYBILL_TEST_STORES names the only
// database; empty means all.
func onEachStore(t *testing.T, test func(t *testing.T, o *outbox)) {
	onStores(t, os.Getenv("WAYBILL_TEST_STORES"), test)
}

// onEachStoreIfLong is onEachStore for a test that takes seconds on PostgreSQL: -short runs it only on
// SQLite, which is much quicker.
func onEachStoreIfLong(t *testing.T, test func(t *testing.T, o *outbox)) {
	if testing.Short() {
		onStores(t, "sqlite", test)
		return
	}
	onEachStore(t, test)
}

// onStores runs a test with one database, or with all if only is empty.
func onStores(t *testing.T, only string, test func(t *testing.T, o *outbox)) {
	t.Parallel()
	for name, on := range map[string]func(*testing.T, func(*testing.T, *outbox)){"postgres": onPostgres, "sqlite": onSQLite} {
		if only == "" || only == name {
			t.Run(name, func(t *testing.T) { t.Parallel(); on(t, test) })
		}
	}
}

func onPostgres(t *testing.T, test func(t *testing.T, o *outbox)) {
	dsn := postgrestest.DSN(t)
	synctest.Test(t, func(t *testing.T) {
		db, err := postgres.OpenDB(dsn)
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		_, err = postgres.Migrate(t.Context(), db, postgres.Config{})
		require.NoError(t, err)
		s, err := postgres.Open(t.Context(), db, postgres.Config{Receipts: true})
		require.NoError(t, err)
		test(t, &outbox{t: t, db: db, store: s})
	})
}

func onSQLite(t *testing.T, test func(t *testing.T, o *outbox)) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := sqlite.OpenDB(path)
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		_, err = sqlite.Migrate(t.Context(), db, sqlite.Config{})
		require.NoError(t, err)
		s, err := sqlite.Open(t.Context(), db, sqlite.Config{Receipts: true})
		require.NoError(t, err)
		test(t, &outbox{t: t, db: db, store: s})
	})
}

// exec runs a statement for the test.
func (o *outbox) exec(query string, args ...any) {
	o.t.Helper()
	_, err := o.db.ExecContext(o.t.Context(), query, args...)
	require.NoError(o.t, err)
}

// append commits notifications of one type, in one transaction.
func (o *outbox) append(typ, key string, ids ...string) {
	o.t.Helper()
	envelopes := make([]notification.Envelope, len(ids))
	for i, id := range ids {
		envelopes[i] = notification.Envelope{ID: id, Type: typ, Key: key}
	}
	o.insert(envelopes...)
}

// schedule commits one scheduled notification.
func (o *outbox) schedule(typ, key, id string, at time.Time) {
	o.t.Helper()
	o.insert(notification.Envelope{ID: id, Type: typ, Key: key, DeliverAt: at})
}

func (o *outbox) insert(envelopes ...notification.Envelope) {
	o.t.Helper()
	for i := range envelopes {
		if envelopes[i].Payload == nil {
			envelopes[i].Payload = []byte("{}")
		}
	}
	publisher, err := outboxes.New(registry.New(), o.store, outboxes.Config{Announcer: outboxes.Silent})
	require.NoError(o.t, err)
	require.NoError(o.t, publisher.RunInTx(o.t.Context(), o.db, nil, func(ctx context.Context, tx *sql.Tx) error {
		return publisher.Append(ctx, tx, envelopes...)
	}))
}

// parked returns the parked deliveries as "sink state id", in log order.
func (o *outbox) parked() []string {
	o.t.Helper()
	rows, err := o.db.QueryContext(o.t.Context(), `SELECT sink, state, id FROM outbox_parked ORDER BY "offset", sink`)
	require.NoError(o.t, err)
	defer rows.Close()
	var all []string
	for rows.Next() {
		var sink, state, id string
		require.NoError(o.t, rows.Scan(&sink, &state, &id))
		all = append(all, sink+" "+state+" "+id)
	}
	require.NoError(o.t, rows.Err())
	return all
}

// value returns a value from the database.
func value[T any](o *outbox, query string) T {
	o.t.Helper()
	var v T
	require.NoError(o.t, o.db.QueryRowContext(o.t.Context(), query).Scan(&v))
	return v
}

// engine is a running forwarder.
type engine struct {
	*forwarder.Forwarder
	t     *testing.T
	stop  context.CancelFunc
	ended chan error
}

// start runs a forwarder that polls slowly, so that fake hours are cheap. flush and Wake make it look
// at once.
func (o *outbox) start(sinks map[string]forwarder.Sink, routes route.Routes, adjust ...func(*forwarder.Config)) *engine {
	o.t.Helper()
	c := forwarder.Config{
		Store: o.store, Routes: routes, Sinks: sinks, Name: "test",
		Poll:      time.Minute,
		Lease:     time.Hour,
		Retention: forwarder.KeepForever, InboxRetention: forwarder.KeepForever, // fake time begins in 2000, so to the database all rows are old
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, a := range adjust {
		a(&c)
	}
	f, err := forwarder.New(c)
	require.NoError(o.t, err)
	ctx, stop := context.WithCancel(o.t.Context())
	e := &engine{Forwarder: f, t: o.t, stop: stop, ended: make(chan error, 1)}
	go func() { e.ended <- f.Run(ctx) }()
	return e
}

// one starts a forwarder with one sink for all types.
func (o *outbox) one(s forwarder.Sink, adjust ...func(*forwarder.Config)) *engine {
	o.t.Helper()
	return o.start(map[string]forwarder.Sink{"sink": s}, route.Routes{"*": route.To("sink")}, adjust...)
}

// flush wakes the forwarder, and waits until it has delivered and settled everything that it can now.
func (e *engine) flush() {
	e.Wake()
	time.Sleep(100 * time.Millisecond) // fake time: looks are at least 10 ms apart, and settled rows are written within 25 ms
	synctest.Wait()
}

// end stops the forwarder gracefully.
func (e *engine) end() {
	e.t.Helper()
	e.stop()
	require.NoError(e.t, <-e.ended)
}

// abandon stops the forwarder and ignores its error.
func (e *engine) abandon() {
	e.stop()
	if err := <-e.ended; err != nil {
		e.t.Log(err)
	}
}

// script is a sink that answers as configured and records its deliveries.
type script struct {
	mu       sync.Mutex
	ids      []string       // in the order in which deliveries began
	attempts map[string]int // number of the last attempt, by id
	inFlight int
	most     int // largest number of deliveries at once
	keys     map[string]bool
	overlaps int // deliveries of a key that was already in flight

	answer func(ctx context.Context, d *notification.Delivery) error
}

func (s *script) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	s.mu.Lock()
	if s.keys == nil {
		s.keys, s.attempts = make(map[string]bool), make(map[string]int)
	}
	s.ids = append(s.ids, d.ID)
	s.attempts[d.ID] = d.Attempt
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	if d.Key != "" && s.keys[d.Key] {
		s.overlaps++
	}
	s.keys[d.Key] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inFlight--
		s.keys[d.Key] = false
	}()
	if s.answer == nil {
		return "taken", nil
	}
	if err := s.answer(ctx, d); err != nil {
		return "", err
	}
	return "taken", nil
}

// given returns the ids in the order in which their deliveries began, and clears the list.
func (s *script) given() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := s.ids
	s.ids = nil
	return ids
}

// mostAtOnce returns how many deliveries were in flight at once since its last call.
func (s *script) mostAtOnce() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := s.most
	s.most = 0
	return most
}

func numbered(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s%04d", prefix, i)
	}
	return ids
}
