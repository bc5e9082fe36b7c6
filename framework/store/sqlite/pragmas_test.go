package sqlite_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
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
			usePragmas(t, pragma)
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

// usePragmas does with an outbox what publishers and forwarders do.
func usePragmas(t *testing.T, pragmas ...string) {
	t.Helper()
	ctx := t.Context()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "outbox.db")+"?_txlock=immediate&"+url.Values{"_pragma": append([]string{"busy_timeout(10000)"}, pragmas...)}.Encode())
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	c := sqlite.Config{Receipts: true}
	_, err = sqlite.Migrate(ctx, db, c)
	require.NoError(t, err)
	s, err := sqlite.Open(ctx, db, c)
	require.NoError(t, err)
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	envelopes := make([]notification.Envelope, 20)
	for i := range envelopes {
		envelopes[i] = notification.Envelope{ID: fmt.Sprint(i), Type: "Order.Placed", Version: 1, Key: `käy "'\` + "👍", OccurredOn: time.Now(), Payload: []byte(`{"a":"👍"}`)}
	}
	require.NoError(t, appendTo(ctx, s, tx, envelopes...))
	require.NoError(t, tx.Commit())
	rows := readAll(t, s)
	require.Len(t, rows, len(envelopes))
	for i, e := range rows {
		require.Equal(t, envelopes[i].ID, e.ID, "in the order of offsets")
		require.Equal(t, envelopes[i].Key, e.Key)
		require.Equal(t, string(envelopes[i].Payload), string(e.Payload))
	}
	_, err = s.Cut(ctx, "mail", 1, store.StartOldest)
	require.NoError(t, err)
	lease, err := s.Acquire(ctx, store.NewLane("mail", 0, 1), "w", time.Hour)
	require.NoError(t, err)
	parked, refs := make([]store.Parked, len(rows)), make([]store.Ref, len(rows))
	for i, e := range rows {
		parked[i] = store.Parked{Envelope: e, State: store.StateRetrying, Attempt: 1, DueAt: time.Now().Add(-time.Minute)}
		refs[i] = store.RefOf(&e)
	}
	require.NoError(t, s.Checkpoint(ctx, store.Checkpoint{Lease: lease, TTL: time.Hour, Number: 1, Park: parked}))
	due, _, err := s.Due(ctx, store.DueQuery{Lane: lease.Lane, Now: time.Now(), Limit: 100})
	require.NoError(t, err)
	require.Len(t, due, len(rows))
	require.Equal(t, envelopes[0].Key, due[0].Envelope.Key)
	found, err := s.FindParked(ctx, store.ParkedFilter{Sink: "mail", Key: envelopes[0].Key}, store.ParkedPlace{}, 100)
	require.NoError(t, err)
	require.Len(t, found, len(rows))
	require.NoError(t, s.Checkpoint(ctx, store.Checkpoint{Lease: lease, TTL: time.Hour, Number: 2, Unpark: refs}))
	for _, wrong := range []string{`('', '{}', 'a')`, `('a', '{}', '')`} {
		_, err = db.ExecContext(ctx, `INSERT INTO outbox (type, payload, id) VALUES `+wrong)
		require.Error(t, err)
	}
}
