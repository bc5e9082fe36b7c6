package sqlite_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/sqlite"
)

func TestTheTriggerOfTheDocumentationPublishes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/other-languages.md")
	require.NoError(t, err)
	_, trigger, found := strings.Cut(string(page), "CREATE TRIGGER")
	require.True(t, found)
	trigger, _, found = strings.Cut(trigger, "```")
	require.True(t, found)

	db, err := sqlite.OpenDB(filepath.Join(t.TempDir(), "outbox.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = sqlite.Migrate(t.Context(), db, sqlite.Config{})
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), `CREATE TABLE orders (id TEXT PRIMARY KEY, product TEXT); CREATE TRIGGER `+trigger)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), `INSERT INTO orders VALUES ('o-17', 'a "kite"')`)
	require.NoError(t, err)
	var written string
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT type || ' ' || key || ' ' || CAST(payload AS TEXT) FROM outbox`).Scan(&written))
	require.Equal(t, `orders.inserted o-17 {"before":null,"after":{"id":"o-17","product":"a \"kite\""}}`, written)
}
