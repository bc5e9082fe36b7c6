package sqlite

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
)

// The log may be long and the parked may be many: no query may sort, or scan a
// table where an index leads to what it wants.
func TestQueriesUseTheirIndexes(t *testing.T) {
	t.Parallel()
	db, err := OpenDB(filepath.Join(t.TempDir(), "outbox.db"))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = Migrate(t.Context(), db, Config{})
	require.NoError(t, err)
	s, err := Open(t.Context(), db, Config{})
	require.NoError(t, err)

	types := notification.TypeFilter{Names: []string{"order.placed"}, Prefixes: []string{"customer."}}
	some, _, err := typeCondition(types)
	require.NoError(t, err)
	types.Except = true
	others, _, err := typeCondition(types)
	require.NoError(t, err)

	const page = "SEARCH outbox USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"
	const due = "SEARCH p USING INDEX outbox_parked_due (sink=? AND due_at<?)"
	const key = "INDEX outbox_parked_key (sink=? AND key=?)"
	for name, c := range map[string]struct {
		query string
		want  []string
	}{
		"page":               {s.pageQuery(""), []string{page}},
		"page of types":      {s.pageQuery(some), []string{page}},
		"page of others":     {s.pageQuery(others), []string{page}},
		"due":                {s.dueQuery(false), []string{due, key}},
		"due with halt":      {s.dueQuery(true), []string{due, key}},
		"next due":           {s.nextDueQuery(), []string{"SEARCH outbox_parked USING INDEX outbox_parked_due (sink=? AND due_at>?)"}},
		"blocked":            {s.blockedQuery(true), []string{"SEARCH p USING " + key}},
		"keys that are held": {s.blockedKeysQuery(true), []string{"SEARCH outbox_parked USING INDEX outbox_parked_key (sink=?)"}},
	} {
		plan := explain(t, db, c.query)
		for _, want := range c.want {
			require.Contains(t, plan, want, name)
		}
		require.NotContains(t, plan, "TEMP B-TREE", name)
		require.NotContains(t, plan, "SCAN p\n", name)
		require.NotContains(t, plan, "SCAN outbox", name)
	}
}

// explain returns SQLite's plan of a query, one step a line.
func explain(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, make([]any, strings.Count(query, "?"))...)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var step string
		require.NoError(t, rows.Scan(&id, &parent, &unused, &step))
		plan.WriteString(step + "\n")
	}
	require.NoError(t, rows.Err())
	return plan.String()
}
