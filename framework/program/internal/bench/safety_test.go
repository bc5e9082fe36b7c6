package bench

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNamesInUseAreRefused(t *testing.T) {
	t.Parallel()
	_, db := onPostgres(t, Config{})
	require.NoError(t, refuseTaken(t.Context(), db, "waybill_bench_0123abcd", false))
	_, err := db.ExecContext(t.Context(), `CREATE TABLE waybill_bench_0123abcd_cursors (id text)`)
	require.NoError(t, err)
	require.ErrorContains(t, refuseTaken(t.Context(), db, "waybill_bench_0123abcd", false), "already")
}

// canceller cancels a bench during its first run.
type canceller struct {
	Progress
	cancel context.CancelFunc
}

func (c canceller) Watch(what func() string) {
	c.Progress.Watch(what)
	c.cancel()
}

func TestACancelledBenchRemovesItsTables(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, scenario := range []string{"publish", "drain", "sustain"} {
		t.Run(scenario, func(t *testing.T) {
			c, db := onPostgres(t, tiny(scenario))
			c.Duration, c.Rows, c.Delay = time.Hour, 5000, maxDelay
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, err := measure(ctx, c, canceller{quiet(), cancel})
			require.ErrorIs(t, err, context.Canceled)
			require.Nil(t, r)
			require.Empty(t, tables(t, db))
			left, err := os.ReadDir(os.TempDir())
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

func TestThePlanAsksForConsentBeforeRisks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config  Config
		consent bool
		says    string
	}{
		"by default":               {Config{}, false, ""},
		"real sinks":               {Config{Configured: shop, Sinks: []string{"partner"}}, true, "the real sink partner"},
		"receivers in the process": {Config{Sinks: []string{"http"}}, false, ""},
		"many rows":                {Config{Rows: 5_000_000}, true, "about 2.2 GB"},
	} {
		lines, consent := c.config.Plan()
		require.Equal(t, c.consent, consent, name)
		require.Contains(t, strings.Join(lines, "\n"), c.says, name)
	}
}
