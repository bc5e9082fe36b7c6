package forwarder_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
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

// onlyPostgres runs a test in parallel on PostgreSQL, for what the databases do differently or slowly.
func onlyPostgres(t *testing.T, test func(t *testing.T, o *outbox)) {
	t.Parallel()
	onPostgres(t, test)
}

// onlySQLite runs a test in parallel on SQLite, which is much quicker, for what does not depend on the database.
func onlySQLite(t *testing.T, test func(t *testing.T, o *outbox)) {
	t.Parallel()
	onSQLite(t, test)
}

func onPostgres(t *testing.T, test func(t *testing.T, o *outbox)) {
	dsn := outboxtest.DSN(t)
	synctest.Test(t, func(t *testing.T) { test(t, openPostgres(t, dsn)) })
}

func onSQLite(t *testing.T, test func(t *testing.T, o *outbox)) {
	path := outboxtest.File(t)
	synctest.Test(t, func(t *testing.T) { test(t, openSQLite(t, path)) })
}

// openPostgres opens an outbox with receipts. Outside of a bubble connections and durations are real.
func openPostgres(t *testing.T, dsn string) *outbox {
	t.Helper()
	db, s := outboxtest.PostgreSQL(t, dsn, postgres.Config{Receipts: true})
	return &outbox{t: t, db: db, store: s}
}

// openSQLite is openPostgres for a file.
func openSQLite(t *testing.T, path string) *outbox {
	t.Helper()
	db, s := outboxtest.SQLite(t, path, sqlite.Config{Receipts: true})
	return &outbox{t: t, db: db, store: s}
}

