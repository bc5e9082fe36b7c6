package walkthrough

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	_ "github.com/waybill-go/waybill/framework/waybillpgx" // getting-started.md imports it
)

func TestGettingStarted(t *testing.T) {
	t.Parallel()
	newShell(t, "DATABASE_URL="+postgrestest.DSN(t)).follow("getting-started.md")
}

func TestWebhooksForYourCustomers(t *testing.T) {
	t.Parallel()
	needsPyPI(t)
	newShell(t, "DATABASE_URL="+postgrestest.DSN(t)).follow("webhooks.md")
}

// needsPyPI skips a test, except in CI, if Python or its package index is missing.
func needsPyPI(t *testing.T) {
	t.Helper()
	folder := t.TempDir()
	for _, command := range [][]string{
		{"python3", "-m", "venv", folder},
		{folder + "/bin/pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest", folder, "standardwebhooks==1.1.0"},
	} {
		if text, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			require.Empty(t, os.Getenv("CI"), "%v: %s", err, text)
			t.Skipf("needs python3 with venv, and PyPI: %v: %s", err, text)
		}
	}
}

func TestGoingToProduction(t *testing.T) {
	t.Parallel()
	// The server is private, since the guide creates a role and needs safe commits.
	server, err := postgrestest.Start(t.Context(), postgrestest.Options{Private: true, Durable: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	newShell(t, "DATABASE_URL="+server.DSN()).follow("production.md")
}

// order is the payload in the old outboxes and of the arrivals.
type order struct {
	Order string `json:"order"`
	N     int    `json:"n"`
}

// arrival is a line of the jsonlines sink, to which the guides deliver.
type arrival struct {
	ID, Type, Key string
	Metadata      map[string]string
	Payload       order
}

// move is a guide with a file move.sql, which moves what is pending. Before it, the old publishers
// have published 1 to 5, of which the old relay has delivered 1 and 2.
type move struct {
	page string
	// begin publishes the n-th notification like the old version, in a transaction that stays open
	// until commit is called.
	begin func(t *testing.T, n int) (commit func() error)
	// pending is a query for the number that the old relay would still deliver.
	pending string
	// id returns the id of the n-th notification.
	id  func(n int) string
	typ string
}

const delivered = 2 // by the old relay

func key(n int) string { return fmt.Sprintf("o-%d", n%3) }

// follow follows the guide while a publisher of the old version has a transaction open, and runs
// move.sql once more with publishers of the old version around it.
func (m move) follow(t *testing.T, db *sql.DB, dsn string) {
	t.Helper()
	s := newShell(t, "DATABASE_URL="+dsn)
	commit, committed := m.begin(t, 6), make(chan error, 1)
	go func() { committed <- commitOnceAwaited(t.Context(), db, commit) }()
	s.follow(m.page)
	require.NoError(t, <-committed)
	require.NoError(t, m.begin(t, 7)())
	s.run(`psql "$DATABASE_URL" --quiet --set ON_ERROR_STOP=1 --file move.sql`)
	require.NoError(t, m.begin(t, 8)())

	var left int
	require.NoError(t, db.QueryRowContext(t.Context(), m.pending).Scan(&left))
	require.Zero(t, left)

	last := map[string]int{}
	for _, a := range m.arrivals(t, s.path("forward"), 8-delivered) {
		require.Equal(t, m.id(a.Payload.N), a.ID)
		require.Equal(t, m.typ, a.Type)
		require.Equal(t, key(a.Payload.N), a.Key)
		require.Greater(t, a.Payload.N, max(delivered, last[a.Key]), "only pending notifications, in the old order")
		last[a.Key] = a.Payload.N
	}
}

// commitOnceAwaited commits once another session waits for the transaction's locks.
func commitOnceAwaited(ctx context.Context, db *sql.DB, commit func() error) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var awaited bool
		err := db.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation IS NOT NULL
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`).Scan(&awaited)
		if err != nil {
			return err
		}
		if awaited {
			return commit()
		}
		if time.Now().After(deadline) {
			return errors.New("nothing waits for the open transaction")
		}
	}
}

// arrivals returns what has arrived once there are count of them.
func (m move) arrivals(t *testing.T, file string, count int) []arrival {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var found []arrival
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "{") && strings.HasSuffix(line, "}\n") {
				var a arrival
				require.NoError(t, json.Unmarshal([]byte(line), &a))
				found = append(found, a)
			}
		}
		if len(found) >= count {
			require.Len(t, found, count, "each arrives once")
			return found
		}
		require.True(t, time.Now().Before(deadline), "%d of %d have arrived", len(found), count)
	}
}

func TestAHomeMadeOutboxMovesIn(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	db := open(t, dsn)
	for _, b := range blocks(t, "from-home-made.md") {
		if strings.HasPrefix(b.text, "CREATE TABLE outbox_events") {
			execute(t, db, b.text)
		}
	}
	id := func(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }
	begin := func(t *testing.T, n int) func() error {
		t.Helper()
		payload, err := json.Marshal(order{key(n), n})
		require.NoError(t, err)
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), `INSERT INTO outbox_events (id, event_type, aggregate_id, payload) VALUES ($1, 'order.placed', $2, $3)`, id(n), key(n), payload)
		require.NoError(t, err)
		return tx.Commit
	}
	for n := range 5 {
		require.NoError(t, begin(t, n+1)())
	}
	execute(t, db, `UPDATE outbox_events SET published_at = now() WHERE seq <= $1`, delivered)
	move{"from-home-made.md", begin, `SELECT count(*) FROM outbox_events WHERE published_at IS NULL`, id, "order.placed"}.follow(t, db, dsn)
}

func TestTheTableOfWatermillsForwarderMovesIn(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	db := open(t, dsn)
	id := func(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }
	begin := func(t *testing.T, n int) func() error {
		t.Helper()
		payload, err := json.Marshal(order{key(n), n})
		require.NoError(t, err)
		m := message.NewMessage(id(n), payload)
		m.Metadata.Set("partition_key", key(n))
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		publisher, err := watermillsql.NewPublisher(tx, watermillsql.PublisherConfig{SchemaAdapter: watermillsql.DefaultPostgreSQLSchema{}}, nil)
		require.NoError(t, err)
		require.NoError(t, forwarder.NewPublisher(publisher, forwarder.PublisherConfig{}).Publish("order.placed", m))
		return tx.Commit
	}
	subscriber, err := watermillsql.NewSubscriber(db, watermillsql.SubscriberConfig{
		SchemaAdapter: watermillsql.DefaultPostgreSQLSchema{}, OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
	}, watermill.NopLogger{})
	require.NoError(t, err)
	require.NoError(t, subscriber.SubscribeInitialize("forwarder_topic"))
	for n := range 5 {
		require.NoError(t, begin(t, n+1)())
	}
	forwardSome(t, subscriber)
	move{"from-watermill.md", begin, `SELECT count(*) FROM watermill_pending`, id, "order.placed"}.follow(t, db, dsn)
}

// forwardSome acknowledges what the old relay has delivered, like Watermill's forwarder.
func forwardSome(t *testing.T, subscriber message.Subscriber) {
	t.Helper()
	received := 0
	messages, err := subscriber.Subscribe(t.Context(), "forwarder_topic")
	require.NoError(t, err)
	for m := range messages {
		if received++; received > delivered {
			break
		}
		m.Ack()
	}
	require.NoError(t, subscriber.Close())
}

type orderPlaced order

func (orderPlaced) Kind() string { return "order_placed" }

func TestJobsOfRiverMoveIn(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	db := open(t, dsn)
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	require.NoError(t, err)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(t, err)
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
	require.NoError(t, err)
	begin := func(t *testing.T, n int) func() error {
		t.Helper()
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = client.InsertTx(t.Context(), tx, orderPlaced{key(n), n}, nil)
		require.NoError(t, err)
		return func() error { return tx.Commit(t.Context()) }
	}
	for n := range 5 {
		require.NoError(t, begin(t, n+1)())
	}
	workSome(t, pool)
	later, err := client.Insert(t.Context(), orderPlaced{"later", 100}, &river.InsertOpts{ScheduledAt: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	execute(t, db, `UPDATE river_job SET id = 100 WHERE id = $1`, later.Job.ID)
	execute(t, db, `SELECT setval('river_job_id_seq', 5)`)

	pending := `SELECT count(*) FROM river_job WHERE finalized_at IS NULL`
	id := func(n int) string { return fmt.Sprintf("river-%d", n) }
	move{"from-river.md", begin, pending, id, "order_placed"}.follow(t, db, dsn)

	var wait time.Duration
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT extract(epoch FROM deliver_at - now())::bigint * 1000000000 FROM outbox WHERE id = 'river-100'`).Scan(&wait))
	require.Greater(t, wait, 30*time.Minute, "a scheduled job stays scheduled")
}

// workSome lets a River client work on the jobs that the old relay has delivered.
func workSome(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := pool.Exec(ctx, `UPDATE river_job SET scheduled_at = now() + interval '1 hour', state = 'scheduled' WHERE id > $1`, delivered)
	require.NoError(t, err)
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[orderPlaced]) error { return nil }))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}}})
	require.NoError(t, err)
	events, unsubscribe := client.Subscribe(river.EventKindJobCompleted)
	defer unsubscribe()
	require.NoError(t, client.Start(ctx))
	for range delivered {
		<-events
	}
	require.NoError(t, client.Stop(ctx))
	_, err = pool.Exec(ctx, `UPDATE river_job SET scheduled_at = now(), state = 'available' WHERE id > $1`, delivered)
	require.NoError(t, err)
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func execute(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), statement, args...)
	require.NoError(t, err)
}
