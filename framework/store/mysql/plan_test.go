package mysql_test

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
)

// The test takes the statements from the server's log.
func TestReadingUsesThePrimaryKeyWithAnyNumberOfHoles(t *testing.T) {
	t.Parallel()
	mysqltest.Shared(t) // skips the test if no server is available
	server, err := mysqltest.Start(t.Context(), mysqltest.Options{Private: true, Settings: map[string]string{"log_output": "TABLE"}})
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Stop()) }()
	name, _, err := server.CreateDatabase(t.Context())
	require.NoError(t, err)
	db, err := mysql.OpenDB(server.DSN(name))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	s := openStore(t, db, mysql.Config{})

	const holes = 1000 // more than a statement names
	const insertTen = insertOne + `, ('t', '{}'), ('t', '{}'), ('t', '{}'), ('t', '{}'), ('t', '{}'), ('t', '{}'), ('t', '{}'), ('t', '{}'), ('t', '{}')`
	open := begin(t, db)
	for range holes {
		exec(t, open, insertOne)
		exec(t, db, insertTen)
	}
	require.NoError(t, server.Execute(t.Context(), `SET GLOBAL general_log = ON`))
	r, err := s.NewReader(nil, allRows)
	require.NoError(t, err)
	require.Len(t, read(t, s, r), 10*holes)
	require.NoError(t, open.Commit())
	require.Len(t, read(t, s, r), holes)
	require.NoError(t, server.Execute(t.Context(), `SET GLOBAL general_log = OFF`))

	statements := written(t, db)
	require.Greater(t, len(statements), 5)
	require.True(t, slices.ContainsFunc(statements, func(s string) bool { return strings.Count(s, ",") >= 390 }), "no statement names many holes")
	for _, statement := range statements {
		require.False(t, scans(t, db, statement), statement)
	}
	require.True(t, scans(t, db, "SELECT `offset` FROM outbox IGNORE INDEX (PRIMARY) WHERE `offset` > 5"), "the check finds scans")
}

// written returns the queries of the outbox that the server has logged.
func written(t *testing.T, db *sql.DB) (statements []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT DISTINCT CONVERT(argument USING utf8mb4) FROM mysql.general_log WHERE command_type = 'Query' AND argument LIKE 'SELECT%outbox%'
		AND argument LIKE '%offset%' AND argument NOT LIKE '%general_log%' AND argument NOT LIKE '%outbox\_%'`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var statement string
		require.NoError(t, rows.Scan(&statement))
		statements = append(statements, statement)
	}
	require.NoError(t, rows.Err())
	return statements
}

// scans reports whether the server reads a whole table, or a whole index, for a query.
func scans(t *testing.T, db *sql.DB, query string) bool {
	t.Helper()
	rows, err := db.QueryContext(context.Background(), `EXPLAIN `+query)
	require.NoError(t, err, query)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
	whole := false
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		places := make([]any, len(columns))
		for i := range values {
			places[i] = &values[i]
		}
		require.NoError(t, rows.Scan(places...))
		for i, column := range columns {
			whole = whole || column == "type" && (values[i].String == "ALL" || values[i].String == "index")
		}
	}
	require.NoError(t, rows.Err())
	return whole
}

// A sink may collect for a day: what is due and what holds back keys does not cost more by that.
func TestCollectedDeliveriesCostLittle(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, mysql.Config{})
	const digits = `(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)`
	const numbers = `(SELECT 1 + a.d + 10 * b.d + 100 * c.d + 1000 * e.d AS i FROM ` + digits + ` a, ` + digits + ` b, ` + digits + ` c, ` + digits + ` e) n`
	exec(t, db, `INSERT INTO outbox_parked (sink, `+"`offset`"+`, slot, id, type, version, `+"`key`"+`, occurred_on, metadata, payload, state, attempt, due_at, collect_group, collection)
		SELECT 's', i, i % 1024, i, 't', 1, CONCAT('k', i % 1000), UTC_TIMESTAMP(), '{}', '{}', 'collecting', 0, IF(i <= 100, UTC_TIMESTAMP(), NULL), CONCAT('k', i % 1000), IF(i <= 1000, 'n', '') FROM `+numbers)
	exec(t, db, `INSERT INTO outbox_collections (sink, collect_group, slot, members, due_at, due_by, closed)
		SELECT 's', CONCAT('k', i), i % 1024, 10, UTC_TIMESTAMP() + INTERVAL i SECOND, UTC_TIMESTAMP() + INTERVAL 1 DAY, IF(i <= 100, 'n', '') FROM `+numbers)
	lane, now, run := store.Lanes("s", 1)[0], time.Now().Add(time.Second), s.Runner()
	exec(t, db, `ANALYZE TABLE outbox_parked, outbox_collections`) // servers do that after a while
	for name, c := range map[string]struct {
		query tables.Expr
		rows  int
	}{
		"due":          {run.DueQuery(store.DueQuery{Lane: lane, Now: now, Limit: 100}), 300},
		"next due":     {run.NextDueQuery("s", now), 10},
		"held keys":    {run.HeldKeysQuery(lane, true, "", 100), 10},
		"followers":    {run.FollowersQuery("s", []string{"k1"}, true, 5), 50},
		"due groups":   {run.DueGroupsQuery(lane, now.Add(5*time.Minute), 100), 250},
		"next group":   {run.NextGroupQuery(lane, now.Add(5*time.Minute)), 10},
		"open members": {run.OpenMembersQuery("s", []string{"k1"}, 101), 30},
		"members":      {run.MembersQuery("s", "n", []string{"k1"}), 50},
	} {
		read := rowsRead(t, db, run, c.query)
		t.Logf("%s: %d rows", name, read)
		require.LessOrEqual(t, read, c.rows, name)
	}
}

// rowsRead runs a query and returns how many rows the server has read for it.
func rowsRead(t *testing.T, db *sql.DB, run *tables.Runner, query tables.Expr) (read int) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	status := func() (sum int) {
		rows, err := conn.QueryContext(t.Context(), `SHOW SESSION STATUS LIKE 'Handler\_read%'`)
		require.NoError(t, err)
		defer rows.Close()
		for rows.Next() {
			var name string
			var n int
			require.NoError(t, rows.Scan(&name, &n))
			sum += n
		}
		require.NoError(t, rows.Err())
		return sum
	}
	status()
	none := status()
	none = status() - none // what a look at the status itself reads
	before := status()
	text, args := run.Render(query)
	require.NoError(t, tables.EachRow(t.Context(), conn, func(*sql.Rows) error { return nil }, text, args...)) // to the end
	return status() - before - none
}
