package mysql_test

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
