package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

func TestAScheduleIsLateFromItsEarliestDueTick(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		next, requested time.Time
		overdue         time.Duration
		late            bool
	}{
		"none is due":                     {next: now.Add(time.Hour), overdue: -time.Hour},
		"due for a minute":                {next: now.Add(-time.Minute), overdue: time.Minute},
		"due for longer":                  {next: now.Add(-time.Hour), overdue: time.Hour, late: true},
		"a requested tick":                {next: now.Add(time.Hour), requested: now.Add(-time.Hour), overdue: time.Hour, late: true},
		"requested after another was due": {next: now.Add(-time.Hour), requested: now, overdue: time.Hour, late: true},
	} {
		s := store.Schedule{NextTick: c.next, RequestedAt: c.requested, ReadAt: now}
		require.Equal(t, c.overdue, s.Overdue(), name)
		require.Equal(t, c.late, s.Late(), name)
	}
}
