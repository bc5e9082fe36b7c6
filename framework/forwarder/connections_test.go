package forwarder_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// openPostgres opens a new database with an outbox outside any bubble, so connections and durations
// are real.
func openPostgres(t *testing.T) *outbox {
	t.Helper()
	db, err := postgres.OpenDB(postgrestest.DSN(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = postgres.Migrate(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	s, err := postgres.Open(t.Context(), db, postgres.Config{Receipts: true})
	require.NoError(t, err)
	return &outbox{t: t, db: db, store: s}
}

// leases counts acquired and lost leases.
type leases struct{ won, lost atomic.Int64 }

func (l *leases) Observe(e event.Event) {
	switch c, ok := e.(*event.LeaseChange); {
	case !ok:
	case c.Won:
		l.won.Add(1)
	case c.Err != nil:
		l.lost.Add(1)
	}
}

// counting is a sink that counts deliveries by id.
type counting struct {
	mu      sync.Mutex
	ids     map[string]int
	deliver func(ctx context.Context, d *notification.Delivery) error
}

func (s *counting) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	if s.deliver != nil {
		if err := s.deliver(ctx, d); err != nil {
			return "", err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = make(map[string]int)
	}
	s.ids[d.ID]++
	return "taken", nil
}

// count returns the number of delivered ids and the number of deliveries.
func (s *counting) count() (ids, deliveries int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.ids {
		deliveries += n
	}
	return len(s.ids), deliveries
}

func TestConnectionsDoNotGrowWithSinksAndLanes(t *testing.T) {
	for _, connections := range []int{4, forwarder.DefaultConnections} {
		t.Run(fmt.Sprint(connections), func(t *testing.T) {
			const sinkCount, rows = 40, 40
			o := openPostgres(t)
			o.db.SetMaxIdleConns(100) // the pool closes no idle connection, so it shows how many were in use at once
			var taken counting
			var failed sync.Map // every third row fails once, so that there are parked deliveries
			taken.deliver = func(_ context.Context, d *notification.Delivery) error {
				if _, again := failed.LoadOrStore(d.ID+d.Sink, true); !again && d.Offset%3 == 0 {
					return errors.New("not now")
				}
				return nil
			}
			c := forwarder.Config{
				Store: o.store, Routes: route.Routes{}, Sinks: make(map[string]forwarder.Sink), Lanes: 4, Connections: connections,
				Unrouted: forwarder.UnroutedIgnore, Logger: slog.New(slog.DiscardHandler), Observer: &leases{},
			}
			for _, name := range numbered("s", sinkCount) {
				c.Sinks[name] = forwarder.Sink{Sink: &taken, Retry: forwarder.Retry{Initial: 10 * time.Millisecond}}
				c.Routes["to."+name] = route.To(name)
			}
			observer := c.Observer.(*leases)
			f, err := forwarder.New(c)
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- f.Run(ctx) }()
			for i := range rows {
				var envelopes []notification.Envelope
				for _, name := range numbered("s", sinkCount) {
					id := fmt.Sprintf("%s-%d", name, i)
					envelopes = append(envelopes, notification.Envelope{ID: id, Type: "to." + name, Key: id})
				}
				o.insert(envelopes...)
				f.Wake()
			}
			require.Eventually(t, func() bool { ids, _ := taken.count(); return ids == sinkCount*rows }, time.Minute, 10*time.Millisecond)
			stop()
			require.NoError(t, <-ended)
			ids, deliveries := taken.count()
			require.Equal(t, ids, deliveries, "nothing is repeated")
			require.EqualValues(t, sinkCount*4, observer.won.Load())
			require.Zero(t, observer.lost.Load())
			open := func() int { return o.db.Stats().OpenConnections } // this includes a connection that is being closed
			require.Eventually(t, func() bool { return open() <= connections+1 }, time.Minute, 10*time.Millisecond, "and one for the publishers")
			t.Log("connections:", open())
		})
	}
}

// A handler in the same program uses the forwarder's pool. Here there are more handlers than
// connections, and each holds one for longer than a lease.
func TestHandlersThatUseTheWholePoolCostNoLease(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it waits for several leases")
	}
	const rows, lease = 6, 4 * time.Second // so long that a busy machine loses none
	o := openPostgres(t)
	o.db.SetMaxOpenConns(4)
	var logged bytes.Buffer // slog writes one line at a time
	var observer leases
	taken := counting{deliver: func(ctx context.Context, d *notification.Delivery) error {
		conn, err := o.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }() // returns the connection to the pool
		_, err = conn.ExecContext(ctx, `SELECT pg_sleep(9)`)
		return err
	}}
	f, err := forwarder.New(forwarder.Config{
		Store: o.store, Routes: route.Routes{"*": route.To("handler", "other")}, Lease: lease, Observer: &observer,
		Sinks: map[string]forwarder.Sink{
			"handler": {Sink: &taken, Timeout: time.Minute}, "other": {Sink: &script{}, Timeout: time.Minute},
		},
		Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	})
	require.NoError(t, err)
	o.append("order.placed", "", numbered("n", rows)...)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	require.Eventually(t, func() bool { ids, _ := taken.count(); return ids == rows }, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	ids, deliveries := taken.count()
	require.Equal(t, ids, deliveries, "each is delivered once")
	require.EqualValues(t, 2, observer.won.Load(), "one lane of each sink")
	require.Zero(t, observer.lost.Load())
	require.Zero(t, o.db.Stats().InUse, "all connections are returned")
	require.Contains(t, logged.String(), "pool_allows=4 forwarder_needs=8")
	require.NotContains(t, logged.String(), "given up")
}

func TestAPoolOfAFewConnectionsIsEnoughForTheForwarder(t *testing.T) {
	t.Parallel()
	for _, connections := range []int{1, 3, 4, 5} {
		work := func(t *testing.T, o *outbox) {
			o.db.SetMaxOpenConns(connections)
			s := &script{}
			f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Initial: time.Second}})
			s.answer = func(_ context.Context, d *notification.Delivery) error {
				if d.Attempt == 1 {
					return errors.New("not now")
				}
				return nil
			}
			f.flush()
			o.append("order.placed", "k", numbered("n", 10)...)
			f.flush()
			time.Sleep(time.Minute)
			f.flush()
			require.Len(t, s.given(), 20)
			require.Empty(t, o.parked())
			f.end()
			require.Zero(t, o.db.Stats().InUse)
		}
		t.Run(fmt.Sprint("postgres with ", connections), func(t *testing.T) { t.Parallel(); onPostgres(t, work) })
		t.Run(fmt.Sprint("sqlite with ", connections), func(t *testing.T) { t.Parallel(); onSQLite(t, work) })
	}
}
