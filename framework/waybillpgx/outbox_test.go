package waybillpgx_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/storetest"
	"github.com/waybill-go/waybill/framework/waybillpgx"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// patience bounds what a test waits for.
const patience = time.Minute

type orderPlaced struct{ Order string }

type paymentDue struct{ Order string }

var errNoStock = errors.New("no stock")

// shop is a program with orders, payments and an outbox in the database of a pool.
type shop struct {
	*waybillpgx.Outbox
	pool *pgxpool.Pool
}

// openPool returns a pool of 4 connections. configure may change its configuration.
func openPool(t *testing.T, dsn string, configure func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.MaxConns = 4
	if configure != nil {
		configure(config)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func newShop(t *testing.T, pool *pgxpool.Pool) *shop {
	t.Helper()
	return newShopOf(t, pool, waybill.PostgresConfig{})
}

func newShopOf(t *testing.T, pool *pgxpool.Pool, c waybill.PostgresConfig) *shop {
	t.Helper()
	s := &shop{waybillpgx.New(pool, c), pool}
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	s.Config.Logger = slog.New(slog.DiscardHandler)
	waybill.Register[orderPlaced](s, "order.placed", waybill.Key(func(o orderPlaced) string { return o.Order }))
	waybill.Register[paymentDue](s, "payment.due", waybill.Key(func(p paymentDue) string { return p.Order }))
	require.NoError(t, s.Migrate(t.Context()))
	for _, table := range []string{"orders", "payments"} {
		_, err := pool.Exec(t.Context(), `CREATE TABLE IF NOT EXISTS `+table+` (id text)`)
		require.NoError(t, err)
	}
	return s
}

// place places an order in a transaction of the program.
func (s *shop) place(ctx context.Context, order string) error {
	return s.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error { return s.placeIn(ctx, tx, order) })
}

func (s *shop) placeIn(ctx context.Context, tx pgx.Tx, order string) error {
	if _, err := tx.Exec(ctx, `INSERT INTO orders VALUES ($1)`, order); err != nil {
		return err
	}
	return s.Publish(ctx, tx, orderPlaced{order})
}

// texts returns the only column of a query.
func (s *shop) texts(t *testing.T, query string) []string {
	t.Helper()
	rows, err := s.pool.Query(t.Context(), query)
	require.NoError(t, err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return found
}

// run runs the outbox until the test ends, or stop is called.
func (s *shop) run(t *testing.T) (stop func()) {
	t.Helper()
	require.NoError(t, s.Open(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return stop
}

// await waits for a value of a channel.
func await[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	return value
}

func TestWhatIsPublishedCommitsAndRollsBackWithTheTransaction(t *testing.T) {
	t.Parallel()
	s := newShop(t, openPool(t, postgrestest.DSN(t), nil))
	ctx := t.Context()
	require.ErrorIs(t, s.Publish(ctx, nil, orderPlaced{"early"}), waybill.ErrNotOpen)
	require.NoError(t, s.place(ctx, "o-1"))
	require.ErrorIs(t, s.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return errors.Join(s.placeIn(ctx, tx, "rolled back"), errNoStock)
	}), errNoStock)
	require.NoError(t, pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return s.placeIn(ctx, tx, "o-2") }), "a transaction of the pool itself")
	s.Announce()
	require.Equal(t, []string{"o-1", "o-2"}, s.texts(t, `SELECT id FROM orders ORDER BY id`))
	require.Equal(t, []string{"o-1", "o-2"}, s.texts(t, `SELECT key FROM outbox ORDER BY key`))

	// The INSERT travels with the COMMIT, which returns its error.
	_, err := s.pool.Exec(ctx, `ALTER TABLE outbox ADD CONSTRAINT none CHECK (key <> 'refused')`)
	require.NoError(t, err)
	published := errors.New("Publish has not returned")
	err = s.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		published = s.placeIn(ctx, tx, "refused")
		return published
	})
	require.NoError(t, published)
	require.ErrorContains(t, err, "commit: append to the outbox")
}

// basket is an aggregate.
type basket struct{ waybill.Recorder }

type basketOrdered struct{ Order string }

type basketSeen struct{}

