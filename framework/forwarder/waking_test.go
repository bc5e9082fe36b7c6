package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	outboxes "github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/registry"
)

// separated is an outbox whose publisher and forwarder share only the database, like two processes. It
// runs in real time.
type separated struct {
	t         testing.TB
	dsn       string
	publisher *outboxes.Publisher
	db        *sql.DB // of the publisher
	arrived   chan string
}

// announcedOrder is the notification that is published.
type announcedOrder struct {
	ID string `json:"id"`
}

func newSeparated(t testing.TB, c outboxes.Config) *separated {
	t.Helper()
	o := &separated{t: t, dsn: outboxtest.DSN(t), arrived: make(chan string, 10_000)}
	db, s := outboxtest.PostgreSQL(t, o.dsn, postgres.Config{})
	o.db = db
	types := registry.New()
	require.NoError(t, registry.Register[announcedOrder](types, "order", registry.Version(1)))
	var err error
	o.publisher, err = outboxes.New(types, s, c)
	require.NoError(t, err)
	return o
}

// listening is an address whose connections can be recognized.
func (o *separated) listening() string {
	u, err := url.Parse(o.dsn)
	require.NoError(o.t, err)
	q := u.Query()
	q.Set("application_name", "listener")
	u.RawQuery = q.Encode()
	return u.String()
}

