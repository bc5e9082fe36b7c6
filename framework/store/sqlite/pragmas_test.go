package sqlite_test

import (
	"database/sql"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/framework/store/storetest"
)

// A handle of the application, or its file, may have these.
func TestStatementsDoNotDependOnPragmas(t *testing.T) {
	t.Parallel()
	harmless := []string{"case_sensitive_like(1)", "recursive_triggers(1)", "foreign_keys(1)", "reverse_unordered_selects(1)", "read_uncommitted(1)", "legacy_alter_table(1)",
		"count_changes(1)", "empty_result_callbacks(1)", "full_column_names(1)", "short_column_names(0)", "defer_foreign_keys(1)", "temp_store(2)", "encoding('UTF-16')",
		"cell_size_check(1)", "automatic_index(0)", "trusted_schema(0)", "secure_delete(1)", "auto_vacuum(2)", "journal_mode(DELETE)"}
	for _, pragma := range harmless {
		t.Run(pragma, func(t *testing.T) {
			t.Parallel()
			storetest.Use(t, dialect(func(t *testing.T) *sql.DB {
				path, pragmas := filepath.Join(t.TempDir(), "outbox.db"), url.Values{"_pragma": {"busy_timeout(10000)", pragma}}
				db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&"+pragmas.Encode())
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, db.Close()) })
				return db
			}))
		})
	}
}

func TestAHandleThatIgnoresCheckConstraintsIsRefused(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "outbox.db")+"?_pragma=ignore_check_constraints(1)")
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = sqlite.Migrate(t.Context(), db, sqlite.Config{})
	require.ErrorIs(t, err, store.ErrUnsupported)
	_, err = sqlite.Open(t.Context(), db, sqlite.Config{})
	require.ErrorContains(t, err, "ignore_check_constraints = on")
}