func TestAUnitPublishesEventsOfAggregatesInPgx(t *testing.T) {
	t.Parallel()
	s := newShop(t, openPool(t, postgrestest.DSN(t), nil))
	waybill.Map(s, func(_ context.Context, e basketOrdered) ([]any, error) { return []any{orderPlaced(e)}, nil })
	waybill.Ignore[basketSeen](s)
	b := &basket{}
	b.Record(basketSeen{}, basketOrdered{"o-1"})
	save := func(result error) error {
		return s.InUnit(t.Context(), func(ctx context.Context, tx pgx.Tx, u *waybill.Unit) error {
			u.Track(b)
			require.ErrorIs(t, u.Publish(ctx, outbox.Pgx(tx)), outbox.ErrUnit)
			_, err := tx.Exec(ctx, `INSERT INTO orders VALUES ('o-1')`)
			return errors.Join(err, result)
		})
	}
	require.ErrorIs(t, save(errNoStock), errNoStock)
	require.Len(t, b.Events(), 2)
	require.NoError(t, save(nil))
	require.Empty(t, b.Events())
	require.Equal(t, []string{"o-1"}, s.texts(t, `SELECT key FROM outbox`))
}

func TestScheduledNotificationsAreCancelledInPgx(t *testing.T) {
	t.Parallel()
	s := newShop(t, openPool(t, postgrestest.DSN(t), nil))
	later := waybill.DeliverAt(time.Now().Add(time.Hour))
	require.NoError(t, s.InTx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		return s.Publish(ctx, tx, waybill.With(orderPlaced{"o-1"}, later, waybill.ID("n-1")), waybill.With(orderPlaced{"o-2"}, later))
	}))
	require.NoError(t, s.InTx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		byID, err := s.CancelID(ctx, tx, "n-1")
		require.NoError(t, err)
		byKey, err := s.CancelKey(ctx, tx, "order.placed", "o-2")
		require.Equal(t, []int{1, 1}, []int{byID, byKey})
		return err
	}))
}

func TestAHandlerHasItsEffectsOnceThoughADeliveryIsRepeated(t *testing.T) {
	t.Parallel()
	s := newShop(t, openPool(t, postgrestest.DSN(t), nil))
	refuse := true
	waybillpgx.HandleTx(s.Outbox, "payments", func(ctx context.Context, tx pgx.Tx, o orderPlaced) error {
		_, err := tx.Exec(ctx, `INSERT INTO payments VALUES ($1)`, o.Order)
		err = errors.Join(err, s.Publish(ctx, tx, paymentDue(o)))
		if refuse {
			return errors.Join(err, errNoStock)
		}
		return err
	})
	require.NoError(t, s.Open(t.Context()))
	c, err := s.Forwarding()
	require.NoError(t, err)
	e, err := s.Types().Encode(orderPlaced{"o-1"})
	require.NoError(t, err)
	e.ID = "n-1"
	deliver := func() (notification.Receipt, error) {
		return c.Sinks["payments"].Sink.Deliver(t.Context(), &notification.Delivery{Envelope: e, Sink: "payments", Attempt: 1})
	}
	_, err = deliver()
	require.ErrorIs(t, err, errNoStock)
	require.Empty(t, s.texts(t, `SELECT id FROM payments`))
	refuse = false
	for _, want := range []notification.Receipt{"", "handled before"} {
		receipt, err := deliver()
		require.NoError(t, err)
		require.Equal(t, want, receipt)
	}
	require.Equal(t, []string{"o-1"}, s.texts(t, `SELECT id FROM payments`))
	require.Equal(t, []string{"o-1"}, s.texts(t, `SELECT key FROM outbox WHERE type = 'payment.due'`))
}

func TestHandlersOfOneSinkHaveOneKindOfTransaction(t *testing.T) {
	t.Parallel()
	s := newShop(t, openPool(t, postgrestest.DSN(t), nil))
	waybillpgx.HandleTx(s.Outbox, "mixed", func(context.Context, pgx.Tx, orderPlaced) error { return nil })
	waybill.HandleTx(s, "mixed", func(context.Context, *sql.Tx, paymentDue) error { return nil })
	waybillpgx.HandleTx(s.Outbox, "plain", func(context.Context, pgx.Tx, orderPlaced) error { return nil })
	waybill.Handle(s, "plain", func(context.Context, paymentDue) error { return nil })
	err := s.Open(t.Context())
	require.ErrorContains(t, err, `sink "mixed" has handlers in transactions of both database/sql and pgx`)
	require.ErrorContains(t, err, `sink "plain" has handlers from both Handle and HandleTx`)
}

