package sqlite_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

func TestStatementsOfTheSameTextAreIndependent(t *testing.T) {
	db, err := sqlite.OpenDB(filepath.Join(t.TempDir(), "app.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	db.SetMaxOpenConns(1)
	run := func(text string, args ...any) {
		t.Helper()
		_, err := db.ExecContext(t.Context(), text, args...)
		require.NoError(t, err)
	}
	run(`CREATE TABLE numbers (n INTEGER PRIMARY KEY)`)
	for n := range 4 {
		run(`INSERT INTO numbers VALUES (?)`, n)
	}
	_, err = db.ExecContext(t.Context(), `INSERT INTO numbers VALUES (?)`, 3)
	require.Error(t, err, "the key is there")
	run(`INSERT INTO numbers VALUES (?)`, 4)

	const greater = `SELECT * FROM numbers WHERE n > ? ORDER BY n`
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	pairs := []string{}
	require.NoError(t, tables.EachRow(t.Context(), tx, func(rows *sql.Rows) error {
		var outer, inner int
		require.NoError(t, rows.Scan(&outer))
		require.NoError(t, tx.QueryRowContext(t.Context(), greater, outer-2).Scan(&inner), "the first of several")
		pairs = append(pairs, fmt.Sprint(outer, inner))
		return nil
	}, greater, 2))
	require.NoError(t, tx.Commit())
	require.Equal(t, []string{"3 2", "4 3"}, pairs)

	run(`ALTER TABLE numbers ADD COLUMN word TEXT DEFAULT 'new'`)
	var n int
	var word string
	require.NoError(t, db.QueryRowContext(t.Context(), greater, 3).Scan(&n, &word), "prepared before the column was added")
	require.Equal(t, "4 new", fmt.Sprint(n, " ", word))

	for i := range 300 { // more than a connection keeps
		require.NoError(t, db.QueryRowContext(t.Context(), fmt.Sprint(`SELECT ? + `, i), 1).Scan(&n))
		require.Equal(t, i+1, n)
	}
	run(`DROP TABLE numbers`)
}
