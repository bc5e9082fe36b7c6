package logs

import (
	"context"
	"testing"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

// Start tests what has no open outbox to begin with, and what holds for all methods.
func Start(t *testing.T, d kit.Dialect) {
	t.Run("an outbox that is not migrated is refused, with the command that migrates it", func(t *testing.T) {
		t.Parallel()
		_, err := d.Open(t.Context(), d.NewDB(t))
		require.ErrorIs(t, err, store.ErrNotMigrated)
		require.ErrorContains(t, err, "waybill migrate")
	})
	t.Run("an outbox that a newer program migrated is refused", func(t *testing.T) {
		t.Parallel()
		o := kit.Open(t, d)
		o.Exec(t, `INSERT INTO outbox_migrations (version_id, is_applied) VALUES (1000000, true)`)
		_, err := d.Open(t.Context(), o.DB)
		require.ErrorIs(t, err, store.ErrNewerSchema)
		require.ErrorContains(t, err, "1000000")
		_, err = d.Migrate(t.Context(), o.DB)
		require.ErrorIs(t, err, store.ErrNewerSchema)
	})
	t.Run("migrating again changes nothing", func(t *testing.T) {
		t.Parallel()
		o := kit.Open(t, d)
		o.Publish(t, kit.Several(3)...)
		applied, err := d.Migrate(t.Context(), o.DB)
		require.NoError(t, err)
		require.Empty(t, applied)
		envelopes, _ := o.Read(t, nil, kit.All, 10)
		require.Len(t, envelopes, 3)
	})
	t.Run("a position of another dialect is refused", func(t *testing.T) {
		t.Parallel()
		o := kit.Open(t, d)
		for _, raw := range []string{`nonsense`, `{`, `"text"`, `[]`, `17`, `null`, `{}`, `{"unheard":{"of":1}}`} {
			_, err := o.NewReader([]byte(raw), kit.All)
			require.ErrorIs(t, err, store.ErrPosition, raw)
		}
	})
	t.Run("a cancelled context ends every method", func(t *testing.T) {
		t.Parallel()
		o := kit.Open(t, d)
		lease := o.Hold(t, "mail")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		calls := map[string]func() error{
			"Probe":      func() error { _, err := o.Probe(ctx); return err },
			"Acquire":    func() error { _, err := o.Acquire(ctx, kit.Lane("events"), "w1", 1e9); return err },
			"Checkpoint": func() error { return o.Checkpoint(ctx, store.Checkpoint{Lease: lease, TTL: 1e9}) },
			"Release":    func() error { return o.Release(ctx, lease) },
			"Due":        func() error { _, _, err := o.Due(ctx, store.DueQuery{Lane: lease.Lane, Limit: 1}); return err },
			"Followers": func() error {
				_, _, err := o.Followers(ctx, lease.Lane, []string{"k"}, false, 1)
				return err
			},
			"HeldKeys": func() error { _, err := o.HeldKeys(ctx, lease.Lane, false, "", 1); return err },
			"Sample":   func() error { _, err := o.Sample(ctx, store.SampleQuery{}); return err },
		}
		for name, call := range calls {
			require.ErrorIs(t, call(), context.Canceled, name)
		}
	})
}
