package forwarder_test

import (
	"context"
	"database/sql"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/sinks"
)

// multi is a forwarder of two databases, eu and us, in a bubble of fake time.
type multi struct {
	*engine
	eu, us *outbox
	ended  map[string]chan error
	stops  map[string]context.CancelFunc
}

// onSeveral runs a test with two SQLite outboxes and one forwarder with one sink.
func onSeveral(t *testing.T, sink forwarder.Sink, test func(t *testing.T, f *multi)) {
	t.Helper()
	t.Parallel()
	euFile, usFile := outboxtest.File(t), outboxtest.File(t)
	synctest.Test(t, func(t *testing.T) {
		f := &multi{ended: make(map[string]chan error), stops: make(map[string]context.CancelFunc)}
		f.eu, f.us = openSQLite(t, euFile), openSQLite(t, usFile)
		f.engine = f.eu.one(sink, func(c *forwarder.Config) { c.Store, c.Fleet = nil, true })
		f.Share(2, 1)
		f.add("eu", f.eu)
		f.add("us", f.us)
		t.Cleanup(f.end)
		test(t, f)
	})
}

// add adds a database to the forwarder.
func (f *multi) add(name string, o *outbox) {
	ctx, stop := context.WithCancel(f.t.Context())
	ended := make(chan error, 1)
	f.stops[name], f.ended[name] = stop, ended
	go func() { ended <- f.RunDatabase(ctx, forwarder.Database{Name: name, Store: o.store}) }()
}

// remove removes a database from the forwarder.
func (f *multi) remove(name string) {
	f.t.Helper()
	f.stops[name]()
	require.NoError(f.t, <-f.ended[name])
	delete(f.stops, name)
	delete(f.ended, name)
}

// end stops the forwarder for all databases.
func (f *multi) end() {
	f.t.Helper()
	f.engine.end()
	for name := range f.ended {
		f.remove(name)
	}
}

func TestDatabasesShareTheThresholdOfASink(t *testing.T) {
	s := &script{answer: takes(time.Second)}
	onSeveral(t, forwarder.Sink{Sink: s, Parallelism: forwarder.Parallelism{Threshold: 4}}, func(t *testing.T, f *multi) {
		synctest.Wait()
		f.eu.append("t", "", numbered("eu", 20)...)
		f.us.append("t", "", numbered("us", 20)...)
		f.Wake()
		time.Sleep(11 * time.Second)
		f.flush()
		require.Len(t, s.given(), 40)
		require.Equal(t, 4, s.mostAtOnce())
	})
}

func TestEqualIDsKeysAndOffsetsOfTwoDatabasesAreTwoDeliveries(t *testing.T) {
	var mu sync.Mutex
	got := make(map[string][]string) // ids by database
	s := &script{answer: func(ctx context.Context, d *notification.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		database := d.Metadata[notification.MetadataDatabase]
		got[database] = append(got[database], d.ID)
		return fails(sinks.Transient(sql.ErrConnDone), 1, "0001")(ctx, d)
	}}
	onSeveral(t, forwarder.Sink{Sink: s}, func(t *testing.T, f *multi) {
		synctest.Wait()
		f.eu.append("t", "k", numbered("", 3)...)
		f.us.append("t", "k", numbered("", 3)...)
		f.flush()
		require.Equal(t, []string{"sink retrying 0001", "sink blocked 0002"}, f.eu.parked())
		require.Equal(t, "eu", f.eu.parkedOf("0001").Envelope.Metadata[notification.MetadataDatabase])
		time.Sleep(time.Minute)
		f.flush()
		ids := []string{"0000", "0001", "0001", "0002"}
		require.Equal(t, map[string][]string{"eu": ids, "us": ids}, got)
		require.Empty(t, f.eu.parked())
		require.Empty(t, f.us.parked())
	})
}

func TestADatabaseIsAddedAndRemovedWhileAnotherDelivers(t *testing.T) {
	s := &script{}
	onSeveral(t, forwarder.Sink{Sink: s}, func(t *testing.T, f *multi) {
		synctest.Wait()
		require.ErrorIs(t, f.RunDatabase(t.Context(), forwarder.Database{Name: "eu", Store: f.eu.store}), forwarder.ErrConfig)
		f.remove("us")
		require.Len(t, f.Figures().Databases, 1)
		f.us.append("t", "", "later")
		f.eu.append("t", "", "now")
		f.flush()
		require.Equal(t, []string{"now"}, s.given())
		f.add("us", f.us)
		synctest.Wait()
		f.flush()
		require.Equal(t, []string{"later"}, s.given())
		f.end()
		require.ErrorIs(t, f.RunDatabase(t.Context(), forwarder.Database{Name: "eu", Store: f.eu.store}), forwarder.ErrNotRunning)
	})
}

