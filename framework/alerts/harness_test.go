package alerts_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/alerts"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

func TestMain(m *testing.M) {
	if dsn := os.Getenv(childDSN); dsn != "" {
		judgeUntilKilled(dsn)
		return
	}
	postgrestest.Main(m)
}

// clocked is a store with the clock of the test's bubble, where it has one.
type clocked struct {
	webhooks.Store
	held atomic.Int64 // a time.Duration
	away atomic.Bool
}

func (c *clocked) Schedules(ctx context.Context) ([]store.Schedule, error) {
	if c.away.Load() {
		return nil, errors.New("the database is away")
	}
	all, err := c.Store.Schedules(ctx)
	for i := range all {
		all[i].ReadAt = time.Now().UTC()
	}
	return all, err
}

func (c *clocked) Sample(ctx context.Context, q store.SampleQuery) (store.Sample, error) {
	s, err := c.Store.Sample(ctx, q)
	s.Held = time.Duration(c.held.Load())
	return s, err
}

// box is a database with an outbox, inside a test's bubble of fake time.
type box struct {
	*testing.T
	db    *sql.DB
	store *clocked
	logs  *logs // of judges
	its   settings.Alerts
}

// logs collects log lines of several judges.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
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

// opener opens a database in a bubble.
type opener func(t *testing.T) (*sql.DB, webhooks.Store, error)

// onEachStore runs a test on each database.
func onEachStore(t *testing.T, test func(b *box)) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) opener{
		"postgres": func(t *testing.T) opener {
			dsn := outboxtest.DSN(t)
			return func(t *testing.T) (*sql.DB, webhooks.Store, error) {
				db, err := postgres.OpenDB(dsn)
				require.NoError(t, err)
				s, err := postgres.Open(t.Context(), db, postgres.Config{})
				return db, s, err
			}
		},
		"sqlite": func(t *testing.T) opener {
			path := outboxtest.File(t)
			return func(t *testing.T) (*sql.DB, webhooks.Store, error) {
				db, err := sqlite.OpenDB(path)
				require.NoError(t, err)
				s, err := sqlite.Open(t.Context(), db, sqlite.Config{})
				return db, s, err
			}
		},
		"mysql": func(t *testing.T) opener {
			dsn := mysqltest.URL(t)
			db, err := mysql.OpenDB(dsn)
			require.NoError(t, err)
			_, err = mysql.Migrate(t.Context(), db, mysql.Config{})
			require.NoError(t, err)
			require.NoError(t, db.Close())
			return func(t *testing.T) (*sql.DB, webhooks.Store, error) {
				db, err := mysql.OpenDB(dsn)
				require.NoError(t, err)
				s, err := mysql.Open(t.Context(), db, mysql.Config{})
				return db, s, err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made := open(t)
			synctest.Test(t, func(t *testing.T) {
				db, s, err := made(t)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, db.Close()) })
				test(&box{T: t, db: db, store: &clocked{Store: s}, logs: new(logs), its: settings.Alerts{To: route.To("ops", "chat"), Dead: true}})
			})
		})
	}
}

// config returns the configuration of a judge, as one process has it.
func (b *box) config() alerts.Config {
	b.Helper()
	c, err := b.made()
	require.NoError(b, err)
	return c
}

func (b *box) made() (c alerts.Config, err error) {
	sink := forwarder.Sink{Sink: sinks.Func(func(context.Context, *notification.Delivery) (notification.Receipt, error) { return "", nil })}
	f, err := forwarder.New(forwarder.Config{
		Name: "f", Store: b.store.Store, Sinks: map[string]forwarder.Sink{"ops": sink, "chat": sink, "partner": sink},
		Routes: b.its.Routes(route.Routes{"order.placed": route.To("partner")}), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return c, err
	}
	publisher, err := outbox.New(registry.New(), b.store, outbox.Config{Announcer: outbox.Silent})
	return alerts.Config{
		Settings: b.its, Store: b.store, DB: b.db, Publisher: publisher, Forwarder: f, Webhooks: "hooks",
		Logger: slog.New(slog.NewTextHandler(b.logs, nil)),
	}, err
}

// start runs a judge. stop waits until it has ended.
func (b *box) start() (stop func()) {
	b.Helper()
	judge, err := alerts.New(b.config())
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- judge.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(b, <-ended)
	})
	b.Cleanup(stop)
	synctest.Wait()
	return stop
}

// pass lets time pass.
func (b *box) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (b *box) exec(query string, args ...any) {
	b.Helper()
	_, err := b.db.ExecContext(b.Context(), query, args...)
	require.NoError(b, err)
}

// kill makes a delivery dead, and revive ends all that are dead.
func (b *box) kill(sink string, offset int) {
	b.Helper()
	exec := `INSERT INTO outbox_parked (sink, {offset}, slot, id, type, version, {key}, occurred_on, metadata, payload, state, attempt, last_error)
		VALUES ('` + sink + `', ` + string(rune('0'+offset)) + `, 0, 'i', 'order.placed', 1, 'k', '2026-01-01 00:00:00', '{}', '{}', 'dead', 1, 'POST https://shop.example: 422: ada@shop.example is taken')`
	b.exec(b.quoted(exec))
}

// endpoint adds an endpoint that is disabled for a reason, unless that is "".
func (b *box) endpoint(id, reason string) {
	e := store.Endpoint{ID: id, Tenant: "acme", URL: "https://acme.example/", Types: []string{"*"}}
	require.NoError(b, b.store.AddEndpoint(b.Context(), nil, e, 100))
	if reason == "" {
		return
	}
	e.Version, e.DisabledReason, e.DisabledAt = 1, reason, time.Now()
	changed, err := b.store.ChangeEndpoint(b.Context(), nil, e)
	require.NoError(b, err)
	require.True(b, changed)
}

func (b *box) revive() { b.exec(`DELETE FROM outbox_parked`) }

// published is an alert in the log.
type published struct {
	Type, Key string
	alerts.Raised
}

// alerts returns what was published.
func (b *box) alerts() (all []published) {
	b.Helper()
	rows, err := b.db.QueryContext(b.Context(), b.quoted(`SELECT type, {key}, payload FROM outbox WHERE type LIKE 'waybill.%' ORDER BY {offset}`))
	require.NoError(b, err)
	defer func() { require.NoError(b, rows.Close()) }()
	for rows.Next() {
		var p published
		var payload []byte
		require.NoError(b, rows.Scan(&p.Type, &p.Key, &payload))
		require.NoError(b, json.Unmarshal(payload, &p.Raised))
		all = append(all, p)
	}
	require.NoError(b, rows.Err())
	return all
}

// texts returns the texts of what was published.
func (b *box) texts() []string {
	b.Helper()
	texts := []string{}
	for _, p := range b.alerts() {
		texts = append(texts, p.Text)
	}
	return texts
}

// quoted quotes names that are words of SQL.
func (b *box) quoted(query string) string {
	mark := `"`
	if _, is := b.store.Store.(*mysql.Store); is {
		mark = "`"
	}
	return string(bytes.ReplaceAll(bytes.ReplaceAll([]byte(query), []byte("{key}"), []byte(mark+"key"+mark)), []byte("{offset}"), []byte(mark+"offset"+mark)))
}
