package postgres_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/capture"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

const orders = `CREATE TABLE orders (id text PRIMARY KEY, product text, amount numeric, card text)`

var captureOrders = capture.Capture{Table: "orders", Key: "id", Columns: []string{"id", "product", "amount"}}

// newCapture creates an outbox and a table, and captures the table.
func newCapture(t *testing.T, outbox postgres.Config, table string, c capture.Capture) *sql.DB {
	t.Helper()
	db := newDB(t)
	_, err := postgres.Migrate(t.Context(), db, outbox)
	require.NoError(t, err)
	exec(t, db, table)
	require.NoError(t, capture.Add(t.Context(), db, outbox, c))
	return db
}

// published returns the content of the log, in order, as "type key payload".
func published(t *testing.T, db *sql.DB) (rows []string) {
	t.Helper()
	found, err := db.QueryContext(t.Context(), `SELECT type || ' ' || key || ' ' || payload::text FROM outbox ORDER BY "offset"`)
	require.NoError(t, err)
	defer found.Close()
	for found.Next() {
		var row string
		require.NoError(t, found.Scan(&row))
		rows = append(rows, row)
	}
	require.NoError(t, found.Err())
	exec(t, db, `DELETE FROM outbox`)
	return rows
}

func TestACapturePublishesWhatIsWrittenWithItsTransaction(t *testing.T) {
	t.Parallel()
	db := newCapture(t, postgres.Config{}, orders, captureOrders)

	exec(t, db, `INSERT INTO orders VALUES ('o-1', 'kite', 10.50, '4111'), ('o-2', 'Drachen "Ä" \ ''🪁''', 1e-20, '4222')`)
	require.Equal(t, []string{
		`orders.inserted o-1 {"before" : null, "after" : {"id":"o-1","product":"kite","amount":10.50}}`,
		`orders.inserted o-2 {"before" : null, "after" : {"id":"o-2","product":"Drachen \"Ä\" \\ '🪁'","amount":0.00000000000000000001}}`,
	}, published(t, db))

	exec(t, db, `UPDATE orders SET product = NULL WHERE id = 'o-1'`)
	require.Equal(t, []string{
		`orders.updated o-1 {"before" : {"id":"o-1","product":"kite","amount":10.50}, "after" : {"id":"o-1","product":null,"amount":10.50}}`,
	}, published(t, db))

	exec(t, db, `UPDATE orders SET card = 'secret'`, `UPDATE orders SET product = product`, `UPDATE orders SET product = 'x' WHERE false`, `DELETE FROM orders WHERE false`)
	require.Empty(t, published(t, db), "nothing of the named columns has changed")

	exec(t, db, `BEGIN; DELETE FROM orders; ROLLBACK`)
	require.Empty(t, published(t, db), "a statement that was rolled back")

	exec(t, db, `UPDATE orders SET id = 'o-3' WHERE id = 'o-1'`)
	require.Equal(t, []string{
		`orders.deleted o-1 {"before" : {"id":"o-1","product":null,"amount":10.50}, "after" : null}`,
		`orders.inserted o-3 {"before" : null, "after" : {"id":"o-3","product":null,"amount":10.50}}`,
	}, published(t, db))

	exec(t, db, `INSERT INTO orders VALUES ('o-3', 'hat'), ('o-4', 'cap') ON CONFLICT (id) DO UPDATE SET product = excluded.product`)
	require.ElementsMatch(t, []string{
		`orders.inserted o-4 {"before" : null, "after" : {"id":"o-4","product":"cap","amount":null}}`,
		`orders.updated o-3 {"before" : {"id":"o-3","product":null,"amount":10.50}, "after" : {"id":"o-3","product":"hat","amount":10.50}}`,
	}, published(t, db))

	exec(t, db, `BEGIN; SET LOCAL search_path = ''; DELETE FROM public.orders WHERE id = 'o-4'; COMMIT`)
	require.Equal(t, []string{`orders.deleted o-4 {"before" : {"id":"o-4","product":"cap","amount":null}, "after" : null}`}, published(t, db))

	_, err := db.ExecContext(t.Context(), `TRUNCATE orders`)
	require.ErrorContains(t, err, "TRUNCATE of public.orders would not be captured")
}

