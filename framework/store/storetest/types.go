package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

// typesFacts are about counting the log by type.
var typesFacts = []fact{
	{"types are counted among the last rows", countTypes},
	{"an empty log has no types", countNoTypes},
}

func countTypes(t *testing.T, o *outbox) {
	rows := several(4)
	rows[0].Type, rows[1].Type, rows[2].Type, rows[3].Type = "b", "a", "b", "b"
	rows[2].Version = 3
	rows[3].OccurredOn = time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	o.publish(t, rows...)
	counts, err := o.Types(t.Context(), 100)
	require.NoError(t, err)
	require.Equal(t, []store.TypeCount{
		{Type: "a", Version: 1, Count: 1, OccurredOn: rows[1].OccurredOn},
		{Type: "b", Version: 3, Count: 3, OccurredOn: rows[3].OccurredOn},
	}, counts)
	counts, err = o.Types(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, []store.TypeCount{{Type: "b", Version: 1, Count: 1, OccurredOn: rows[3].OccurredOn}}, counts)
}

func countNoTypes(t *testing.T, o *outbox) {
	counts, err := o.Types(t.Context(), 100)
	require.NoError(t, err)
	require.Empty(t, counts)
}