// Handlers hold all connections of the pool, and requests wait for one.
func TestAForwarderKeepsItsLanesWhileHandlersAndRequestsUseTheWholePool(t *testing.T) {
	t.Parallel()
	pool := openPool(t, postgrestest.DSN(t), nil)
	s := newShop(t, pool)
	s.Config.Lease = 6 * time.Second // renewed every 2 s
	entered, leave, calls := make(chan struct{}, 8), make(chan struct{}), atomic.Int32{}
	release := sync.OnceFunc(func() { close(leave) })
	waybillpgx.HandleTx(s.Outbox, "slow", func(ctx context.Context, tx pgx.Tx, o orderPlaced) error {
		calls.Add(1)
		entered <- struct{}{}
		<-leave
		_, err := tx.Exec(ctx, `INSERT INTO payments VALUES ($1)`, o.Order)
		return err
	}).Parallelism.Threshold = 4
	due := make(chan string, 1)
	waybill.Handle(s, "quick", func(_ context.Context, p paymentDue) error { due <- p.Order; return nil })
	for i := range 4 {
		require.NoError(t, s.place(t.Context(), fmt.Sprint("o-", i)))
	}
	beside := waybillpgx.SessionsAs(pool).Open() // sees what happens, outside of the pool
	t.Cleanup(func() { require.NoError(t, beside.Close()) })
	stop := s.run(t)
	t.Cleanup(release) // before the forwarder stops
	for range 4 {
		await(t, entered)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	var requests sync.WaitGroup
	for i := range 8 {
		requests.Go(func() { _ = s.place(ctx, fmt.Sprint("later-", i)) })
	}
	lease := func() (epoch int64, expires time.Time) {
		require.NoError(t, beside.QueryRowContext(t.Context(), `SELECT epoch, lease_until FROM outbox_cursors WHERE sink = 'slow'`).Scan(&epoch, &expires))
		return epoch, expires
	}
	epoch, before := lease()
	for renewed, deadline := 0, time.Now().Add(patience); renewed < 4; {
		time.Sleep(50 * time.Millisecond)
		require.True(t, time.Now().Before(deadline), "the lease is not renewed")
		now, expires := lease()
		require.Equal(t, epoch, now, "the lane was not given up")
		if expires.After(before) {
			before = expires
			renewed++
		}
	}
	_, err := beside.ExecContext(t.Context(), `INSERT INTO outbox (type, key, payload) VALUES ('payment.due', 'p', '{"Order":"p"}')`)
	require.NoError(t, err)
	require.Equal(t, "p", await(t, due), "another sink delivers")
	require.Zero(t, pool.Stat().IdleConns())
	require.EqualValues(t, 4, calls.Load())
	giveUp()
	requests.Wait()
	release()
	require.Eventually(t, func() bool { return len(s.texts(t, `SELECT id FROM payments`)) >= 4 }, patience, 20*time.Millisecond)
	stop()
	require.Len(t, s.texts(t, `SELECT id FROM payments WHERE id LIKE 'o-%'`), 4)
	require.Equal(t, forwarder.DefaultConnections+2, s.Handle().Stats().MaxOpenConnections)
}

func TestTheForwardersConnectionsFollowItsConfiguration(t *testing.T) {
	t.Parallel()
	s := newShop(t, openPool(t, postgrestest.DSN(t), nil))
	s.Config.Connections = 20
	require.NoError(t, s.Open(t.Context()))
	require.Equal(t, 22, s.Handle().Stats().MaxOpenConnections)
}

// Polling would find the notifications after 72 s at the earliest.
func TestCommitsOfAnotherProcessWakeTheForwarder(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	var asked atomic.Int32
	pool := openPool(t, dsn, func(c *pgxpool.Config) {
		user, password := c.ConnConfig.User, c.ConnConfig.Password
		c.ConnConfig.User, c.ConnConfig.Password = "left-last-year", ""
		c.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			asked.Add(1)
			c.User, c.Password = user, password // which may be a token
			return nil
		}
	})
	s := newShop(t, pool)
	s.Config.Poll = time.Hour
	placed := make(chan string, 10)
	waybill.Handle(s, "print", func(_ context.Context, o orderPlaced) error { placed <- o.Order; return nil })
	s.run(t)
	other := newShop(t, openPool(t, dsn, nil))
	for i := range 4 {
		order := fmt.Sprint("o-", i)
		require.NoError(t, other.place(t.Context(), order))
		require.Equal(t, order, await(t, placed))
		if i == 1 { // the listening connection too
			_, err := other.pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
			require.NoError(t, err)
		}
	}
	require.Eventually(t, func() bool {
		return len(other.texts(t, `SELECT owner FROM outbox_forwarders WHERE presence <> ''`)) == 1
	}, patience, 20*time.Millisecond)
	require.Greater(t, asked.Load(), int32(3))
}