// openPlain opens a database.
func openPlain(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := postgres.OpenDB(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// patience is how long a test in real time waits at most.
const patience = time.Minute

// eventually waits in real time until a condition holds.
func eventually(t testing.TB, holds func() bool, what string) {
	t.Helper()
	require.Eventually(t, holds, patience, 5*time.Millisecond, what)
}

// inRealTime makes a forwarder poll as by default, for tests outside of bubbles.
func inRealTime(c *forwarder.Config) { c.Poll = 0 }

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

// insertMany commits n notifications of type "t", in order, with the ids of numbered("n", n).
func (o *outbox) insertMany(n int, of func(i int) notification.Envelope) {
	o.t.Helper()
	rows := make([]notification.Envelope, n)
	for i, id := range numbered("n", n) {
		rows[i] = of(i)
		rows[i].ID, rows[i].Type = id, "t"
	}
	for chunk := range slices.Chunk(rows, 2000) {
		o.insert(chunk...)
	}
}

// kilobyte is a payload.
var kilobyte = []byte(`"` + strings.Repeat("x", 1000) + `"`)

// engine is a running forwarder.
type engine struct {
	*forwarder.Forwarder
	outbox *outbox
	t      *testing.T
	stop   context.CancelFunc
	ended  chan error
}

// start runs a forwarder until the end of the test. It polls slowly, so that fake hours are cheap. flush and
// Wake make it look at once.
func (o *outbox) start(sinks map[string]forwarder.Sink, routes route.Routes, adjust ...func(*forwarder.Config)) *engine {
	o.t.Helper()
	f, err := forwarder.New(o.config(sinks, routes, adjust...))
	require.NoError(o.t, err)
	e := launch(o.t, f)
	e.outbox = o
	return e
}

// config is the usual configuration of a forwarder.
func (o *outbox) config(sinks map[string]forwarder.Sink, routes route.Routes, adjust ...func(*forwarder.Config)) forwarder.Config {
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
	return c
}

// launch runs a forwarder until the end of the test, unless it is ended before.
func launch(t *testing.T, f *forwarder.Forwarder) *engine {
	ctx, stop := context.WithCancel(t.Context())
	e := &engine{Forwarder: f, t: t, stop: stop, ended: make(chan error, 1)}
	go func() {
		defer close(e.ended)
		e.ended <- f.Run(ctx)
	}()
	t.Cleanup(e.end)
	return e
}

// stopsWithin sets the shutdown timeout.
func stopsWithin(d time.Duration) func(*forwarder.Config) {
	return func(c *forwarder.Config) { c.ShutdownTimeout = d }
}

// leased makes a forwarder lease lanes for a time that matters in a test.
func leased(d time.Duration) func(*forwarder.Config) {
	return func(c *forwarder.Config) { c.Lease = d }
}

// polled makes a forwarder look at the log once in d.
func polled(d time.Duration) func(*forwarder.Config) {
	return func(c *forwarder.Config) { c.Poll = d }
}

// over puts a store between a forwarder and the outbox.
func over(s forwarder.Store) func(*forwarder.Config) {
	return func(c *forwarder.Config) { c.Store = s }
}

// watchedBy gives a forwarder an observer.
func watchedBy(observer event.Observer) func(*forwarder.Config) {
	return func(c *forwarder.Config) { c.Observer = observer }
}

// one starts a forwarder with one sink for all types.
func (o *outbox) one(s forwarder.Sink, adjust ...func(*forwarder.Config)) *engine {
	o.t.Helper()
	return o.start(map[string]forwarder.Sink{"sink": s}, route.Routes{"*": route.To("sink")}, adjust...)
}

// deliver runs a forwarder with the usual sink for some time.
func (o *outbox) deliver(d time.Duration, s forwarder.Sink, adjust ...func(*forwarder.Config)) {
	o.t.Helper()
	f := o.one(s, adjust...)
	pass(d)
	f.flush()
	f.end()
}

// flush wakes the forwarder, and waits until it has delivered and settled everything that it can now.
func (e *engine) flush() {
	e.Wake()
	pass(100 * time.Millisecond) // looks are at least 10 ms apart, and settled rows are written within 25 ms
}

// publish commits notifications of one type, and flushes.
func (e *engine) publish(typ, key string, ids ...string) {
	e.t.Helper()
	e.outbox.append(typ, key, ids...)
	e.flush()
}

// pass lets fake time pass, and waits until everything rests.
func pass(d time.Duration) {
	time.Sleep(d)
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

// answer is the result of a delivery to a sink of a test.
type answer = func(ctx context.Context, d *notification.Delivery) error

// always is a number of attempts that no delivery reaches.
const always = 1 << 30

// fails answers with err to the first attempts of some deliveries, or of all without ids.
func fails(err error, attempts int, ids ...string) answer {
	return func(_ context.Context, d *notification.Delivery) error {
		if d.Attempt <= attempts && (len(ids) == 0 || slices.Contains(ids, d.ID)) {
			return err
		}
		return nil
	}
}

// failsOnce answers with err to the first delivery of some ids, also if they are requeued later.
func failsOnce(err error, ids ...string) answer {
	var begun sync.Map
	return refuses(err, func(d *notification.Delivery) bool {
		_, again := begun.LoadOrStore(d.ID+" to "+d.Sink, true)
		return !again && slices.Contains(ids, d.ID)
	})
}

// refuses answers with err to each delivery that is refused.
func refuses(err error, refused func(d *notification.Delivery) bool) answer {
	return func(_ context.Context, d *notification.Delivery) error {
		if refused(d) {
			return err
		}
		return nil
	}
}

// failsUntil answers with err until a time.
func failsUntil(t time.Time, err error) answer {
	return refuses(err, func(*notification.Delivery) bool { return time.Now().Before(t) })
}

// hangs does not answer to some deliveries before their context ends.
func hangs(ids ...string) answer {
	return func(ctx context.Context, d *notification.Delivery) error {
		if !slices.Contains(ids, d.ID) {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

// takes answers after some time.
func takes(time time.Duration) answer {
	return func(ctx context.Context, _ *notification.Delivery) error { return takesTime(ctx, time) }
}

// takesTime waits for d, or until the context ends.
func takesTime(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// either answers with the first error of several answers.
func either(all ...answer) answer {
	return func(ctx context.Context, d *notification.Delivery) error {
		for _, a := range all {
			if a == nil {
				continue
			}
			if err := a(ctx, d); err != nil {
				return err
			}
		}
		return nil
	}
}

// script is a sink that answers as configured and records its deliveries.
type script struct {
	mu       sync.Mutex
	ids      []string       // in the order in which deliveries began
	at       []beginning    // of all deliveries
	attempts map[string]int // number of the last attempt, by id
	took     map[string]int // successful deliveries, by id
	inFlight int
	most     int // largest number of deliveries at once
	keys     map[string]bool
	overlaps int // deliveries of a key that was already in flight

	answer answer
	mended atomic.Bool // from now on every delivery succeeds, whatever the answer
}

func (s *script) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	s.mu.Lock()
	if s.keys == nil {
		s.keys, s.attempts, s.took = make(map[string]bool), make(map[string]int), make(map[string]int)
	}
	s.ids, s.at = append(s.ids, d.ID), append(s.at, beginning{d.ID, time.Now()})
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
	if s.answer != nil && !s.mended.Load() {
		if err := s.answer(ctx, d); err != nil {
			return "", err
		}
	}
	s.mu.Lock()
	s.took[d.ID]++
	s.mu.Unlock()
	return "taken", nil
}

// beginning is when a delivery of an id began.
type beginning struct {
	id string
	at time.Time
}

// down is a sink whose deliveries fail with err until it is mended.
func down(err error) *script { return &script{answer: fails(err, always)} }

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

// times returns how often each id was delivered.
func (s *script) times() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.took)
}

// begun returns when the deliveries of an id began, or of all without an id.
func (s *script) begun(id string) (at []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.at {
		if id == "" || b.id == id {
			at = append(at, b.at)
		}
	}
	return at
}

// within counts the deliveries that began in a period.
func (s *script) within(from, to time.Time) int {
	return len(slices.DeleteFunc(s.begun(""), func(at time.Time) bool { return at.Before(from) || !at.Before(to) }))
}

// lines keeps logged lines.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// logging makes a forwarder log to l.
func (l *lines) logging(c *forwarder.Config) { c.Logger = slog.New(slog.NewTextHandler(l, nil)) }

// with returns the lines that contain a text.
func (l *lines) with(part string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}

func numbered(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s%04d", prefix, i)
	}
	return ids
}
