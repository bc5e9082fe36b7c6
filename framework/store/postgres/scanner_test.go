package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

func TestTimesAreReadAsLibPQDoes(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	var want []time.Time
	for _, text := range []string{
		"2026-11-21 19:45:18.123456+00", "2000-01-01 00:00:00+00", "1999-12-31 23:59:59.999999+00", "1890-01-01 12:00:00+01:12:12",
		"0001-03-15 12:00:00+00", "9999-11-21 19:45:18+05:30",
	} {
		var at time.Time
		require.NoError(t, db.QueryRowContext(t.Context(),
			`INSERT INTO outbox (type, occurred_on, deliver_at, payload) VALUES ('t', $1, $1, '1') RETURNING occurred_on`, text).Scan(&at))
		want = append(want, at.UTC())
	}
	target := probeOf(t, s)
	reader, err := s.NewReader(nil, store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: notification.AllTypes})
	require.NoError(t, err)
	page := nextPage(t, reader, target, 100)
	require.Len(t, page.Envelopes, len(want))
	for i, e := range page.Envelopes {
		require.Equal(t, want[i], e.OccurredOn)
		require.Equal(t, want[i], e.DeliverAt)
	}
}
