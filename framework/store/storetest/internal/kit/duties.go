package kit

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
)

// Duties is documented in package storetest.
func Duties(t *testing.T, d Dialect, connect func(t *testing.T, duty string) *sql.DB) {
	t.Helper()
	as := func(duty string) *Outbox {
		db := connect(t, duty)
		s, err := d.Open(t.Context(), db)
		require.NoError(t, err, duty)
		publisher, err := outbox.New(registry.New(), s, outbox.Config{})
		require.NoError(t, err)
		return &Outbox{d, s, db, publisher}
	}
	publisher, forwarder, operator := as("publisher"), as("forwarder"), as("operator")
	now := time.Now()
	query := store.EndpointQuery{Tenants: []string{"a"}}
	managed := func(o *Outbox, id string) {
		tx := o.Tx(t)
		require.NoError(t, o.AddEndpoint(t.Context(), tx, store.Endpoint{ID: id, Tenant: "a", Types: []string{"*"}}, 10))
		found, err := o.Endpoints(t.Context(), tx, store.EndpointQuery{IDs: []string{id}})
		require.NoError(t, err)
		require.Len(t, found, 1)
		changed, err := o.ChangeEndpoint(t.Context(), tx, found[0])
		require.NoError(t, err)
		require.True(t, changed)
		require.NoError(t, tx.Commit())
	}
	managed(publisher, "1")
	managed(operator, "2")

	tx := forwarder.Tx(t)
	found, err := forwarder.Endpoints(t.Context(), tx, query)
	require.NoError(t, err)
	require.Len(t, found, 2)
	disabled, err := forwarder.MarkEndpoints(t.Context(), tx, store.EndpointMarks{
		Failing: []string{"1"}, Trouble: map[string]string{"2": "the condition fails"}, Disable: []store.EndpointDisabling{{ID: "1", Reason: "gone"}},
	})
	require.NoError(t, err)
	require.Equal(t, []string{"1"}, disabled)
	attempt := store.Attempt{ID: "a-1", Endpoint: "1", EndpointCreatedAt: found[0].CreatedAt, Tenant: "a", At: now, Until: now.Add(-time.Hour)}
	for range 2 {
		require.NoError(t, forwarder.AddAttempts(t.Context(), tx, []store.Attempt{attempt}))
	}
	require.NoError(t, forwarder.Append(t.Context(), tx, Envelope("_delivery", "1")))
	require.NoError(t, tx.Commit())

	for _, o := range []*Outbox{publisher, operator} {
		attempts, err := o.Attempts(t.Context(), store.AttemptQuery{Tenant: "a"})
		require.NoError(t, err)
		require.Len(t, attempts, 1)
	}
	counts, err := operator.EndpointCounts(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, []store.EndpointCount{{Tenant: "a", All: 2, Disabled: 1, Failing: 1, Troubled: 1}}, counts)
	operator.BeginAction(t, "rewrite")
	rewritten, err := operator.RewritePayloads(t.Context(), store.RewriteBatch{Action: "rewrite", Types: []string{"_delivery"},
		Change: func(*notification.Envelope) ([]byte, bool) { return []byte(`null`), true }})
	require.NoError(t, err)
	require.Equal(t, 1, rewritten.Changed)
	operator.BeginAction(t, "purge")
	for _, do := range []func(context.Context, store.PersonalBatch) (store.PersonalResult, error){operator.CutPersonal, operator.PurgePersonal} {
		f := store.PersonalFilter{Keys: []string{"1"}, IDs: []string{"n"}, PrivateKeys: []string{"p"}}
		found, err := operator.CountPersonal(t.Context(), f)
		require.NoError(t, err)
		require.Len(t, found, 1, "the log has one")
		for b, done := (store.PersonalBatch{Action: "purge", Filter: f}), false; !done; {
			result, err := do(t.Context(), b)
			require.NoError(t, err)
			b.After, done = result.Next, result.Done
		}
	}
	require.EqualValues(t, 1, operator.ActionOf(t, "purge").Count)
	removed, err := forwarder.PruneLeftovers(t.Context(), store.LeftoverAttempts, 0, 10)
	require.NoError(t, err)
	require.Equal(t, 1, removed)
	for id, o := range map[string]*Outbox{"1": operator, "2": publisher} {
		deleted, err := o.DeleteEndpoint(t.Context(), nil, "a", id)
		require.NoError(t, err)
		require.True(t, deleted)
	}
}
