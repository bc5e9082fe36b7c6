package sqlite

import (
	"database/sql"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/internal/tables/looks"
)

// openMigrated opens a new outbox.
func openMigrated(t *testing.T) (*sql.DB, *Store) {
	t.Helper()
	db, err := OpenDB(filepath.Join(t.TempDir(), "outbox.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = Migrate(t.Context(), db, Config{})
	require.NoError(t, err)
	s, err := Open(t.Context(), db, Config{})
	require.NoError(t, err)
	return db, s
}

// The log may be long, and there may be many parked deliveries: no query may sort, or scan a
// table for which there is an index.
func TestQueriesUseTheirIndexes(t *testing.T) {
	t.Parallel()
	_, s := openMigrated(t)

	types := notification.TypeFilter{Names: []string{"order.placed"}, Prefixes: []string{"customer."}}
	others := types
	others.Except = true
	lane := store.Lanes("s", 1)[0]

	const pages = "SEARCH o USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"
	const cancelled = "SEARCH c USING COVERING INDEX sqlite_autoindex_outbox_cancelled_1 (offset=? AND id=?)"
	const due = "SEARCH p USING INDEX outbox_parked_due (sink=? AND due_at<?)"
	const key = "INDEX outbox_parked_key (sink=? AND key=?)"
	for name, c := range map[string]struct {
		query tables.Expr
		want  []string
	}{
		"page":           {page(s.run, store.Filter{Types: notification.AllTypes}, 1, 2, 3), []string{pages, cancelled}},
		"page of types":  {page(s.run, store.Filter{Types: types}, 1, 2, 3), []string{pages, cancelled}},
		"page of others": {page(s.run, store.Filter{Types: others}, 1, 2, 3), []string{pages, cancelled}},
		"due":            {s.run.DueQuery(store.DueQuery{Lane: lane, Limit: 10}), []string{due, key, cancelled}},
		"due with halt":  {s.run.DueQuery(store.DueQuery{Lane: lane, Limit: 10, Halt: true}), []string{due, key, cancelled}},
		"next due":       {s.run.NextDueQuery("s", time.Now()), []string{"SEARCH outbox_parked USING INDEX outbox_parked_due (sink=? AND due_at>?)"}},
		"followers":      {s.run.FollowersQuery("s", []string{"k"}, true, 10), []string{"SEARCH p USING " + key}},
		"cancel an id": {s.run.CancelQuery(store.Scheduled{ID: "a"}), []string{
			"SEARCH outbox USING INDEX outbox_scheduled_id (id=?)", "SEARCH outbox_parked USING INDEX outbox_parked_id (id=?)"}},
		"cancel a key": {s.run.CancelQuery(store.Scheduled{Key: "k", Types: []string{"a", "b"}}), []string{
			"SEARCH outbox USING INDEX outbox_scheduled_key (key=?)", "SEARCH outbox_parked USING INDEX outbox_parked_scheduled_key (key=?)"}},
		"receipts of rows": {looks.ReceiptsQuery(s.run, []store.Ref{{Offset: 1, ID: "a"}}), []string{"SEARCH outbox_receipts USING INDEX outbox_receipts_id (id=?)"}},
		"due groups":       {s.run.DueGroupsQuery(lane, time.Now(), 10), []string{"SEARCH outbox_collections USING INDEX outbox_collections_due (sink=? AND closed=? AND due_at<?)"}},
		"next group":       {s.run.NextGroupQuery(lane, time.Now()), []string{"SEARCH outbox_collections USING INDEX outbox_collections_due (sink=? AND closed=?)"}},
		"open members":     {s.run.OpenMembersQuery("s", []string{"g"}, 10), []string{"SEARCH outbox_parked USING INDEX outbox_parked_group (sink=? AND collect_group=? AND collection=?)"}},
		"members":          {s.run.MembersQuery("s", "n", []string{"g"}), []string{"SEARCH p USING INDEX outbox_parked_group (sink=? AND collect_group=? AND collection=?)"}},
		"held keys":        {s.run.HeldKeysQuery(lane, false, "k", 10), []string{"SEARCH outbox_parked USING INDEX outbox_parked_key (sink=? AND key>?)"}},
	} {
		plan := explain(t, s, c.query)
		for _, want := range c.want {
			require.Contains(t, plan, want, name)
		}
		if !strings.HasPrefix(name, "cancel ") { // a cancellation touches few rows, each once
			require.NotContains(t, plan, "TEMP B-TREE", name)
		}
		require.NotContains(t, plan, "SCAN p\n", name)
		require.NotContains(t, plan, "SCAN outbox", name)
	}
}

func TestQueriesOfEndpointsUseTheirIndexes(t *testing.T) {
	t.Parallel()
	_, s := openMigrated(t)
	after := store.EndpointPlace{Tenant: "a", ID: "b"}
	for name, c := range map[string]struct {
		query tables.Expr
		want  string
	}{
		"of tenants":              {tables.EndpointsQuery(store.EndpointQuery{Tenants: []string{"a", "b"}, Enabled: true}), "INDEX outbox_endpoints_tenant (tenant=?)\n"},
		"of ids":                  {tables.EndpointsQuery(store.EndpointQuery{IDs: []string{"a", "b"}}), "INDEX sqlite_autoindex_outbox_endpoints_1 (id=?)\nUSE TEMP B-TREE FOR ORDER BY\n"},
		"page":                    {tables.EndpointsQuery(store.EndpointQuery{After: after, Limit: 3}), "INDEX outbox_endpoints_tenant (tenant>?)\n"},
		"in trouble":              {tables.EndpointsQuery(store.EndpointQuery{Troubled: true, Limit: 3}), "INDEX outbox_endpoints_unwell (unwell=?)\n"},
		"in trouble of tenants":   {tables.EndpointsQuery(store.EndpointQuery{Troubled: true, Tenants: []string{"a"}}), "INDEX outbox_endpoints_unwell (unwell=? AND tenant=?)\n"},
		"attempts":                {s.run.AttemptsQuery(store.AttemptQuery{Tenant: "a", After: "x", Limit: 3}), "INDEX outbox_attempts_tenant (tenant=? AND id<?)\n"},
		"attempts at an endpoint": {s.run.AttemptsQuery(store.AttemptQuery{Tenant: "a", Endpoint: "e", Failed: true, Limit: 3}), "INDEX outbox_attempts_endpoint (endpoint=?)\n"},
		"attempts of a delivery":  {s.run.AttemptsQuery(store.AttemptQuery{Tenant: "a", Delivery: "d"}), "INDEX outbox_attempts_delivery (delivery=?)\n"},
		"attempts by hour":        {tables.AttemptHoursQuery("a", "e", time.Now()), "COVERING INDEX outbox_attempts_endpoint (endpoint=?)\nUSE TEMP B-TREE FOR GROUP BY\n"},
	} {
		if strings.HasPrefix(name, "attempts") {
			first, rest, _ := strings.Cut(c.want, "\n")
			c.want = first + "\nSCALAR SUBQUERY 1\nSEARCH e USING INDEX sqlite_autoindex_outbox_endpoints_1 (id=?)\n" + rest
		}
		plan := strings.ReplaceAll(explain(t, s, c.query), "CORRELATED ", "")
		require.Regexp(t, `^SEARCH (a|outbox_\w+) USING `+regexp.QuoteMeta(c.want)+`$`, plan, name)
	}
	counts := explain(t, s, tables.EndpointCountsQuery(3))
	require.Contains(t, counts, "SEARCH outbox_endpoints USING INDEX outbox_endpoints_unwell (unwell=?)")
	require.Contains(t, counts, "SEARCH e USING INDEX outbox_endpoints_tenant (tenant=?)")
}

// explain returns SQLite's plan of a query, one step a line.
func explain(t *testing.T, s *Store, e tables.Expr) string {
	t.Helper()
	query, args := s.run.Render(e)
	rows, err := s.db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, args...)
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

// SQLite makes a table in memory of a list of values after IN, which cost a third of a small transaction.
func TestAnInsertMakesNoTable(t *testing.T) {
	t.Parallel()
	db, s := openMigrated(t)
	rows, err := db.QueryContext(t.Context(), "EXPLAIN "+s.InsertInto()+` (?, ?, ?, ?, ?, ?, ?, ?)`, 1, 2, 3, 4, 5, 6, 7, 8)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	codes := make(map[string]bool)
	for rows.Next() {
		var code string
		var unused any
		require.NoError(t, rows.Scan(&unused, &code, &unused, &unused, &unused, &unused, &unused, &unused))
		codes[code] = true
	}
	require.NoError(t, rows.Err())
	require.True(t, codes["Insert"])
	require.True(t, codes["Param"], "the code of the trigger is shown")
	require.NotContains(t, codes, "OpenEphemeral")
}
