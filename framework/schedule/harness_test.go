package schedule_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	outboxes "github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/schedule"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// stores are the interfaces of an outbox that a process uses.
type stores interface {
	store.Schedules
	store.Inspector
	store.Operator
	store.Claimer
	outboxes.Log
}

// clocked is a store with the clock of the test's bubble.
type clocked struct{ stores }

func (c clocked) Schedules(ctx context.Context) ([]store.Schedule, error) {
	all, err := c.stores.Schedules(ctx)
	for i := range all {
		all[i].ReadAt = time.Now().UTC()
	}
	return all, err
}

// outbox is a database with an outbox, inside a test's bubble of fake time, which begins at
// 2000-01-01T00:00:00Z.
type outbox struct {
	t     *testing.T
	db    *sql.DB
	store stores
	types *registry.Registry
	logs  *logs
	open  func() *sql.DB
}

type reportDue struct{ Tick time.Time }

func onEachStore(t *testing.T, test func(t *testing.T, o *outbox)) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		dsn := outboxtest.DSN(t)
		synctest.Test(t, func(t *testing.T) { test(t, onPostgres(t, dsn)) })
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := outboxtest.File(t)
		synctest.Test(t, func(t *testing.T) {
			o := newOutbox(t, func() (*sql.DB, error) { return sqlite.OpenDB(path) })
			s, err := sqlite.Open(t.Context(), o.db, sqlite.Config{})
			require.NoError(t, err)
			o.store = clocked{s}
			test(t, o)
		})
	})
}

func onPostgres(t *testing.T, dsn string) *outbox {
	o := newOutbox(t, func() (*sql.DB, error) { return postgres.OpenDB(dsn) })
	s, err := postgres.Open(t.Context(), o.db, postgres.Config{})
	require.NoError(t, err)
	o.store = clocked{s}
	return o
}

func newOutbox(t *testing.T, open func() (*sql.DB, error)) *outbox {
	o := &outbox{t: t, types: registry.New(), logs: new(logs)}
	require.NoError(t, registry.Register[reportDue](o.types, "report.due"))
	o.open = func() *sql.DB {
		db, err := open()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	}
	o.db = o.open()
	return o
}

// report is a schedule of reports, each with its tick.
func report(name string, when schedule.When, missed schedule.Missed) schedule.Schedule {
	return schedule.Schedule{Name: name, When: when, Missed: missed, Make: func(_ context.Context, tick time.Time) (any, error) {
		return reportDue{tick}, nil
	}}
}

// start runs schedules with a separate pool, as another process would.
func (o *outbox) start(schedules ...schedule.Schedule) (s *schedule.Scheduler, stop func()) {
	o.t.Helper()
	publisher, err := outboxes.New(o.types, o.store, outboxes.Config{Announcer: outboxes.Silent})
	require.NoError(o.t, err)
	s, err = schedule.New(schedule.Config{
		Store: o.store, DB: o.open(), Publisher: publisher, Logger: slog.New(slog.NewTextHandler(o.logs, nil)),
	}, schedules...)
	require.NoError(o.t, err)
	ctx, cancel := context.WithCancel(o.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(o.t, <-ended)
	})
	o.t.Cleanup(stop)
	synctest.Wait()
	return s, stop
}

// pass lets time pass.
func (o *outbox) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// made returns the published notifications as "schedule tick" and their ids, in the order of the log.
func (o *outbox) made() (ticks, ids []string) {
	o.t.Helper()
	rows, err := o.db.QueryContext(o.t.Context(), `SELECT id, metadata, payload FROM outbox ORDER BY "offset"`)
	require.NoError(o.t, err)
	defer rows.Close()
	for rows.Next() {
		var id string
		var metadata, payload []byte
		require.NoError(o.t, rows.Scan(&id, &metadata, &payload))
		var m map[string]string
		require.NoError(o.t, json.Unmarshal(metadata, &m))
		at, err := time.Parse(time.RFC3339, m[schedule.MetadataTick])
		require.NoError(o.t, err)
		ticks, ids = append(ticks, m[schedule.MetadataSchedule]+" "+at.Format("15:04:05")), append(ids, id)
		if bytes.Contains(payload, []byte("Tick")) {
			var r reportDue
			require.NoError(o.t, json.Unmarshal(payload, &r))
			require.Equal(o.t, at, r.Tick)
		}
	}
	require.NoError(o.t, rows.Err())
	return ticks, ids
}

func (o *outbox) ticks() []string {
	o.t.Helper()
	ticks, _ := o.made()
	return ticks
}

// row returns the row of a schedule.
func (o *outbox) row(name string) store.Schedule {
	o.t.Helper()
	all, err := o.store.Schedules(o.t.Context())
	require.NoError(o.t, err)
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	o.t.Fatalf("there is no schedule %s", name)
	return store.Schedule{}
}

// logs collects log lines.
type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logs) count(text string) int { return strings.Count(l.String(), text) }