func TestTheBreakerOfASinkIsOpenForAllDatabases(t *testing.T) {
	s := down(sinks.Unavailable(sql.ErrConnDone))
	onSeveral(t, forwarder.Sink{Sink: s, Breaker: forwarder.Breaker{MaxPause: time.Hour}}, func(t *testing.T, f *multi) {
		synctest.Wait()
		f.eu.append("t", "", "eu")
		f.flush()
		require.True(t, f.Figures().Sinks[0].BreakerOpen)
		s.given()
		f.us.append("t", "", "us")
		f.Wake()
		synctest.Wait()
		require.NotContains(t, s.given(), "us", "it waits like the deliveries of eu")
		s.mended.Store(true)
		time.Sleep(2 * time.Hour)
		f.flush()
		ids := s.given()
		require.Contains(t, ids, "us")
		require.Contains(t, ids, "eu")
		require.Empty(t, f.eu.parked())
	})
}

func TestReloadReplacesASinkInAllDatabases(t *testing.T) {
	before, after := &script{}, &script{}
	onSeveral(t, forwarder.Sink{Sink: before}, func(t *testing.T, f *multi) {
		synctest.Wait()
		require.NoError(t, f.Reload(t.Context(), map[string]forwarder.Sink{"sink": {Sink: after}}, route.Routes{"*": route.To("sink")}))
		f.eu.append("t", "", "eu")
		f.us.append("t", "", "us")
		time.Sleep(time.Hour) // a lane that was released is leased again
		f.flush()
		ids := after.given()
		slices.Sort(ids)
		require.Equal(t, []string{"eu", "us"}, ids)
		require.Empty(t, before.given())
	})
}

func TestTheRateOfASinkIsOverAllDatabases(t *testing.T) {
	r, err := settings.ParseRate("10/s")
	require.NoError(t, err)
	s := &script{}
	onSeveral(t, forwarder.Sink{Sink: s, Rate: r}, func(t *testing.T, f *multi) {
		time.Sleep(time.Second)
		f.eu.append("t", "", numbered("eu", 500)...)
		f.us.append("t", "", numbered("us", 500)...)
		began := time.Now().Add(time.Second)
		f.Wake()
		time.Sleep(12 * time.Second)
		require.InDelta(t, 100, s.within(began, began.Add(10*time.Second)), 2)
	})
}

func TestAFleetNeedsNoStore(t *testing.T) {
	t.Parallel()
	c := forwarder.Config{
		Routes: route.Routes{"*": route.To("sink")}, Sinks: map[string]forwarder.Sink{"sink": {Sink: &script{}}}, Logger: slog.New(slog.DiscardHandler),
	}
	_, err := forwarder.New(c)
	require.ErrorContains(t, err, "the store is missing")
	c.Fleet = true
	f, err := forwarder.New(c)
	require.NoError(t, err)
	err = f.RunDatabase(t.Context(), forwarder.Database{})
	require.ErrorContains(t, err, "a database has no name")
	require.ErrorContains(t, err, "the store is missing")
}

func TestTheHeartbeatInADatabaseCountsOnlyItsDeliveries(t *testing.T) {
	s := &script{}
	onSeveral(t, forwarder.Sink{Sink: s}, func(t *testing.T, f *multi) {
		synctest.Wait()
		f.eu.append("t", "", numbered("eu", 3)...)
		f.us.append("t", "", numbered("us", 5)...)
		f.flush()
		time.Sleep(time.Hour) // several heartbeats and leases
		delivered := func(o *outbox) (n int64) {
			m, err := o.store.Membership(t.Context())
			require.NoError(t, err)
			for _, sink := range m.Sinks() {
				n += sink.Delivered
			}
			return n
		}
		require.Equal(t, int64(3), delivered(f.eu))
		require.Equal(t, int64(5), delivered(f.us))
		require.Equal(t, int64(8), f.Stats()[0].Delivered, "the process counts both")
	})
}