func TestAnAddressMayHaveTheParametersOfPgx(t *testing.T) {
	t.Parallel()
	for mode := pgx.QueryExecModeCacheStatement; mode <= pgx.QueryExecModeSimpleProtocol; mode++ {
		name := strings.ReplaceAll(mode.String(), " ", "_")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse(postgrestest.DSN(t))
			require.NoError(t, err)
			q := u.Query()
			for key, value := range map[string]string{
				"pool_max_conns": "3", "pool_max_conn_lifetime": "1h", "default_query_exec_mode": name, "statement_cache_capacity": "10",
				"target_session_attrs": "read-write", "application_name": "shop",
			} {
				q.Set(key, value)
			}
			u.RawQuery = q.Encode()
			s := newShop(t, openPool(t, u.String(), nil))
			placed := make(chan string, 1)
			waybillpgx.HandleTx(s.Outbox, "payments", func(ctx context.Context, tx pgx.Tx, o orderPlaced) error {
				_, err := tx.Exec(ctx, `INSERT INTO payments VALUES ($1)`, o.Order)
				return errors.Join(err, s.Publish(ctx, tx, paymentDue(o)))
			})
			waybill.Handle(s, "print", func(_ context.Context, p paymentDue) error { placed <- p.Order; return nil })
			stop := s.run(t)
			require.NoError(t, s.place(t.Context(), "o-1"))
			require.Equal(t, "o-1", await(t, placed))
			require.Eventually(t, func() bool { return s.Forwarder().Figures().Listening }, patience, 10*time.Millisecond)
			stop()
		})
	}
}

// Without a direct address the forwarder polls; with one a commit wakes it.
func TestAPoolMayLeadThroughATransactionPooler(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	pooled, err := postgrestest.StartPooler(t, dsn, 5)
	if errors.Is(err, postgrestest.ErrNoProgram) {
		t.Skip(err)
	}
	require.NoError(t, err)
	pool := openPool(t, pooled, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec })
	refused := waybillpgx.SessionsAs(pool).Open()
	defer refused.Close()
	require.ErrorIs(t, refused.PingContext(t.Context()), store.ErrNoPresence)
	other := newShop(t, openPool(t, dsn, nil))
	for i, c := range []struct {
		listen string
		poll   time.Duration
	}{{"", time.Second}, {dsn, time.Hour}} {
		s := newShopOf(t, pool, waybill.PostgresConfig{Listen: c.listen})
		s.Config.Poll = c.poll
		placed := make(chan string, 10)
		waybill.Handle(s, "print", func(_ context.Context, o orderPlaced) error { placed <- o.Order; return nil })
		stop := s.run(t)
		for n := range 2 {
			order := fmt.Sprint(i, n)
			require.NoError(t, other.place(t.Context(), order))
			require.Equal(t, order, await(t, placed))
		}
		require.Eventually(t, func() bool { return s.Forwarder().Figures().Listening == (c.listen != "") }, patience, 10*time.Millisecond)
		stop()
	}
}

