package deliveries

import (
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

// typesFacts are about counting by type and version.
var typesFacts = []kit.Fact{
	{"types are counted by version among the last rows, or all", countTypes},
	{"parked deliveries are counted by type and version", countParkedTypes},
	{"an empty outbox has no types", countNoTypes},
}

func countTypes(t *testing.T, o *kit.Outbox) {
	rows := kit.Several(4)
	rows[0].Type, rows[1].Type, rows[2].Type, rows[3].Type = "b", "a", "b", "b"
	rows[2].Version = 3
	rows[3].OccurredOn = time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	o.Publish(t, rows...)
	for _, limit := range []int{0, 4, 100} {
		counts, err := o.Types(t.Context(), limit)
		require.NoError(t, err)
		require.Equal(t, []store.TypeCount{
			{Type: "a", Version: 1, Rows: 1, OccurredOn: rows[1].OccurredOn},
			{Type: "b", Version: 1, Rows: 2, OccurredOn: rows[3].OccurredOn},
			{Type: "b", Version: 3, Rows: 1, OccurredOn: rows[2].OccurredOn},
		}, counts, limit)
	}
	counts, err := o.Types(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, []store.TypeCount{{Type: "b", Version: 1, Rows: 1, OccurredOn: rows[3].OccurredOn}}, counts)
}

func countParkedTypes(t *testing.T, o *kit.Outbox) {
	first, second, third := kit.Dead(7, "k"), kit.Dead(8, "k"), kit.Dead(9, "k")
	first.Envelope.Type, second.Envelope.Type, third.Envelope.Type = "a", "a", "a"
	third.Envelope.Version = 2
	o.Park(t, first, second, third)
	row := kit.Several(1)[0]
	row.Type = "a"
	o.Publish(t, row)
	counts, err := o.Types(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, []store.TypeCount{
		{Type: "a", Version: 1, Rows: 1, Parked: 2, OccurredOn: row.OccurredOn},
		{Type: "a", Version: 2, Parked: 1},
	}, counts)
	counts, err = o.Types(t.Context(), 2)
	require.NoError(t, err)
	parked := int64(0)
	for _, c := range counts {
		parked += c.Parked
	}
	require.EqualValues(t, 2, parked, "and no more")
}

func countNoTypes(t *testing.T, o *kit.Outbox) {
	for _, limit := range []int{0, 100} {
		counts, err := o.Types(t.Context(), limit)
		require.NoError(t, err)
		require.Empty(t, counts)
	}
}
