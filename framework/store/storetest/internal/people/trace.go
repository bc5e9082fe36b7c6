package people

import (
	"testing"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// traceFacts are about finding one notification.
var traceFacts = []kit.Fact{
	{"a trace shows the state of each sink for a row", traceRow},
	{"a trace finds parked deliveries and receipts, also without the row", traceLeft},
	{"a trace of an unknown id is empty", traceNothing},
	{"a trace looks for the row in one part of the log after another", tracePart},
	{"a cursor of another log leaves open whether a row was settled", traceOtherLog},
	{"receipts are found by their rows", receiptsOfRows},
	{"the oldest row is the first that remains", oldestRow},
}

func traceOf(t *testing.T, o *kit.Outbox, id string) store.Trace {
	t.Helper()
	trace, err := o.Trace(t.Context(), store.TraceQuery{ID: id})
	require.NoError(t, err)
	return trace
}

func tracePart(t *testing.T, o *kit.Outbox) {
	rows := kit.Several(7)
	lease := settled(t, o, rows...)
	search := func(id string) (found []store.TracedRow, looks int) {
		t.Helper()
		for q := (store.TraceQuery{ID: id, Offsets: 3}); ; looks++ {
			trace, err := o.Trace(t.Context(), q)
			require.NoError(t, err)
			if trace.Next == 0 {
				return trace.Rows, looks + 1
			}
			require.Empty(t, trace.Rows)
			q.Before = trace.Next
		}
	}
	for i, looks := range []int{3, 2, 2, 2, 1, 1, 1} {
		found, n := search(rows[i].ID)
		require.Len(t, found, 1)
		require.EqualValues(t, i+1, found[0].Envelope.Offset)
		require.Equal(t, looks, n, rows[i].ID)
	}
	found, looks := search("there is none")
	require.Empty(t, found)
	require.Equal(t, 3, looks)

	parked := kit.Dead(1, "")
	parked.Envelope.ID = rows[0].ID
	o.Write(t, lease, func(c *store.Checkpoint) { c.Park = []store.Parked{parked} })
	found, looks = search(rows[0].ID)
	require.Len(t, found, 1, "a parked delivery has the offset of its row")
	require.Equal(t, 1, looks)
}

func traceRow(t *testing.T, o *kit.Outbox) {
	rows := kit.Several(4)
	rows[2].Key = "k"
	settled(t, o, rows[:3]...)
	o.Publish(t, rows[3])
	web := o.Hold(t, "web")
	page := o.Page(t, 10)
	o.Write(t, web, func(c *store.Checkpoint) { c.Position, c.Settled = page.After(0), store.OffsetRanges(3) })
	require.NoError(t, o.Release(t.Context(), web))
	o.BeginAction(t, "a")
	_, err := o.Pause(t.Context(), "a", "web", true)
	require.NoError(t, err)
	require.NoError(t, o.Cut(t.Context(), "new", 1))

	trace := traceOf(t, o, rows[2].ID)
	require.EqualValues(t, 1, trace.Oldest.Offset)
	require.Len(t, trace.Rows, 1)
	require.EqualValues(t, 3, trace.Rows[0].Envelope.Offset)
	kit.RequireSame(t, rows[2], trace.Rows[0].Envelope)
	require.Equal(t, []store.TracedLane{
		{Lane: kit.Lane("mail"), Owner: "w1", Settled: true},
		{Lane: kit.Lane("new"), Before: 2},
		{Lane: kit.Lane("web"), Paused: true, Settled: true},
	}, trace.Rows[0].Lanes)
	require.Equal(t, []store.TracedLane{
		{Lane: kit.Lane("mail"), Owner: "w1"},
		{Lane: kit.Lane("new"), Before: 3},
		{Lane: kit.Lane("web"), Paused: true, Before: 1},
	}, traceOf(t, o, rows[3].ID).Rows[0].Lanes)
}

func traceLeft(t *testing.T, o *kit.Outbox) {
	p := kit.Dead(7, "k")
	lease := o.Park(t, p)
	o.Write(t, lease, func(c *store.Checkpoint) {
		c.Receipts = []store.Receipt{{Offset: 7, ID: p.Envelope.ID, Receipt: "http 202", Attempt: 2, DeliveredAt: kit.Moment}}
	})
	trace := traceOf(t, o, p.Envelope.ID)
	require.Empty(t, trace.Rows)
	require.Nil(t, trace.Oldest)
	require.Len(t, trace.Parked, 1)
	require.Equal(t, "mail", trace.Parked[0].Sink)
	require.Equal(t, []store.TracedReceipt{{Sink: "mail", Receipt: store.Receipt{
		Offset: 7, ID: p.Envelope.ID, Receipt: "http 202", Attempt: 2, DeliveredAt: kit.Moment}}}, trace.Receipts)
}

func traceNothing(t *testing.T, o *kit.Outbox) {
	o.Publish(t, kit.Several(3)...)
	trace := traceOf(t, o, "none")
	require.NotNil(t, trace.Oldest)
	trace.Oldest = nil
	require.Equal(t, store.Trace{}, trace)
}

func traceOtherLog(t *testing.T, o *kit.Outbox) {
	settled(t, o, kit.Several(3)...)
	o.Exec(t, o.Restart...)
	row := kit.Envelope("t", "")
	o.Publish(t, row)
	require.Equal(t, []store.TracedLane{{Lane: kit.Lane("mail"), Owner: "w1", OtherLog: true}}, traceOf(t, o, row.ID).Rows[0].Lanes)
}

func receiptsOfRows(t *testing.T, o *kit.Outbox) {
	receipt := func(offset int64, id string) store.Receipt {
		return store.Receipt{Offset: offset, ID: id, Receipt: notification.Receipt("of " + id), Attempt: 1, DeliveredAt: kit.Moment}
	}
	o.Write(t, o.Hold(t, "web"), func(c *store.Checkpoint) { c.Receipts = []store.Receipt{receipt(7, "a"), receipt(8, "b")} })
	o.Write(t, o.Hold(t, "mail"), func(c *store.Checkpoint) {
		c.Receipts = []store.Receipt{receipt(7, "a"), receipt(8, "a"), receipt(9, "c")}
	})

	found, err := o.ReceiptsOf(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, found)
	refs := []store.Ref{{Offset: 8, ID: "b"}, {Offset: 7, ID: "a"}, {Offset: 9, ID: "other"}}
	for n := range int64(3000) {
		refs = append(refs, store.Ref{Offset: 100 + n, ID: "none"})
	}
	found, err = o.ReceiptsOf(t.Context(), refs)
	require.NoError(t, err)
	require.Equal(t, []store.TracedReceipt{
		{Sink: "mail", Receipt: receipt(7, "a")}, {Sink: "web", Receipt: receipt(7, "a")}, {Sink: "web", Receipt: receipt(8, "b")},
	}, found)
}

func oldestRow(t *testing.T, o *kit.Outbox) {
	oldest, err := o.Oldest(t.Context())
	require.NoError(t, err)
	require.Nil(t, oldest)
	o.Publish(t, kit.Several(2)...)
	o.Exec(t, `DELETE FROM outbox WHERE {offset} = 1`)
	oldest, err = o.Oldest(t.Context())
	require.NoError(t, err)
	require.Equal(t, &store.Row{Offset: 2, OccurredOn: kit.Moment}, oldest)
}