func TestNoConnectionOfTheOutboxIsLeftAfterClose(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	pool := openPool(t, dsn, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = "closing" })
	s := newShop(t, pool)
	waybill.Handle(s, "print", func(context.Context, orderPlaced) error { return nil })
	stop := s.run(t)
	require.NoError(t, s.place(t.Context(), "o-1"))
	stop()
	require.NoError(t, s.Close())
	require.NoError(t, s.place(t.Context(), "o-2"), "publishing needs the pool alone")
	pool.Close()
	other := &shop{pool: openPool(t, dsn, nil)}
	require.Eventually(t, func() bool {
		return len(other.texts(t, `SELECT pid::text FROM pg_stat_activity WHERE application_name = 'closing' AND datname = current_database()`)) == 0
	}, patience, 20*time.Millisecond)
}

func TestAConnectionThatAfterConnectRefusesIsClosed(t *testing.T) {
	t.Parallel()
	var made atomic.Pointer[pgx.Conn]
	pool := openPool(t, postgrestest.DSN(t), func(c *pgxpool.Config) {
		c.AfterConnect = func(_ context.Context, conn *pgx.Conn) error { made.Store(conn); return errNoStock }
	})
	db := waybillpgx.SessionsAs(pool).Open()
	defer db.Close()
	require.ErrorIs(t, db.PingContext(t.Context()), errNoStock)
	require.True(t, made.Load().IsClosed())
}

// A primary that has become a standby keeps its sessions.
func TestAConnectionToAReadOnlyServerIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	pool := openPool(t, postgrestest.DSN(t), nil)
	_, err := pool.Exec(t.Context(), `CREATE TABLE written (n int)`)
	require.NoError(t, err)
	var database string
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT current_database()`).Scan(&database))
	alter := func(setting string) {
		_, err := pool.Exec(t.Context(), `ALTER DATABASE `+pgx.Identifier{database}.Sanitize()+` `+setting)
		require.NoError(t, err)
	}
	alter(`SET default_transaction_read_only = on`)
	db := waybillpgx.SessionsAs(pool).Open()
	defer db.Close()
	require.NoError(t, db.PingContext(t.Context()))
	alter(`RESET default_transaction_read_only`)
	var refused *pgconn.PgError
	_, err = db.ExecContext(t.Context(), `INSERT INTO written VALUES (1)`)
	require.ErrorAs(t, err, &refused)
	_, err = db.ExecContext(t.Context(), `INSERT INTO written VALUES (1)`)
	require.NoError(t, err)
}

// It is noticed within 15 s.
func TestASilentListeningConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	proxy := postgrestest.StartProxy(t, dsn)
	s := newShop(t, openPool(t, proxy.DSN(), nil))
	waybill.Handle(s, "print", func(context.Context, orderPlaced) error { return nil })
	s.run(t)
	listening := func() bool { return s.Forwarder().Figures().Listening }
	require.Eventually(t, listening, patience, 10*time.Millisecond)
	proxy.Swallow()
	require.Eventually(t, func() bool { return !listening() }, patience, 10*time.Millisecond)
	proxy.Forward()
	require.Eventually(t, listening, patience, 10*time.Millisecond)
}

// The store passes the conformance suite also over pgx, with the presence of a process.
func TestConformanceOverPgx(t *testing.T) {
	var sessions sync.Map // by handle
	storetest.Run(t, storetest.Dialect{
		NewDB: func(t *testing.T) *sql.DB {
			its := waybillpgx.SessionsAs(openPool(t, postgrestest.DSN(t), nil))
			db := its.Open()
			t.Cleanup(func() { _ = db.Close() })
			sessions.Store(db, its)
			return db
		},
		Migrate: func(ctx context.Context, db *sql.DB) ([]string, error) {
			return postgres.Migrate(ctx, db, postgres.Config{Receipts: true})
		},
		Open: func(ctx context.Context, db *sql.DB) (storetest.Store, error) {
			its, _ := sessions.Load(db)
			return postgres.Open(ctx, db, postgres.Config{Receipts: true, Sessions: its.(postgres.Sessions)})
		},
		Restart: []string{`TRUNCATE outbox RESTART IDENTITY`},
		Gap:     `SELECT setval('outbox_offset_seq', 999999)`,
		Slots:   true,
	})
}