func TestACaptureFitsItsTableAndItsOutbox(t *testing.T) {
	t.Parallel()
	wide := make([]string, 100)
	for i := range wide {
		wide[i] = fmt.Sprintf("c%d", i)
	}
	odd := []string{"c", "t", "Total, \"net\"", "tg_op", "key", "data", "row", "payload", "user", "$1", "ü"}
	quoted := func(names []string, typ string) string {
		var b strings.Builder
		for _, n := range names {
			b.WriteString(`, "` + strings.ReplaceAll(n, `"`, `""`) + `" ` + typ)
		}
		return b.String()
	}
	for name, test := range map[string]struct {
		outbox  postgres.Config
		table   string
		capture capture.Capture
		writes  []string
		want    []string
	}{
		"a quoted name in a schema, with its own type": {
			table:   `CREATE SCHEMA "Sales"; CREATE TABLE "Sales"."Order ""x""" ("Id" int PRIMARY KEY)`,
			capture: capture.Capture{Table: `"Sales"."Order ""x"""`, Key: "Id", Columns: []string{"Id"}, Type: `sale's\.order`},
			writes:  []string{`INSERT INTO "Sales"."Order ""x""" VALUES (7)`, `DELETE FROM "Sales"."Order ""x"""`},
			want:    []string{`sale's\.order.inserted 7 {"before" : null, "after" : {"Id":7}}`, `sale's\.order.deleted 7 {"before" : {"Id":7}, "after" : null}`},
		},
		"a partitioned table, and an UPDATE that moves a row": {
			table: `CREATE TABLE orders (id int, month int, PRIMARY KEY (id, month)) PARTITION BY RANGE (month);
				CREATE TABLE m1 PARTITION OF orders FOR VALUES FROM (1) TO (2); CREATE TABLE m2 PARTITION OF orders FOR VALUES FROM (2) TO (3)`,
			capture: capture.Capture{Table: "orders", Key: "id", Columns: []string{"month"}},
			writes:  []string{`INSERT INTO orders VALUES (1, 1)`, `UPDATE orders SET month = 2`},
			want: []string{
				`orders.inserted 1 {"before" : null, "after" : {"month":1}}`,
				`orders.deleted 1 {"before" : {"month":1}, "after" : null}`,
				`orders.inserted 1 {"before" : null, "after" : {"month":2}}`,
			},
		},
		"a key that is not the primary key, and NULL": {
			table:   `CREATE TABLE lines (id int PRIMARY KEY, order_id text, amount int)`,
			capture: capture.Capture{Table: "lines", Key: "order_id", Columns: []string{"id", "amount"}},
			writes:  []string{`INSERT INTO lines VALUES (1, NULL, 5)`, `UPDATE lines SET amount = 6`, `UPDATE lines SET order_id = 'o-1'`},
			want: []string{
				`lines.inserted  {"before" : null, "after" : {"id":1,"amount":5}}`,
				`lines.updated  {"before" : {"id":1,"amount":5}, "after" : {"id":1,"amount":6}}`,
			},
		},
		"an outbox of bytes": {
			outbox:  postgres.Config{Payload: postgres.PayloadBytes},
			table:   `CREATE TABLE a (id int PRIMARY KEY)`,
			capture: capture.Capture{Table: "a", Key: "id", Columns: []string{"id"}},
			writes:  []string{`INSERT INTO a VALUES (1)`},
			want:    []string{`a.inserted 1 \x7b226265666f726522203a206e756c6c2c2022616674657222203a207b226964223a317d7d`},
		},
		"a partitioned log": {
			outbox:  postgres.Config{PartitionRows: 10},
			table:   `CREATE TABLE a (id int PRIMARY KEY)`,
			capture: capture.Capture{Table: "a", Key: "id", Columns: []string{"id"}, On: []capture.Change{capture.Insert}},
			writes:  []string{`INSERT INTO a VALUES (1)`, `UPDATE a SET id = 2`, `TRUNCATE a`},
			want:    []string{`a.inserted 1 {"before" : null, "after" : {"id":1}}`},
		},
		"no primary key": {
			table:   `CREATE TABLE a (id int)`,
			capture: capture.Capture{Table: "a", Key: "id", Columns: []string{"id"}, On: []capture.Change{capture.Insert, capture.Delete}},
			writes:  []string{`INSERT INTO a VALUES (1), (1)`, `DELETE FROM a`},
			want: []string{
				`a.inserted 1 {"before" : null, "after" : {"id":1}}`, `a.inserted 1 {"before" : null, "after" : {"id":1}}`,
				`a.deleted 1 {"before" : {"id":1}, "after" : null}`, `a.deleted 1 {"before" : {"id":1}, "after" : null}`,
			},
		},
		"a hundred columns": {
			table:   `CREATE TABLE wide (id int PRIMARY KEY` + quoted(wide, "int") + `)`,
			capture: capture.Capture{Table: "wide", Key: "id", Columns: wide},
			writes:  []string{`INSERT INTO wide VALUES (1)`},
			want:    []string{`wide.inserted 1 {"before" : null, "after" : {"` + strings.Join(wide, `":null,"`) + `":null}}`},
		},
		"names that the function also uses": {
			table:   `CREATE TABLE new_rows (id int PRIMARY KEY` + quoted(odd, "int") + `)`,
			capture: capture.Capture{Table: "new_rows", Key: "id", Columns: odd},
			writes:  []string{`INSERT INTO new_rows VALUES (1)`, `UPDATE new_rows SET c = 1`},
			want: []string{
				`new_rows.inserted 1 {"before" : null, "after" : {"c":null,"t":null,"Total, \"net\"":null,"tg_op":null,"key":null,"data":null,"row":null,"payload":null,"user":null,"$1":null,"ü":null}}`,
				`new_rows.updated 1 {"before" : {"c":null,"t":null,"Total, \"net\"":null,"tg_op":null,"key":null,"data":null,"row":null,"payload":null,"user":null,"$1":null,"ü":null},` +
					` "after" : {"c":1,"t":null,"Total, \"net\"":null,"tg_op":null,"key":null,"data":null,"row":null,"payload":null,"user":null,"$1":null,"ü":null}}`,
			},
		},
		"types": {
			table: `CREATE TYPE color AS ENUM ('red'); CREATE TABLE a (id uuid PRIMARY KEY, n numeric, f float8, b bytea, j json, jb jsonb, at timestamptz, d date, ok bool, list int[], e color,
				twice numeric GENERATED ALWAYS AS (n * 2) STORED)`,
			capture: capture.Capture{Table: "a", Key: "id", Columns: []string{"n", "f", "b", "j", "jb", "at", "d", "ok", "list", "e", "twice"}},
			writes: []string{`SET TimeZone = 'UTC'; INSERT INTO a VALUES ('00000000-0000-0000-0000-000000000001', 12345678901234567890.10, 'NaN', '\x00ff', '{"b" : 1, "a": 2}', '{"b": 1, "a": 2}',
				'2030-01-02T03:04:05.678901Z', '2030-01-02', true, '{1,2}', 'red')`},
			want: []string{`a.inserted 00000000-0000-0000-0000-000000000001 {"before" : null, "after" : {"n":12345678901234567890.10,"f":"NaN","b":"\\x00ff","j":{"b" : 1, "a": 2},"jb":{"a": 2, "b": 1},` +
				`"at":"2030-01-02T03:04:05.678901+00:00","d":"2030-01-02","ok":true,"list":[1,2],"e":"red","twice":24691357802469135780.20}}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newCapture(t, test.outbox, test.table, test.capture)
			exec(t, db, test.writes...)
			got := published(t, db)
			require.Equal(t, test.want, got[:len(test.want)])
			if test.capture.Key != "order_id" {
				require.Len(t, got, len(test.want))
				return
			}
			require.Equal(t, []string{
				`lines.deleted  {"before" : {"id":1,"amount":6}, "after" : null}`,
				`lines.inserted o-1 {"before" : null, "after" : {"id":1,"amount":6}}`,
			}, got[len(test.want):])
		})
	}
}

func TestACaptureOfRowsThatAKeyCascadesTo(t *testing.T) {
	t.Parallel()
	db := newCapture(t, postgres.Config{}, orders+`; CREATE TABLE lines (id int PRIMARY KEY, order_id text REFERENCES orders ON DELETE CASCADE)`,
		capture.Capture{Table: "lines", Key: "order_id", Columns: []string{"id"}})
	exec(t, db, `INSERT INTO orders VALUES ('o-1')`, `INSERT INTO lines VALUES (1, 'o-1')`, `DELETE FROM orders`)
	require.Equal(t, []string{`lines.inserted o-1 {"before" : null, "after" : {"id":1}}`, `lines.deleted o-1 {"before" : {"id":1}, "after" : null}`}, published(t, db))
}

// catalog returns everything that a capture could leave behind.
func catalog(t *testing.T, db *sql.DB) (count int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal) + (SELECT count(*) FROM pg_proc)`).Scan(&count))
	return count
}

func TestTablesOfTheOutboxCannotBeCaptured(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	_, err := postgres.Migrate(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	var tables []string
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT array_agg(tablename::text) FROM pg_tables WHERE schemaname = 'public'`).Scan(pq.Array(&tables)))
	require.Contains(t, tables, "outbox")
	for _, table := range tables {
		err := capture.Add(t.Context(), db, postgres.Config{}, capture.Capture{Table: table, Key: "id", Columns: []string{"id"}})
		require.ErrorContains(t, err, "it belongs to the outbox", table)
	}
}

func TestAnInvalidCaptureIsRefusedAndLeavesNothing(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	require.ErrorIs(t, capture.Add(t.Context(), db, postgres.Config{}, captureOrders), store.ErrNotMigrated)
	_, err := postgres.Migrate(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	exec(t, db, orders, `CREATE VIEW seen AS SELECT * FROM orders`, `CREATE TABLE heap (id int)`,
		`CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)`, `CREATE TABLE part PARTITION OF parts DEFAULT`,
		`CREATE TABLE later (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)`)
	before := catalog(t, db)
	for want, c := range map[string]capture.Capture{
		`capture nowhere: there is no such table`:               {Table: "nowhere", Key: "id", Columns: []string{"id"}},
		`capture Orders"; DROP TABLE orders; --: `:              {Table: `Orders"; DROP TABLE orders; --`, Key: "id", Columns: []string{"id"}},
		`capture seen: it is not a table`:                       {Table: "seen", Key: "id", Columns: []string{"id"}},
		`capture part: it is a part of parts: capture that one`: {Table: "part", Key: "id", Columns: []string{"id"}},
		`capture outbox_parked: it belongs to the outbox`:       {Table: "outbox_parked", Key: "id", Columns: []string{"id"}},
		`capture outbox_unique: it belongs to the outbox`:       {Table: "outbox_unique", Key: "key", Columns: []string{"key"}},
		`capture outbox_cancelled: it belongs to the outbox`:    {Table: "outbox_cancelled", Key: "id", Columns: []string{"id"}},
		`capture outbox_schedules: it belongs to the outbox`:    {Table: "outbox_schedules", Key: "id", Columns: []string{"id"}},
		`capture outbox_endpoints: it belongs to the outbox`:    {Table: "outbox_endpoints", Key: "id", Columns: []string{"id"}},
		`capture outbox: it belongs to the outbox`:              {Table: "outbox", Key: "id", Columns: []string{"id"}},
		`the key "order_id" is no column of the table`:          {Table: "orders", Key: "order_id", Columns: []string{"id"}},
		`--key; the table has id, product, amount, card`:        {Table: "orders", Columns: []string{"id"}},
		`--columns; the table has id, product, amount, card`:    {Table: "orders", Key: "id"},
		`"colour" is no column of the table`:                    {Table: "orders", Key: "id", Columns: []string{"id", "colour"}},
		`"xmin" is no column of the table`:                      {Table: "orders", Key: "id", Columns: []string{"xmin"}},
		`all columns are never captured`:                        {Table: "orders", Key: "id", Columns: []string{"*"}},
		`"id" is named twice`:                                   {Table: "orders", Key: "id", Columns: []string{"id", "id"}},
		`has "truncate": use insert, update and delete`:         {Table: "orders", Key: "id", Columns: []string{"id"}, On: []capture.Change{"truncate"}},
		`contains ' '`:                                             {Table: "orders", Key: "id", Columns: []string{"id"}, Type: "an order"},
		`no name may contain $waybill$`:                            {Table: "orders", Key: "id", Columns: []string{"id"}, Type: "$waybill$"},
		`capture heap: it has no primary key`:                      {Table: "heap", Key: "id", Columns: []string{"id"}},
		`capture later: it has no primary key that holds within a`: {Table: "later", Key: "id", Columns: []string{"id"}},
	} {
		err := capture.Add(t.Context(), db, postgres.Config{}, c)
		require.ErrorContains(t, err, want)
		_, printErr := capture.SQL(t.Context(), db, postgres.Config{}, c)
		require.EqualError(t, printErr, err.Error())
		require.Equal(t, before, catalog(t, db), want)
	}
	require.ErrorContains(t, capture.Remove(t.Context(), db, postgres.Config{}, "orders"), "capture orders: it is not captured")

	// A failure after the checks leaves nothing behind either.
	exec(t, db, `CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`,
		`CREATE TRIGGER outbox_capture_columns AFTER DELETE ON orders EXECUTE FUNCTION nothing()`)
	before = catalog(t, db)
	require.ErrorContains(t, capture.Add(t.Context(), db, postgres.Config{}, captureOrders), `trigger "outbox_capture_columns" for relation "orders" already exists`)
	require.Equal(t, before, catalog(t, db))
}

func TestACaptureIsReplacedListedPrintedAndRemoved(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	outbox := postgres.Config{Prefix: "billing.outbox"}
	_, err := postgres.Migrate(t.Context(), db, outbox)
	require.NoError(t, err)
	exec(t, db, orders, `CREATE TABLE "`+strings.Repeat("ü", 31)+`" (id int PRIMARY KEY)`)
	before := catalog(t, db)
	captures := func() []capture.Capture {
		t.Helper()
		captures, err := capture.List(t.Context(), db, outbox)
		require.NoError(t, err)
		return captures
	}
	require.Empty(t, captures())
	require.NoError(t, capture.Add(t.Context(), db, outbox, captureOrders))
	first := catalog(t, db)
	want := capture.Capture{Table: "public.orders", Key: "id", Columns: captureOrders.Columns, Type: "orders", On: capture.Changes()}
	require.Equal(t, []capture.Capture{want}, captures())
	require.NoError(t, capture.Add(t.Context(), db, outbox, captureOrders))
	require.Equal(t, first, catalog(t, db), "added twice")

	fewer := capture.Capture{Table: "orders", Key: "product", Columns: []string{"amount", "id"}, Type: "sale", On: []capture.Change{capture.Update}}
	text, err := capture.SQL(t.Context(), db, outbox, fewer)
	require.NoError(t, err)
	require.Equal(t, []capture.Capture{want}, captures(), "printing changes nothing")
	exec(t, db, `SET search_path = nowhere; `+text+`; SET search_path = public`) // the session's search path does not matter
	want = fewer
	want.Table = "public.orders"
	require.Equal(t, []capture.Capture{want}, captures())

	// A renamed table stays captured, and its old name is free.
	exec(t, db, `ALTER TABLE orders RENAME TO old_orders`, orders)
	require.ErrorContains(t, capture.Add(t.Context(), db, outbox, captureOrders), "other objects depend on it")
	require.NoError(t, capture.Add(t.Context(), db, outbox, capture.Capture{Table: "old_orders", Key: "id", Columns: []string{"id"}}))
	require.NoError(t, capture.Add(t.Context(), db, outbox, captureOrders))
	require.Len(t, captures(), 2)
	exec(t, db, `DROP TABLE old_orders, orders`, orders)
	require.Empty(t, captures())
	require.NoError(t, capture.Add(t.Context(), db, outbox, captureOrders), "the table was created again")
	long := capture.Capture{Table: strings.Repeat("ü", 31), Key: "id", Columns: []string{"id"}}
	require.NoError(t, capture.Add(t.Context(), db, outbox, long))
	exec(t, db, `INSERT INTO `+long.Table+` VALUES (1)`)

	require.NoError(t, capture.Remove(t.Context(), db, outbox, "orders"))
	require.NoError(t, capture.Remove(t.Context(), db, outbox, long.Table))
	require.Empty(t, captures())
	exec(t, db, `TRUNCATE orders`)
	require.Equal(t, before+1, catalog(t, db), "the function of old_orders remains after the table was dropped")
}

func TestCapturedColumnsCannotBeDropped(t *testing.T) {
	t.Parallel()
	db := newCapture(t, postgres.Config{}, orders, captureOrders)
	for statement, want := range map[string]string{
		`ALTER TABLE orders DROP COLUMN product`:     "other objects depend on it",
		`ALTER TABLE orders ALTER amount TYPE float`: "cannot alter type of a column used in a trigger definition",
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.ErrorContains(t, err, want, statement)
	}
	exec(t, db, `ALTER TABLE orders DROP COLUMN card`, `ALTER TABLE orders ADD note text`, `INSERT INTO orders VALUES ('o-1', NULL, 1.0)`,
		`BEGIN; DROP TRIGGER outbox_capture_columns ON orders; ALTER TABLE orders ALTER amount TYPE int; COMMIT`, `DELETE FROM orders`)
	require.Equal(t, []string{
		`orders.inserted o-1 {"before" : null, "after" : {"id":"o-1","product":null,"amount":1.0}}`,
		`orders.deleted o-1 {"before" : {"id":"o-1","product":null,"amount":1}, "after" : null}`,
	}, published(t, db))
	require.NoError(t, capture.Add(t.Context(), db, postgres.Config{}, captureOrders))
	_, err := db.ExecContext(t.Context(), `ALTER TABLE orders DROP COLUMN product`)
	require.Error(t, err)

	exec(t, db, `ALTER TABLE orders RENAME product TO article`)
	_, err = db.ExecContext(t.Context(), `INSERT INTO orders VALUES ('o-2')`)
	require.ErrorContains(t, err, "column t.product does not exist", "no column is left out silently")
	require.NoError(t, capture.Add(t.Context(), db, postgres.Config{}, capture.Capture{Table: "orders", Key: "id", Columns: []string{"article"}}))
	exec(t, db, `INSERT INTO orders VALUES ('o-2')`)
	require.Len(t, published(t, db), 1)
}

func TestACaptureCanBeRemovedEvenIfItCouldNotBeCreated(t *testing.T) {
	t.Parallel()
	db := newCapture(t, postgres.Config{}, `CREATE TABLE part (id int PRIMARY KEY)`, capture.Capture{Table: "part", Key: "id", Columns: []string{"id"}})
	exec(t, db, `CREATE TABLE whole (id int PRIMARY KEY) PARTITION BY RANGE (id); ALTER TABLE whole ATTACH PARTITION part DEFAULT`)
	require.NoError(t, capture.Remove(t.Context(), db, postgres.Config{}, "part"))
}

func TestTheOwnerOfATableCapturesItIntoAnothersOutbox(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	db := openDB(t, dsn)
	_, err := postgres.Migrate(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	role, address := newRole(t, db, dsn)
	grants, err := postgres.Grants(postgres.Config{}, role, postgres.Publisher)
	require.NoError(t, err)
	exec(t, db, grants, `GRANT CREATE ON SCHEMA public TO `+role)
	as := openDB(t, address)
	exec(t, as, orders)
	require.NoError(t, capture.Add(t.Context(), as, postgres.Config{}, captureOrders))
	exec(t, as, `INSERT INTO orders VALUES ('o-1')`)
	require.Len(t, published(t, db), 1)
	require.NoError(t, as.Close())
}

func TestRolesThatWriteACapturedTablePublish(t *testing.T) {
	t.Parallel()
	for name, outbox := range map[string]postgres.Config{"one table": {}, "partitioned": {PartitionRows: 10}, "in a schema": {Prefix: "billing.outbox"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := postgrestest.DSN(t)
			db := openDB(t, dsn)
			_, err := postgres.Migrate(t.Context(), db, outbox)
			require.NoError(t, err)
			exec(t, db, orders)
			role, address := newRole(t, db, dsn)
			exec(t, db, `GRANT UPDATE (product) ON orders TO `+role)
			before := catalog(t, db)
			err = capture.Add(t.Context(), db, outbox, captureOrders)
			require.ErrorContains(t, err, "may not publish, and could no longer write to it: "+role)
			require.ErrorContains(t, err, "waybill migrate --print-grants "+role+" --for publisher")
			require.Equal(t, before, catalog(t, db))

			grants, err := postgres.Grants(outbox, role, postgres.Publisher)
			require.NoError(t, err)
			exec(t, db, grants, `GRANT INSERT, SELECT, DELETE ON orders TO `+role)
			require.NoError(t, capture.Add(t.Context(), db, outbox, captureOrders))
			as := openDB(t, address)
			exec(t, as, `INSERT INTO orders VALUES ('o-1')`, `UPDATE orders SET product = 'kite'`, `DELETE FROM orders`)
			err = capture.Add(t.Context(), as, outbox, captureOrders)
			require.ErrorContains(t, err, "run it as the owner of the table")
			require.NoError(t, as.Close())
		})
	}
}

func TestACaptureDoesNotWaitForLongTransactions(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	_, err := postgres.Migrate(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	exec(t, db, orders)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	exec(t, tx, `SELECT FROM orders`)
	before := catalog(t, db)
	require.ErrorContains(t, capture.Add(t.Context(), db, postgres.Config{}, captureOrders), "a transaction on the table took longer than 2s; try again")
	require.Equal(t, before, catalog(t, db))
	require.NoError(t, tx.Rollback())
	require.NoError(t, capture.Add(t.Context(), db, postgres.Config{}, captureOrders))
}

func TestSimultaneousCapturesOfATableSucceed(t *testing.T) {
	t.Parallel()
	dsn := with(t, postgrestest.DSN(t), "default_transaction_isolation", "serializable")
	db := openDB(t, dsn)
	_, err := postgres.Migrate(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	exec(t, db, orders)
	errs := make(chan error)
	for n := range 4 {
		c := captureOrders
		c.Columns = c.Columns[:1+n%3]
		go func() {
			err := capture.Add(t.Context(), db, postgres.Config{}, c)
			for start := time.Now(); pq.As(err, "55P03") != nil && time.Since(start) < patience; { // the others may take long
				err = capture.Add(t.Context(), db, postgres.Config{}, c)
			}
			errs <- err
		}()
	}
	for range 4 {
		require.NoError(t, <-errs)
	}
	captures, err := capture.List(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	require.Len(t, captures, 1)
	exec(t, db, `INSERT INTO orders VALUES ('o-1')`)
	require.Len(t, published(t, db), 1)
	require.NoError(t, capture.Remove(t.Context(), db, postgres.Config{}, "orders"))
}

// Two foreign keys cascade to one row, so a statement writes it twice.
func TestARowThatAStatementWritesTwiceIsPublishedOnceForEachWrite(t *testing.T) {
	t.Parallel()
	db := newCapture(t, postgres.Config{}, `CREATE TABLE people (id int PRIMARY KEY);
		CREATE TABLE gifts (id int PRIMARY KEY, giver int REFERENCES people ON DELETE SET NULL, taker int REFERENCES people ON DELETE SET NULL)`,
		capture.Capture{Table: "gifts", Key: "id", Columns: []string{"giver", "taker"}})
	exec(t, db, `INSERT INTO people VALUES (1), (2)`, `INSERT INTO gifts VALUES (7, 1, 2), (8, 2, 1)`)
	published(t, db)
	exec(t, db, `DELETE FROM people`)
	all := published(t, db)
	require.Len(t, all, 4)
	for key, want := range map[string][]string{
		"7": {`gifts.updated 7 {"before" : {"giver":1,"taker":2}, "after" : {"giver":null,"taker":2}}`, `gifts.updated 7 {"before" : {"giver":null,"taker":2}, "after" : {"giver":null,"taker":null}}`},
		"8": {`gifts.updated 8 {"before" : {"giver":2,"taker":1}, "after" : {"giver":2,"taker":null}}`, `gifts.updated 8 {"before" : {"giver":2,"taker":null}, "after" : {"giver":null,"taker":null}}`},
	} {
		var of []string
		for _, row := range all {
			if strings.HasPrefix(row, "gifts.updated "+key+" ") {
				of = append(of, row)
			}
		}
		require.Equal(t, want, of, "in the order of the writes")
	}
}

// A role that may create functions in a schema of the writer's search path creates some that match calls
// better than PostgreSQL's own functions.
func TestACaptureCallsNothingThatASearchPathLeadsTo(t *testing.T) {
	t.Parallel()
	for _, payload := range []postgres.Payload{postgres.PayloadJSON, postgres.PayloadBytes} {
		t.Run(string(payload), func(t *testing.T) {
			t.Parallel()
			db := newCapture(t, postgres.Config{Payload: payload}, orders, captureOrders)
			exec(t, db, `CREATE SCHEMA shared`)
			for _, f := range []string{
				`json_build_object(text, json, text, json) RETURNS json`, `convert_to(text, text) RETURNS bytea`,
				`same(text[], text[]) RETURNS boolean`, `same(text, text) RETURNS boolean`, `same(bigint, bigint) RETURNS boolean`, `row_number() RETURNS bigint`,
			} {
				exec(t, db, `CREATE FUNCTION shared.`+f+` LANGUAGE plpgsql AS $$ BEGIN RAISE 'a function of another ran'; END $$`)
			}
			exec(t, db, `CREATE OPERATOR shared.= (FUNCTION = shared.same, LEFTARG = text[], RIGHTARG = text[], HASHES, MERGES)`)
			exec(t, db, `SET search_path = public, shared; INSERT INTO orders VALUES ('o-1'), ('o-2'); UPDATE orders SET product = 'kite'; DELETE FROM orders; RESET search_path`)
			var rows int
			require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM outbox`).Scan(&rows))
			require.Equal(t, 6, rows)
		})
	}
}
