package kit

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Use is documented in package storetest.
func Use(t *testing.T, d Dialect) {
	t.Helper()
	o := Open(t, d)
	lease := o.Hold(t, "mail")
	r := o.Reader(t, lease.Position, All)

	// The rows of a transaction that commits late are read afterwards.
	late := o.Tx(t)
	rows := make([]notification.Envelope, 300)
	for i := range rows {
		rows[i] = Envelope("Order.Placed", `käy "'\`+"👍")
		rows[i].Metadata, rows[i].Payload = notification.Metadata{"m": `\'"NULL`}, []byte(`{"text": "\\\"''👍"}`)
	}
	rows[0].Key, rows[0].DeliverAt = "", Later()
	require.NoError(t, o.Append(t.Context(), late, rows...))
	if o.Slots { // otherwise the database allows one writer at a time
		early := Envelope("t", "")
		o.Publish(t, early)
		got, _ := Drain(t, r, o.Target(t), 10)
		require.Equal(t, []string{early.ID}, IDs(got))
	}
	require.NoError(t, late.Commit())
	got, end := Drain(t, r, o.Target(t), 1000)
	require.Equal(t, IDs(rows), IDs(got), "in the order of offsets")
	RequireSame(t, rows[0], got[0])
	RequireSame(t, rows[1], got[1])

	// What is parked is listed, found and settled.
	parked := make([]store.Parked, len(got))
	for i, e := range got {
		parked[i] = store.Parked{Envelope: e, State: store.StateRetrying, Attempt: 1, DueAt: Moment, LastError: `'\"`}
	}
	o.Write(t, lease, func(c *store.Checkpoint) { c.Number, c.Position, c.Park = 1, end, parked })
	due, _ := o.DueAt(t, time.Now())
	require.Len(t, due, len(rows))
	RequireSame(t, rows[1], due[1].Envelope)
	find := func(f store.ParkedFilter) []store.ParkedDelivery {
		found, err := o.FindParked(t.Context(), f, store.ParkedPlace{}, 1000)
		require.NoError(t, err)
		return found
	}
	require.Len(t, find(store.ParkedFilter{Sink: "mail", Key: rows[1].Key}), len(rows)-1)
	o.Write(t, lease, func(c *store.Checkpoint) {
		c.Number, c.Unpark = 2, Refs(parked...)
		c.Receipts = []store.Receipt{{Offset: got[1].Offset, ID: got[1].ID, Receipt: "r", Attempt: 1, DeliveredAt: Moment}}
	})
	require.Empty(t, find(store.ParkedFilter{}))
	require.Zero(t, o.Counted(t, nil).Sinks[0].Pending)

	// What publishers write in their own transactions counts once.
	tx := o.Tx(t)
	cancelled, err := o.Cancel(t.Context(), tx, store.Scheduled{ID: rows[0].ID})
	require.NoError(t, err)
	require.Equal(t, 1, cancelled)
	for _, want := range []bool{true, false} {
		free, err := o.Claim(t.Context(), tx, store.Claim{Type: "t", Key: "k", Period: time.Hour})
		require.NoError(t, err)
		require.Equal(t, want, free)
		first, err := o.First(t.Context(), tx, "c", "1")
		require.NoError(t, err)
		require.Equal(t, want, first)
	}
	require.NoError(t, tx.Commit())

	for _, column := range []string{"type", "id"} {
		values := map[string]string{"type": "t", "id": "i", column: ""}
		_, err := o.DB.ExecContext(t.Context(), fmt.Sprintf(`INSERT INTO outbox (type, id, payload) VALUES ('%s', '%s', '{}')`, values["type"], values["id"]))
		require.Error(t, err, "an empty %s", column)
	}
}
