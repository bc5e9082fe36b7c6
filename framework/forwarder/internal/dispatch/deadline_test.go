package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDeliveriesThatBeginCloseTogetherShareAContext(t *testing.T) {
	t.Parallel()
	const timeout = 16 * time.Second
	d := deadlines{parent: t.Context()}
	now := time.Now()
	first := d.context(now, timeout)
	require.Same(t, first, d.context(now.Add(time.Second-1), timeout))
	later := d.context(now.Add(time.Second), timeout)
	require.NotSame(t, first, later)
	require.NotSame(t, later, d.context(now.Add(time.Second), 2*timeout))
	until, _ := later.Deadline()
	require.Equal(t, timeout+time.Second, until.Sub(now.Add(time.Second)))
}
