package drivers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/waybilltest"
	"github.com/waybill-go/waybill/registry"
)

// OrderPlaced is the notification that the shop publishes.
type OrderPlaced struct{ Order, Product string }

func (o OrderPlaced) Key() string { return o.Order }

// shop has orders and an outbox in one database. The handle db is for checks.
type shop struct {
	db        *sql.DB
	quote     string // the character around an identifier
	log       outbox.Log
	types     *registry.Registry
	publisher *outbox.Publisher
	wakes     atomic.Int64
}

func newShop(t testing.TB, db *sql.DB, log outbox.Log) *shop {
	t.Helper()
	_, err := db.ExecContext(t.Context(), `CREATE TABLE orders (id varchar(255) PRIMARY KEY, product text)`)
	require.NoError(t, err)
	s := &shop{db: db, quote: `"`, log: log, types: registry.New()}
	require.NoError(t, registry.Register[OrderPlaced](s.types, "order.placed", registry.Key(OrderPlaced.Key)))
	s.publisher, err = outbox.New(s.types, log, outbox.Config{Wake: func() { s.wakes.Add(1) }, Announcer: outbox.Silent})
	require.NoError(t, err)
	return s
}

// onPostgres returns a shop on PostgreSQL, with a handle of any driver.
func onPostgres(t testing.TB, db *sql.DB) *shop {
	t.Helper()
	_, err := postgres.Migrate(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	log, err := postgres.Open(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	return newShop(t, db, log)
}

// onPq returns a shop on PostgreSQL, with lib/pq.
func onPq(t testing.TB) *shop {
	t.Helper()
	db, err := postgres.OpenDB(postgrestest.DSN(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return onPostgres(t, db)
}

// onSQLite returns a shop in an SQLite file.
func onSQLite(t testing.TB) *shop {
	t.Helper()
	o := waybilltest.New(t, registry.New())
	return newShop(t, o.DB, o.Store)
}

// onMySQL returns a shop on MySQL or MariaDB, with the application's handle. Without a server the test is
// skipped.
func onMySQL(t testing.TB) *shop {
	t.Helper()
	db, err := sql.Open("mysql", mysqltest.DSN(t)+"?parseTime=true")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = mysql.Migrate(t.Context(), db, mysql.Config{})
	require.NoError(t, err)
	log, err := mysql.Open(t.Context(), db, mysql.Config{})
	require.NoError(t, err)
	s := newShop(t, db, log)
	s.quote = "`"
	return s
}

// column returns the only column of a query. Names that are keywords in some databases are in double
// quotes.
func (s *shop) column(t testing.TB, query string) []string {
	t.Helper()
	query = strings.ReplaceAll(query, `"`, s.quote)
	rows, err := s.db.QueryContext(t.Context(), query)
	require.NoError(t, err)
	defer rows.Close()
	texts := []string{}
	for rows.Next() {
		var text string
		require.NoError(t, rows.Scan(&text))
		texts = append(texts, text)
	}
	require.NoError(t, rows.Err())
	return texts
}

// holds checks which orders exist, and that each was published, in order.
func (s *shop) holds(t testing.TB, orders ...string) {
	t.Helper()
	require.ElementsMatch(t, orders, s.column(t, `SELECT id FROM orders`))
	require.Equal(t, append([]string{}, orders...), s.column(t, `SELECT "key" FROM outbox ORDER BY "offset"`))
}

// unit is a transaction of a library.
type unit struct {
	tx     outbox.Tx                    // to publish in
	insert func(order string) error     // inserts an order with the library
	nested func(func(unit) error) error // runs a function in a savepoint of the library; nil if it has none
}

// place places an order: it writes a row and publishes a notification.
func (s *shop) place(ctx context.Context, u unit, order string) error {
	if err := u.insert(order); err != nil {
		return err
	}
	return s.publisher.Publish(ctx, u.tx, OrderPlaced{Order: order, Product: "kite?"})
}

var errNoStock = errors.New("no stock")

// check checks the transactions of a library. run runs one like the library: it commits if the function
// returns nil. announces reports whether that wakes the forwarder.
func (s *shop) check(t *testing.T, announces bool, run func(ctx context.Context, f func(unit) error) error) {
	ctx := t.Context()
	require.NoError(t, run(ctx, func(u unit) error { return s.place(ctx, u, "committed") }))
	if !announces {
		s.publisher.Announce()
	}
	require.EqualValues(t, 1, s.wakes.Load())
	s.holds(t, "committed")

	require.ErrorIs(t, run(ctx, func(u unit) error {
		return errors.Join(s.place(ctx, u, "rolled back"), errNoStock)
	}), errNoStock)
	require.EqualValues(t, 1, s.wakes.Load())
	s.holds(t, "committed")

	var over outbox.Tx
	require.NoError(t, run(ctx, func(u unit) error {
		over = u.tx
		return nil
	}))
	require.ErrorIs(t, s.publisher.Publish(ctx, over, OrderPlaced{Order: "late"}), outbox.ErrTxOver)
	require.EqualValues(t, 1, s.wakes.Load(), "nothing was published")

	want := []string{"committed", "outer", "inner"}
	require.NoError(t, run(ctx, func(u unit) error {
		if err := s.place(ctx, u, "outer"); err != nil {
			return err
		}
		if u.nested == nil {
			return s.place(ctx, u, "inner")
		}
		if err := u.nested(func(u unit) error { return errors.Join(s.place(ctx, u, "undone"), errNoStock) }); !errors.Is(err, errNoStock) {
			return fmt.Errorf("the savepoint ended with %w", err)
		}
		return u.nested(func(u unit) error { return s.place(ctx, u, "inner") })
	}))
	s.holds(t, want...)

	many := make([]any, 1000)
	for i := range many {
		many[i] = OrderPlaced{Order: fmt.Sprint("many-", i)}
		want = append(want, fmt.Sprint("many-", i))
	}
	require.NoError(t, run(ctx, func(u unit) error { return s.publisher.Publish(ctx, u.tx, many...) }))
	require.Equal(t, want, s.column(t, `SELECT "key" FROM outbox ORDER BY "offset"`))

	_, err := s.db.ExecContext(ctx, `ALTER TABLE outbox RENAME TO elsewhere`)
	require.NoError(t, err)
	err = run(ctx, func(u unit) error { return s.place(ctx, u, "o") })
	require.ErrorContains(t, err, "append to the outbox: ")
	for _, word := range []string{"watermill", "message", "row:"} {
		require.NotContains(t, strings.ToLower(err.Error()), word)
	}
}

// refuses checks that Publish refuses values that are not transactions.
func (s *shop) refuses(t *testing.T, none ...outbox.Tx) {
	t.Helper()
	for _, tx := range none {
		require.ErrorIs(t, s.publisher.Publish(t.Context(), tx, OrderPlaced{}), outbox.ErrNotTransaction, "%T", tx)
	}
}
