package bench

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// observer queries the database while the bench waits for deliveries, and counts for each step the open
// transactions that have written to the log.
type observer struct {
	Progress
	look func() int
	step string
	seen map[string]int
}

func (o *observer) Step(what string) {
	o.step = what
	o.Progress.Step(what)
}

func (o *observer) Watch(what func() string) {
	o.Progress.Watch(what)
	o.seen[o.step] += o.look()
}

func TestATransactionIsOpenOnlyDuringItsCase(t *testing.T) {
	t.Parallel()
	c, db := onPostgres(t, tiny("fault"))
	c.Runs = 1
	o := &observer{Progress: quiet(), seen: make(map[string]int), look: func() (open int) {
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(DISTINCT pid) FROM pg_stat_activity
			WHERE datname = current_database() AND state = 'idle in transaction' AND query LIKE 'INSERT INTO waybill_bench%(type, payload)%'`).Scan(&open))
		return open
	}}
	_, err := measure(t.Context(), c, o)
	require.NoError(t, err)
	require.Equal(t, 2, o.seen[openTransaction+": run 1 of 1"], "one open transaction while the bench waits for each of the two sinks")
	require.Zero(t, o.seen[healthy+": run 1 of 1"])
	require.Zero(t, o.seen[oneDead+": run 1 of 1"])
}
