package people

import (
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// relatedFacts are about finding the notifications of a correlation.
var relatedFacts = []kit.Fact{
	{"related notifications are found with the state of each sink", relatedRows},
	{"a parked delivery is found without its row", relatedParked},
	{"a search continues where it ended, and finds each notification once", relatedPages},
	{"a search by time begins before the rows written then", relatedSince},
	{"a search in an empty log finds nothing", relatedNothing},
	{"rows are traced together, each with the state of its own offset", tracedRows},
}

func related(t *testing.T, o *kit.Outbox, q store.RelatedQuery) store.Related {
	t.Helper()
	if q.Offsets == 0 {
		q.Offsets = 1_000_000
	}
	if q.Limit == 0 {
		q.Limit = 100
	}
	related, err := o.Related(t.Context(), q)
	require.NoError(t, err)
	return related
}

func traced(traces []store.Trace) (ids []string) {
	for i := range traces {
		ids = append(ids, traces[i].Envelope().ID)
	}
	return ids
}

func correlated(e notification.Envelope, to string) notification.Envelope {
	e.Metadata = e.Metadata.Clone()
	e.Metadata[notification.MetadataCorrelationID] = to
	return e
}

func relatedRows(t *testing.T, o *kit.Outbox) {
	rows := kit.Several(5)
	const odd = `o'neil "x" ü`
	rows[0].ID = odd
	for _, i := range []int{1, 3} {
		rows[i] = correlated(rows[i], odd)
	}
	settled(t, o, rows[:3]...)
	o.Publish(t, rows[3:]...)
	o.Write(t, o.Hold(t, "web"), func(c *store.Checkpoint) {
		c.Receipts = []store.Receipt{{Offset: 2, ID: rows[1].ID, Receipt: "http 202", Attempt: 1, DeliveredAt: kit.Moment}}
	})

	got := related(t, o, store.RelatedQuery{ID: odd})
	require.Equal(t, []string{odd, rows[1].ID, rows[3].ID}, traced(got.Traces))
	require.EqualValues(t, 1, got.Oldest.Offset)
	require.EqualValues(t, 1, got.First.Offset)
	require.EqualValues(t, 5, got.Last.Offset)
	require.Zero(t, got.Next)
	kit.RequireSame(t, rows[1], got.Traces[1].Rows[0].Envelope)
	require.Equal(t, []store.TracedLane{{Lane: kit.Lane("mail"), Owner: "w1", Settled: true}, {Lane: kit.Lane("web"), Owner: "w1"}}, got.Traces[1].Rows[0].Lanes)
	require.Equal(t, []store.TracedLane{{Lane: kit.Lane("mail"), Owner: "w1"}, {Lane: kit.Lane("web"), Owner: "w1"}}, got.Traces[2].Rows[0].Lanes)
	require.Empty(t, got.Traces[0].Receipts)
	require.Len(t, got.Traces[1].Receipts, 1)
	require.Equal(t, "web", got.Traces[1].Receipts[0].Sink)
	require.Empty(t, related(t, o, store.RelatedQuery{ID: "o"}).Traces)
}

func tracedRows(t *testing.T, o *kit.Outbox) {
	rows := kit.Several(4)
	rows[3].ID = rows[0].ID
	o.Write(t, settled(t, o, rows[:3]...), func(c *store.Checkpoint) {
		c.Park = []store.Parked{kit.Dead(2, "k")}
		c.Park[0].Envelope.ID = rows[1].ID
		c.Receipts = []store.Receipt{{Offset: 1, ID: rows[0].ID, Receipt: "http 202", Attempt: 1, DeliveredAt: kit.Moment}}
	})
	o.Publish(t, rows[3])
	page, err := o.Browse(t.Context(), store.LogQuery{Offsets: 100, Limit: 10})
	require.NoError(t, err)
	traces, err := o.TraceRows(t.Context(), page.Rows)
	require.NoError(t, err)
	require.Equal(t, []string{rows[0].ID, rows[2].ID, rows[1].ID, rows[0].ID}, traced(traces))
	for i, settled := range []bool{false, true, true, true} {
		require.Len(t, traces[i].Rows, 1)
		require.Equal(t, []store.TracedLane{{Lane: kit.Lane("mail"), Owner: "w1", Settled: settled}}, traces[i].Rows[0].Lanes, i)
		require.Empty(t, traces[i].Rows[0].Envelope.Payload)
	}
	require.Len(t, traces[2].Parked, 1)
	require.Empty(t, traces[2].Parked[0].Envelope.Payload)
	require.Len(t, traces[3].Receipts, 1)
	traces, err = o.TraceRows(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, traces)
}

func relatedParked(t *testing.T, o *kit.Outbox) {
	root, other := kit.Dead(7, "k"), kit.Dead(9, "k")
	caused := kit.Dead(8, "k")
	caused.Envelope = correlated(caused.Envelope, root.Envelope.ID)
	o.Park(t, caused, root, other)
	got := related(t, o, store.RelatedQuery{ID: root.Envelope.ID})
	require.Equal(t, []string{root.Envelope.ID, caused.Envelope.ID}, traced(got.Traces))
	require.Nil(t, got.Oldest)
	require.Empty(t, got.Traces[1].Rows)
	require.Equal(t, "mail", got.Traces[1].Parked[0].Sink)
	require.Equal(t, caused.LastError, got.Traces[1].Parked[0].LastError)
	require.Zero(t, got.Omitted)
	got = related(t, o, store.RelatedQuery{ID: root.Envelope.ID, Limit: 1})
	require.Equal(t, []string{root.Envelope.ID}, traced(got.Traces))
	require.Equal(t, 1, got.Omitted)
}

func relatedPages(t *testing.T, o *kit.Outbox) {
	rows := kit.Several(40)
	var want []string
	for i := range rows {
		if i%3 == 0 {
			rows[i] = correlated(rows[i], "c")
			want = append(want, rows[i].ID)
		}
	}
	o.Publish(t, rows...)
	for _, q := range []store.RelatedQuery{{Offsets: 7}, {Limit: 1}, {Offsets: 5, Limit: 2}, {Offsets: 1}} {
		var got []string
		q.ID, q.From = "c", 1
		for pages := 1; ; pages++ {
			related := related(t, o, q)
			got = append(got, traced(related.Traces)...)
			if related.Next == 0 {
				break
			}
			require.Greater(t, related.Next, q.From)
			q.From = related.Next
			require.LessOrEqual(t, pages, len(rows))
		}
		require.Equal(t, want, got, "%+v", q)
	}
	end := related(t, o, store.RelatedQuery{ID: "c", Offsets: 10})
	require.EqualValues(t, 31, end.First.Offset, "without a position a search begins at the end of the log")
	require.Zero(t, end.Next)
	behind := related(t, o, store.RelatedQuery{ID: "c", From: 1000})
	require.Empty(t, behind.Traces)
	require.Nil(t, behind.First)
	require.Nil(t, behind.Last)
}

// relatedSince is about a log with one row a minute, and imported rows that occurred long ago.
func relatedSince(t *testing.T, o *kit.Outbox) {
	rows := kit.Several(300)
	for i := range rows {
		at := kit.Moment.Add(time.Duration(i) * time.Minute)
		rows[i].ID, rows[i].OccurredOn = uuid.NewString(), at
		if i%4 == 1 {
			rows[i].OccurredOn = at.AddDate(-1, 0, 0)
			id, err := uuid.NewV7()
			require.NoError(t, err)
			milliseconds := at.UnixMilli()
			for b := range 6 {
				id[b] = byte(milliseconds >> (40 - 8*b))
			}
			rows[i].ID = id.String()
		}
	}
	o.Publish(t, rows...)
	for _, i := range []int{0, 1, 2, 100, 101, 150, 298, 299} {
		got := related(t, o, store.RelatedQuery{ID: rows[i].ID, Since: kit.Moment.Add(time.Duration(i) * time.Minute)})
		require.Equal(t, []string{rows[i].ID}, traced(got.Traces), i)
		require.LessOrEqual(t, got.First.Offset, int64(i+1))
		require.GreaterOrEqual(t, got.First.Offset, int64(i+1-25), "not the whole log")
	}
	burst := kit.Several(100)
	for i := range burst {
		burst[i].ID, burst[i].OccurredOn = uuid.NewString(), kit.Moment.AddDate(0, 0, 1)
	}
	burst[99].OccurredOn = burst[99].OccurredOn.Add(30 * time.Second)
	o.Publish(t, burst...)
	got := related(t, o, store.RelatedQuery{ID: burst[99].ID, Since: burst[99].OccurredOn, Offsets: 50})
	require.Len(t, got.Traces, 1, "half of a search looks at later rows, however many are earlier")
	got = related(t, o, store.RelatedQuery{ID: "future", Since: kit.Moment.AddDate(1, 0, 0)})
	require.Empty(t, got.Traces)
	require.Zero(t, got.Next)
}

func relatedNothing(t *testing.T, o *kit.Outbox) {
	require.Equal(t, store.Related{Traces: []store.Trace{}}, related(t, o, store.RelatedQuery{ID: "c", Since: kit.Moment}))
}
