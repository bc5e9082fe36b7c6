package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

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

func TestConnectionsDoNotGrowWithSinksAndLanes(t *testing.T) {
	t.Parallel()
	for _, connections := range []int{4, forwarder.DefaultConnections} {
		t.Run(fmt.Sprint(connections), func(t *testing.T) {
			t.Parallel()
			const sinkCount, rows = 20, 20
			o := openPostgres(t, outboxtest.DSN(t))
			o.db.SetMaxIdleConns(100) // the pool closes no idle connection, so it shows how many were in use at once
			var failed sync.Map       // every third row fails once, so that there are parked deliveries
			taken := &script{answer: func(_ context.Context, d *notification.Delivery) error {
				if _, again := failed.LoadOrStore(d.ID+d.Sink, true); !again && d.Offset%3 == 0 {
					return errors.New("not now")
				}
				return nil
			}}
			var observer leases
			to, routes := make(map[string]forwarder.Sink), route.Routes{}
			for _, name := range numbered("s", sinkCount) {
				to[name] = forwarder.Sink{Sink: taken, Retry: forwarder.Retry{Initial: 10 * time.Millisecond}}
				routes["to."+name] = route.To(name)
			}
			f := o.start(to, routes, watchedBy(&observer), inRealTime, func(c *forwarder.Config) {
				c.Lanes, c.Connections, c.Unrouted = 4, connections, forwarder.UnroutedIgnore
			})
			for i := range rows {
				var envelopes []notification.Envelope
				for _, name := range numbered("s", sinkCount) {
					id := fmt.Sprintf("%s-%d", name, i)
					envelopes = append(envelopes, notification.Envelope{ID: id, Type: "to." + name, Key: id})
				}
				o.insert(envelopes...)
				f.Wake()
			}
			eventually(t, func() bool { return len(taken.times()) == sinkCount*rows }, "all are delivered")
			f.end()
			require.NotContains(t, slices.Collect(maps.Values(taken.times())), 2, "nothing is repeated")
			require.EqualValues(t, sinkCount*4, observer.won.Load())
			require.Zero(t, observer.lost.Load())
			open := func() int { return o.db.Stats().OpenConnections } // this includes a connection that is being closed
			eventually(t, func() bool { return open() <= connections+1 }, "one is for the publishers")
		})
	}
}

// A handler in the same program uses the forwarder's pool. Here there are more handlers than
// connections, and those that get one hold it until the leases are renewed.
func TestHandlersThatUseTheWholePoolCostNoLease(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it waits for a renewal")
	}
	const rows, lease = 6, 30 * time.Second // so long that a machine that stalls loses none
	dsn := outboxtest.DSN(t)
	o, others := openPostgres(t, dsn), openPlain(t, dsn)
	o.db.SetMaxOpenConns(4)
	var holding atomic.Int64
	renewed := make(chan struct{})
	var log lines
	var observer leases
	taken := &script{answer: func(ctx context.Context, d *notification.Delivery) error {
		conn, err := o.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }() // returns the connection to the pool
		holding.Add(1)
		select {
		case <-renewed:
		case <-ctx.Done():
		}
		return ctx.Err()
	}}
	f := o.start(map[string]forwarder.Sink{"handler": {Sink: taken, Timeout: time.Minute}, "other": {Sink: &script{}, Timeout: time.Minute}},
		route.Routes{"*": route.To("handler", "other")}, leased(lease), watchedBy(&observer), log.logging, inRealTime)
	o.append("order.placed", "", numbered("n", rows)...)
	eventually(t, func() bool { return holding.Load() >= 2 && o.db.Stats().InUse == 4 }, "the handlers use the whole pool")
	until := func() (first time.Time, err error) {
		err = others.QueryRowContext(t.Context(), `SELECT min(lease_until) FROM outbox_cursors WHERE sink IN ('handler', 'other')`).Scan(&first)
		return first, err
	}
	before, err := until()
	require.NoError(t, err)
	eventually(t, func() bool {
		now, err := until()
		return err == nil && now.Sub(before) > lease/4
	}, "both leases are renewed")
	close(renewed)
	eventually(t, func() bool { return len(taken.times()) == rows }, "all are delivered")
	f.end()
	require.NotContains(t, slices.Collect(maps.Values(taken.times())), 2, "each is delivered once")
	require.EqualValues(t, 2, observer.won.Load(), "one lane of each sink")
	require.Zero(t, observer.lost.Load())
	require.Zero(t, o.db.Stats().InUse, "all connections are returned")
	require.NotEmpty(t, log.with("pool_allows=4 forwarder_needs=8"))
	require.Empty(t, log.with("given up"))
}

func TestAPoolOfAFewConnectionsIsEnoughForTheForwarder(t *testing.T) {
	t.Parallel()
	for _, connections := range []int{1, 3, 4} {
		work := func(t *testing.T, o *outbox) {
			o.db.SetMaxOpenConns(connections)
			s := &script{answer: fails(errors.New("not now"), 1)}
			f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Initial: time.Second}})
			f.flush()
			f.publish("order.placed", "k", numbered("n", 10)...)
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

// TestManyRetryingKeysCostNoLease has more keys in the table than one page holds.
func TestManyRetryingKeysCostNoLease(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("50,000 keys")
	}
	const keys, lease = 50_000, time.Minute // so long that a machine that stalls loses none
	o := openPostgres(t, outboxtest.DSN(t))
	_, err := o.store.Cut(t.Context(), "sink", 1, store.StartOldest)
	require.NoError(t, err)
	o.exec(`INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, due_at)
		SELECT 'sink', i, i & 1023, 'id-' || i, 'a', 1, 'customer-' || i, now(), '{}', '{"some":"payload of usual length"}', 'retrying', 0, now() FROM generate_series(1, $1::int) i`, keys)
	o.exec(`ANALYZE outbox_parked`)

	fresh := make(chan string, 2)
	var parked atomic.Int64
	var seen sync.Map
	sink := sinks.Func(func(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
		if d.Type == "fresh" {
			fresh <- d.ID
		} else {
			_, again := seen.LoadOrStore(d.ID, true)
			assert.False(t, again, d.ID)
			parked.Add(1)
		}
		return "", nil
	})
	var observer leases
	f := o.one(forwarder.Sink{Sink: sink}, leased(lease), watchedBy(&observer), inRealTime)
	arrives := func(id string) {
		t.Helper()
		o.exec(`INSERT INTO outbox (id, type, key, payload) VALUES ($1, 'fresh', 'customer-new', '{}')`, id)
		f.Wake()
		select {
		case got := <-fresh:
			require.Equal(t, id, got)
		case <-time.After(patience):
			t.Fatal("a new delivery waits behind parked ones")
		}
	}
	reaches := func(n int64) {
		t.Helper()
		eventually(t, func() bool { return parked.Load() >= n }, "parked deliveries are retried")
	}
	reaches(1000)
	arrives("first")
	o.exec(`UPDATE outbox_cursors SET revision = revision + 1 WHERE sink = 'sink'`) // as an operator's action does
	reaches(parked.Load() + 1000)
	arrives("second")
	reaches(parked.Load() + 1000)
	require.Zero(t, observer.lost.Load())
}
