package forwarder_test

import (
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store/sqlite"
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
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := &multi{ended: make(map[string]chan error), stops: make(map[string]context.CancelFunc)}
		for name, o := range map[string]**outbox{"eu": &f.eu, "us": &f.us} {
			db, err := sqlite.OpenDB(filepath.Join(folder, name+".db"))
			require.NoError(t, err)
			defer func(db *sql.DB) { require.NoError(t, db.Close()) }(db)
			_, err = sqlite.Migrate(t.Context(), db, sqlite.Config{})
			require.NoError(t, err)
			s, err := sqlite.Open(t.Context(), db, sqlite.Config{})
			require.NoError(t, err)
			*o = &outbox{t: t, db: db, store: s}
		}
		f.engine = f.eu.one(sink, func(c *forwarder.Config) { c.Store, c.Fleet = nil, true })
		f.Share(2, 1)
		f.add("eu", f.eu)
		f.add("us", f.us)
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
	for _, ended := range f.ended {
		require.NoError(f.t, <-ended)
	}
	for _, stop := range f.stops {
		stop()
	}
}

func TestDatabasesShareTheThresholdOfASink(t *testing.T) {
	s := &script{answer: func(context.Context, *notification.Delivery) error { time.Sleep(time.Second); return nil }}
	onSeveral(t, forwarder.Sink{Sink: s, Parallelism: forwarder.Parallelism{Threshold: 4}}, func(t *testing.T, f *multi) {
		synctest.Wait()
		f.eu.append("t", "", numbered("eu", 20)...)
		f.us.append("t", "", numbered("us", 20)...)
		f.Wake()
		time.Sleep(11 * time.Second)
		f.flush()
		require.Len(t, s.given(), 40)
		require.Equal(t, 4, s.mostAtOnce())
		f.end()
	})
}

func TestEqualIDsKeysAndOffsetsOfTwoDatabasesAreTwoDeliveries(t *testing.T) {
	var mu sync.Mutex
	var got []string
	s := &script{answer: func(_ context.Context, d *notification.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, d.Metadata[notification.MetadataDatabase]+" "+d.ID)
		if d.Attempt == 1 && d.ID == "0001" {
			return sinks.Transient(sql.ErrConnDone)
		}
		return nil
	}}
	onSeveral(t, forwarder.Sink{Sink: s}, func(t *testing.T, f *multi) {
		synctest.Wait()
		f.eu.append("t", "k", numbered("", 3)...)
		f.us.append("t", "k", numbered("", 3)...)
		f.flush()
		require.Equal(t, []string{"sink retrying 0001", "sink blocked 0002"}, f.eu.parked())
		require.Equal(t, "eu", value[string](f.eu, `SELECT json_extract(metadata, '$.database') FROM outbox_parked WHERE id = '0001'`))
		time.Sleep(time.Minute)
		f.flush()
		mu.Lock()
		defer mu.Unlock()
		of := func(database string) (ids []string) {
			for _, g := range got {
				if name := g[:2]; name == database {
					ids = append(ids, g[3:])
				}
			}
			return ids
		}
		require.Equal(t, []string{"0000", "0001", "0001", "0002"}, of("eu"))
		require.Equal(t, []string{"0000", "0001", "0001", "0002"}, of("us"))
		require.Empty(t, f.eu.parked())
		require.Empty(t, f.us.parked())
		f.end()
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
	down := true
	s := &script{}
	s.answer = func(context.Context, *notification.Delivery) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if down {
			return sinks.Unavailable(sql.ErrConnDone)
		}
		return nil
	}
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
		s.mu.Lock()
		down = false
		s.mu.Unlock()
		time.Sleep(2 * time.Hour)
		f.flush()
		ids := s.given()
		require.Contains(t, ids, "us")
		require.Contains(t, ids, "eu")
		require.Empty(t, f.eu.parked())
		f.end()
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
		f.end()
	})
}

func TestTheRateOfASinkIsOverAllDatabases(t *testing.T) {
	r, err := settings.ParseRate("10/s")
	require.NoError(t, err)
	s := &times{}
	onSeveral(t, forwarder.Sink{Sink: s, Rate: r}, func(t *testing.T, f *multi) {
		time.Sleep(time.Second)
		f.eu.append("t", "", numbered("eu", 500)...)
		f.us.append("t", "", numbered("us", 500)...)
		began := time.Now().Add(time.Second)
		f.Wake()
		time.Sleep(12 * time.Second)
		require.InDelta(t, 100, s.within(began, began.Add(10*time.Second)), 2)
		f.end()
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
		f.end()
	})
}