// forward starts a forwarder with separate connections. It listens at the address, if any, and looks
// at the log after pauses of at most longest.
func (o *separated) forward(listen string, longest time.Duration, adjust ...func(*forwarder.Config)) *watchedForwarder {
	o.t.Helper()
	s, err := postgres.Open(o.t.Context(), openPlain(o.t, o.dsn), postgres.Config{Listen: listen})
	require.NoError(o.t, err)
	c := &watchedForwarder{t: o.t, looks: make(chan struct{}, 1)}
	config := forwarder.Config{
		Store: s, Observer: watching{looks: c.looks}, Routes: route.Routes{"*": route.To("here")},
		Sinks:  map[string]forwarder.Sink{"here": {Sink: arrivals(o.arrived)}},
		Poll:   longest,
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, a := range adjust {
		a(&config)
	}
	c.Forwarder, err = forwarder.New(config)
	require.NoError(o.t, err)
	ctx, stop := context.WithCancel(o.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	c.end = sync.OnceFunc(func() {
		stop()
		require.NoError(o.t, <-ended)
	})
	o.t.Cleanup(c.end)
	return c
}

// watchedForwarder is a running forwarder whose looks at the log a test can wait for.
type watchedForwarder struct {
	*forwarder.Forwarder
	t     testing.TB
	looks chan struct{} // receives a value after each look at the log
	end   func()
}

// rest waits until the forwarder has looked at the log for everything that has woken it so far.
func (c *watchedForwarder) rest() {
	c.t.Helper()
	for range 3 { // looks may have a value of an earlier look
		c.Wake()
		select {
		case <-c.looks:
		case <-time.After(patience):
			c.t.Fatal("the forwarder does not look at the log")
		}
	}
}

// watching is an observer that reports looks at the log.
type watching struct {
	looks chan struct{}
}

func (w watching) Observe(e event.Event) {
	if _, ok := e.(*event.Look); !ok {
		return
	}
	select {
	case w.looks <- struct{}{}:
	default:
	}
}

// arrivals is a sink that reports the ids it gets.
type arrivals chan string

func (a arrivals) Deliver(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
	a <- d.ID
	return "", nil
}

func (o *separated) publish(id string) {
	o.t.Helper()
	require.NoError(o.t, o.publisher.RunInTx(o.t.Context(), o.db, nil, func(ctx context.Context, tx *sql.Tx) error {
		return o.publisher.Publish(ctx, tx, outboxes.With(announcedOrder{ID: id}, outboxes.ID(id)))
	}))
}

// await waits until a notification arrives. It publishes others meanwhile: a machine that stalls may lose an announcement.
func (o *separated) await(id string) {
	o.t.Helper()
	const other = "other"
	for start := time.Now(); time.Since(start) < patience; {
		select {
		case got := <-o.arrived:
			if got != other {
				require.Equal(o.t, id, got)
				return
			}
		case <-time.After(10 * time.Second):
			o.publish(other)
		}
	}
	o.t.Fatalf("%s should arrive", id)
}

func TestAnAnnouncementWakesAForwarderInAnotherProcess(t *testing.T) {
	t.Parallel()
	o := newSeparated(t, outboxes.Config{})
	f := o.forward(o.dsn, time.Hour)
	for _, id := range []string{"a", "b", "c"} {
		f.rest()
		o.publish(id)
		o.await(id)
	}
}

func TestACommitWakesTheForwarderOfItsProcessWithoutListening(t *testing.T) {
	t.Parallel()
	var f *watchedForwarder
	o := newSeparated(t, outboxes.Config{Wake: func() { f.Wake() }, Announcer: outboxes.Silent})
	f = o.forward("", time.Hour)
	for _, id := range []string{"a", "b", "c"} {
		f.rest()
		o.publish(id)
		o.await(id)
	}
}

func TestAForwarderWhoseListeningConnectionIsKilledListensAgain(t *testing.T) {
	t.Parallel()
	o := newSeparated(t, outboxes.Config{})
	f := o.forward(o.listening(), time.Hour)
	o.publish("before")
	o.await("before")
	for _, id := range []string{"a", "b", "c"} {
		eventually(t, func() bool { // it listens again after a pause
			var killed int
			require.NoError(t, o.db.QueryRowContext(t.Context(),
				`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
				WHERE application_name = 'listener' AND datname = current_database()`).Scan(&killed))
			return killed == 1
		}, "the forwarder listens")
		f.rest()
		o.publish(id)
		o.await(id)
	}
}

func TestAListeningErrorIsLoggedOnceAndPollingContinues(t *testing.T) {
	t.Parallel()
	o := newSeparated(t, outboxes.Config{Announcer: outboxes.Silent})
	opened, err := postgres.Open(t.Context(), o.db, postgres.Config{})
	require.NoError(t, err)
	s := &deafStore{Store: opened, failures: 3, listening: make(chan struct{})}
	var log lines
	f := o.forward("", time.Second, over(s), log.logging)
	o.publish("a")
	o.await("a")
	<-s.listening
	f.end()
	require.Len(t, log.with("listening failed"), 1)
	require.Len(t, log.with("listening works again"), 1)
}

// deafStore fails to listen a number of times, then listens and closes listening.
type deafStore struct {
	*postgres.Store
	failures  int
	listening chan struct{}
}

func (s *deafStore) Listen(ctx context.Context, hear func(store.News)) error {
	if s.failures > 0 {
		s.failures--
		return errors.New("the connection is closed")
	}
	hear(store.NewsUnknown)
	close(s.listening)
	<-ctx.Done()
	return nil
}

// The forwarders read the membership every three minutes, and at once when a lane is announced.
func TestTheLanesOfAForwarderThatStopsAreTakenOverAtOnce(t *testing.T) {
	t.Parallel()
	o := newSeparated(t, outboxes.Config{})
	slowly := func(c *forwarder.Config) { c.Lease = time.Hour }
	first := o.forward(o.dsn, time.Hour, slowly)
	o.publish("a")
	o.await("a")
	second := o.forward(o.dsn, time.Hour, slowly)
	o.publish("b")
	o.await("b")
	first.end()
	o.publish("c")
	o.await("c")
	second.end()
}

// Not parallel: it counts all goroutines of the process.
func TestAForwarderThatListensLeavesNoGoroutines(t *testing.T) {
	o := newSeparated(t, outboxes.Config{})
	before := goleak.IgnoreCurrent()
	f := o.forward(o.dsn, time.Hour)
	o.publish("a")
	o.await("a")
	f.end()
	eventually(t, func() bool {
		return goleak.Find(before, goleak.IgnoreAnyFunction("database/sql.(*DB).connectionOpener")) == nil // ended with the test
	}, "no goroutine is left")
}

// Forwarders that only poll keep no state in sessions, so a pooler may run each transaction in a
// different session.
func TestPollingWorksBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	o := newSeparated(t, outboxes.Config{Announcer: outboxes.Silent})
	pooled, err := postgrestest.StartPooler(t, o.dsn, 3)
	if errors.Is(err, postgrestest.ErrNoProgram) {
		t.Skip(err)
	}
	require.NoError(t, err)
	o.dsn = pooled
	lanes := func(c *forwarder.Config) { c.Lanes, c.Lease = 4, time.Minute }
	first := o.forward("", 10*time.Millisecond, lanes)
	o.forward("", 10*time.Millisecond, lanes)
	for i := range 100 {
		o.publish(strconv.Itoa(i))
	}
	want, got := make(map[string]bool), make(map[string]bool)
	for i := range 100 {
		want[strconv.Itoa(i)] = true
	}
	for len(got) < len(want) {
		select {
		case id := <-o.arrived:
			got[id] = true
		case <-time.After(patience):
			t.Fatalf("only %d arrived", len(got))
		}
	}
	require.Equal(t, want, got)
	first.end()
	o.publish("to who is left")
	o.await("to who is left")
}
