package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// faulty is an outbox in a separate cluster, with a forwarder that marks each delivery. The fault does
// not affect the test's own pool.
type faulty struct {
	*tally
	t        *testing.T
	server   *postgrestest.Server
	db       *sql.DB // of the test
	failures atomic.Int64
	expected []string
}

// tries is the number of failures after which the fault is repaired.
const tries = 4

func newFaulty(t *testing.T, server *postgrestest.Server) *faulty {
	t.Helper()
	w := &faulty{tally: &tally{}, t: t, server: server, db: openPlain(t, server.DSN()+"&statement_timeout=0")}
	_, err := postgres.Migrate(t.Context(), w.db, postgres.Config{})
	require.NoError(t, err)
	w.exec(`CREATE TABLE sent (id text)`)
	return w
}

// exec runs a statement in a read-write transaction, even if the default is read-only.
func (w *faulty) exec(query string, args ...any) {
	w.t.Helper()
	tx, err := w.db.BeginTx(w.t.Context(), nil)
	require.NoError(w.t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(w.t.Context(), query, args...)
	require.NoError(w.t, err)
	require.NoError(w.t, tx.Commit())
}

// set changes a setting of the cluster, also for existing sessions.
func (w *faulty) set(setting, value string) {
	w.t.Helper()
	_, err := w.db.ExecContext(w.t.Context(), `ALTER SYSTEM SET `+setting+` = `+value)
	require.NoError(w.t, err)
	_, err = w.db.ExecContext(w.t.Context(), `SELECT pg_reload_conf()`)
	require.NoError(w.t, err)
}

// endSessions ends the sessions of the forwarder.
func (w *faulty) endSessions() {
	w.t.Helper()
	_, err := w.db.ExecContext(w.t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'forwarder'`)
	require.NoError(w.t, err)
}

func (w *faulty) publish(prefix string, n int) {
	w.t.Helper()
	for _, id := range numbered(prefix, n) {
		w.exec(`INSERT INTO outbox (id, type, key, payload) VALUES ($1, 't', $2, '{}')`, id, id[len(id)-1:])
		w.expected = append(w.expected, id)
	}
}

// forward starts a forwarder at an address.
func (w *faulty) forward(dsn string, adjust ...func(*forwarder.Config)) (stop func()) {
	w.t.Helper()
	address, err := url.Parse(dsn)
	require.NoError(w.t, err)
	q := address.Query()
	q.Set("application_name", "forwarder")
	address.RawQuery = q.Encode()
	db := openPlain(w.t, address.String())
	logger := slog.New(slog.NewTextHandler(w.tally, nil))
	s, err := postgres.Open(w.t.Context(), db, postgres.Config{Receipts: true})
	require.NoError(w.t, err)
	c := forwarder.Config{
		Store: failing{s, &w.failures}, Name: "test", Lease: 2 * time.Second,
		Routes: route.Routes{"*": route.To("sink")},
		Sinks: map[string]forwarder.Sink{"sink": {Sink: w.tally, Hooks: forwarder.Hooks{Delivered: func(ctx context.Context, tx *sql.Tx, all []forwarder.Delivered) error {
			for _, d := range all {
				if _, err := tx.ExecContext(ctx, `INSERT INTO sent VALUES ($1)`, d.ID); err != nil {
					return err
				}
			}
			return nil
		}}}},
		Logger: logger,
	}
	for _, a := range adjust {
		a(&c)
	}
	f, err := forwarder.New(c)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	w.t.Cleanup(cancel)
	return func() {
		w.t.Helper()
		cancel()
		require.NoError(w.t, <-ended)
	}
}

// failing counts the calls that failed because of the database.
type failing struct {
	*postgres.Store
	failures *atomic.Int64
}

func (f failing) count(err error) {
	if err != nil && !errors.Is(err, store.ErrLeaseHeld) && !errors.Is(err, store.ErrLeaseLost) && !errors.Is(err, store.ErrServerChanged) {
		f.failures.Add(1)
	}
}

func (f failing) Probe(ctx context.Context) (store.Target, error) {
	target, err := f.Store.Probe(ctx)
	f.count(err)
	return target, err
}

func (f failing) Cut(ctx context.Context, sink string, lanes int, start store.Start) (store.Created, error) {
	created, err := f.Store.Cut(ctx, sink, lanes, start)
	f.count(err)
	return created, err
}

func (f failing) Acquire(ctx context.Context, lane store.Lane, owner string, ttl time.Duration) (store.Lease, error) {
	lease, err := f.Store.Acquire(ctx, lane, owner, ttl)
	f.count(err)
	return lease, err
}

func (f failing) Checkpoint(ctx context.Context, c store.Checkpoint) error {
	err := f.Store.Checkpoint(ctx, c)
	f.count(err)
	return err
}

// awaitFailures waits until the forwarder has failed a few times.
func (w *faulty) awaitFailures() {
	w.t.Helper()
	from := w.failures.Load()
	eventually(w.t, func() bool { return w.failures.Load() >= from+tries }, "the fault reaches the forwarder")
}

// settle waits until all published notifications are delivered, and checks that each was marked once.
func (w *faulty) settle() {
	w.t.Helper()
	w.waitFor(w.t, w.expected...)
	eventually(w.t, func() bool {
		var marked int
		return w.db.QueryRowContext(w.t.Context(), `SELECT count(DISTINCT id) FROM sent`).Scan(&marked) == nil && marked == len(w.expected)
	}, "the hook's effects are there")
}

// log returns what the forwarder has logged.
func (w *faulty) log() string {
	return strings.Join(w.with(""), "")
}

// logged counts the lines with a text for each part of the forwarder that can log it, and returns the
// highest count.
func (w *faulty) logged(text string) (most int) {
	counts := make(map[string]int)
	for line := range strings.Lines(w.log()) {
		if strings.Contains(line, text) {
			_, message, _ := strings.Cut(line, "msg=")
			what, _, _ := strings.Cut(message, " failed, trying again")
			counts[what]++
			most = max(most, counts[what])
		}
	}
	return most
}

// marks counts how often a delivery was marked.
func (w *faulty) marks(id string) (n int) {
	w.t.Helper()
	require.NoError(w.t, w.db.QueryRowContext(w.t.Context(), `SELECT count(*) FROM sent WHERE id = $1`, id).Scan(&n))
	return n
}

// repeatedMarks counts the deliveries that were marked more than once.
func (w *faulty) repeatedMarks() (n int) {
	w.t.Helper()
	require.NoError(w.t, w.db.QueryRowContext(w.t.Context(),
		`SELECT count(*) FROM (SELECT FROM sent GROUP BY id HAVING count(*) > 1) AS repeated`).Scan(&n))
	return n
}
