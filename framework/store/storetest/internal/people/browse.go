package people

import (
	"fmt"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// browseFacts are about browsing the log and parked deliveries.
var browseFacts = []kit.Fact{
	{"the log is listed from its end, without payloads", browseRows},
	{"each filter of the log selects its rows", browseFilter},
	{"the next page of the log begins where the last one ended, and each row comes once", browsePages},
	{"a page of the log reports how far it has looked", browseLooked},
	{"a search by time, or by an id that contains a time, begins where those rows were written", browseTime},
	{"an uncommitted row is not listed", browseUncommitted},
	{"a list of an empty log is empty", browseNothing},
	{"parked deliveries are listed without payloads", browseParked},
	{"the next page of parked deliveries begins where the last one ended, and each one comes once", browseParkedPages},
}

func browse(t *testing.T, o *kit.Outbox, q store.LogQuery) (store.LogPage, []string) {
	t.Helper()
	if q.Offsets == 0 {
		q.Offsets = 100_000
	}
	if q.Limit == 0 {
		q.Limit = 100
	}
	page, err := o.Browse(t.Context(), q)
	require.NoError(t, err)
	return page, kit.IDs(page.Rows)
}

func browseRows(t *testing.T, o *kit.Outbox) {
	rows := kit.Several(3)
	o.Publish(t, rows...)
	page, got := browse(t, o, store.LogQuery{})
	require.Equal(t, []string{rows[2].ID, rows[1].ID, rows[0].ID}, got)
	require.Zero(t, page.Next)
	require.EqualValues(t, 1, page.Last.Offset)
	require.Empty(t, page.Rows[0].Payload)
	want := rows[2]
	want.Payload = page.Rows[0].Payload
	kit.RequireSame(t, want, page.Rows[0])
}

func browseFilter(t *testing.T, o *kit.Outbox) {
	rows := kit.Several(4)
	for i := range rows {
		rows[i].OccurredOn = kit.Moment.Add(time.Duration(i) * time.Hour)
		rows[i].Key = "k"
	}
	rows[1].Key, rows[2].Type = `it's "k"`, "customer.moved"
	o.Publish(t, rows...)
	for name, c := range map[string]struct {
		query store.LogQuery
		want  []int
	}{
		"all":              {store.LogQuery{Types: notification.AllTypes}, []int{3, 2, 1, 0}},
		"id":               {store.LogQuery{ID: rows[1].ID}, []int{1}},
		"key":              {store.LogQuery{Key: "k"}, []int{3, 2, 0}},
		"key with quotes":  {store.LogQuery{Key: `it's "k"`}, []int{1}},
		"type":             {store.LogQuery{Types: notification.TypeFilter{Names: []string{"customer.moved"}}}, []int{2}},
		"beginning":        {store.LogQuery{Types: notification.TypeFilter{Prefixes: []string{"customer."}}}, []int{2}},
		"since":            {store.LogQuery{Since: rows[2].OccurredOn}, []int{3, 2}},
		"until":            {store.LogQuery{Until: rows[2].OccurredOn}, []int{1, 0}},
		"between":          {store.LogQuery{Since: rows[1].OccurredOn, Until: rows[2].OccurredOn}, []int{1}},
		"key since":        {store.LogQuery{Key: "k", Since: rows[3].OccurredOn}, []int{3}},
		"key before":       {store.LogQuery{Key: "k", Before: 4}, []int{2, 0}},
		"another time":     {store.LogQuery{Since: rows[3].OccurredOn.Add(time.Hour)}, nil},
		"unknown key":      {store.LogQuery{Key: "none"}, nil},
		"before the first": {store.LogQuery{Before: 1}, nil},
	} {
		var want []string
		for _, i := range c.want {
			want = append(want, rows[i].ID)
		}
		_, got := browse(t, o, c.query)
		require.ElementsMatch(t, want, got, name)
		if len(want) > 0 {
			require.Equal(t, want, got, name)
		}
	}
}

func browsePages(t *testing.T, o *kit.Outbox) {
	rows := kit.Several(40)
	var all, of []string
	for i := len(rows) - 1; i >= 0; i-- {
		all = append(all, rows[i].ID)
		if i%3 == 0 {
			rows[i].Key = "third"
			of = append(of, rows[i].ID)
		}
	}
	o.Publish(t, rows...)
	for _, q := range []store.LogQuery{{Limit: 1}, {Limit: 7}, {Offsets: 7}, {Offsets: 1}, {Limit: 3, Offsets: 10}, {Limit: 40}, {Limit: 1000}} {
		for key, want := range map[string][]string{"": all, "third": of} {
			q.Key, q.Before = key, 0
			var got []string
			for pages := 0; pages <= len(rows); pages++ {
				page, ids := browse(t, o, q)
				got = append(got, ids...)
				if q.Before = page.Next; q.Before == 0 {
					break
				}
			}
			require.Zero(t, q.Before)
			require.Equal(t, want, got, "%+v", q)
		}
	}
}

func browseLooked(t *testing.T, o *kit.Outbox) {
	rows := kit.Several(10)
	o.Publish(t, rows...)
	page, got := browse(t, o, store.LogQuery{Key: "none", Offsets: 4})
	require.Empty(t, got)
	require.EqualValues(t, 7, page.Next)
	require.EqualValues(t, 7, page.Last.Offset)
	kit.RequireTime(t, rows[6].OccurredOn, page.Last.OccurredOn)
}

func browseTime(t *testing.T, o *kit.Outbox) {
	rows := kit.Several(100)
	for i := range rows {
		at := kit.Moment.Add(time.Duration(i) * time.Hour)
		rows[i].OccurredOn, rows[i].ID = at, idOf(at, i)
	}
	o.Publish(t, rows...)
	page, got := browse(t, o, store.LogQuery{ID: rows[50].ID, Offsets: 60})
	require.Equal(t, []string{rows[50].ID}, got, "though it was not written last")
	require.Zero(t, page.Next, "no other row has the id")
	_, got = browse(t, o, store.LogQuery{Until: rows[50].OccurredOn, Offsets: 10, Limit: 3})
	require.Equal(t, []string{rows[49].ID, rows[48].ID, rows[47].ID}, got)
}

// idOf returns the n-th UUIDv7 of a time.
func idOf(at time.Time, n int) string {
	id := uuid.UUID{6: 0x70, 8: 0x80, 15: byte(n)}
	for i, ms := 5, at.UnixMilli(); i >= 0; i, ms = i-1, ms>>8 {
		id[i] = byte(ms)
	}
	return id.String()
}

func browseUncommitted(t *testing.T, o *kit.Outbox) {
	rows := kit.Several(2)
	o.Publish(t, rows[0])
	tx := o.Tx(t)
	require.NoError(t, o.Append(t.Context(), tx, rows[1]))
	_, got := browse(t, o, store.LogQuery{})
	require.Equal(t, []string{rows[0].ID}, got)
	require.NoError(t, tx.Rollback())
}

func browseNothing(t *testing.T, o *kit.Outbox) {
	page, _ := browse(t, o, store.LogQuery{Key: "k", ID: idOf(kit.Moment, 1), Since: kit.Moment, Until: kit.Moment.Add(time.Hour)})
	require.Equal(t, store.LogPage{}, page)
}

func browseParked(t *testing.T, o *kit.Outbox) {
	want := kit.Dead(2, `it's "k"`)
	want.Attempt, want.LastError, want.Attempts = 3, "boom", kit.Attempts()
	o.Park(t, kit.Dead(1, ""), want)
	page, err := o.BrowseParked(t.Context(), store.ParkedQuery{Look: 10, Limit: 10})
	require.NoError(t, err)
	require.Len(t, page.Deliveries, 2)
	require.Zero(t, page.Next)
	got := page.Deliveries[1]
	require.Equal(t, "mail", got.Sink)
	require.Empty(t, got.Envelope.Payload)
	want.Envelope.Payload = got.Envelope.Payload
	kit.RequireSame(t, want.Envelope, got.Envelope)
	require.Equal(t, 3, got.Attempt)
	require.Equal(t, "boom", got.LastError)
	require.Equal(t, kit.Attempts(), got.Attempts)
	for name, filter := range map[string]store.ParkedFilter{
		"id": {ID: want.Envelope.ID}, "key": {Key: `it's "k"`}, "sink and error": {Sink: "mail", Error: "BOOM"},
	} {
		page, err := o.BrowseParked(t.Context(), store.ParkedQuery{Filter: filter, Look: 10, Limit: 10})
		require.NoError(t, err, name)
		require.Len(t, page.Deliveries, 1, name)
		require.Equal(t, want.Envelope.ID, page.Deliveries[0].Envelope.ID, name)
	}
}

func browseParkedPages(t *testing.T, o *kit.Outbox) {
	const n = 2500 // more than one statement reads
	var mail, web []store.Parked
	for i := int64(1); i <= n; i++ {
		p := kit.Dead(i, "")
		if i%1000 == 0 {
			p.Envelope.Key = "rare"
		}
		mail, web = append(mail, p), append(web, p)
	}
	o.Park(t, mail...)
	o.Write(t, o.Hold(t, "web"), func(c *store.Checkpoint) { c.Park = web })
	for _, c := range []struct {
		query store.ParkedQuery
		want  int
	}{
		{store.ParkedQuery{Look: 10_000, Limit: 700}, 2 * n},
		{store.ParkedQuery{Look: 1, Limit: 2 * n}, 2 * n},
		{store.ParkedQuery{Filter: store.ParkedFilter{Key: "rare"}, Look: 100_000, Limit: 10}, 4},
		{store.ParkedQuery{Filter: store.ParkedFilter{Key: "rare"}, Look: 1, Limit: 10}, 4},
		{store.ParkedQuery{Filter: store.ParkedFilter{Key: "rare", Sink: "web"}, Look: 100_000, Limit: 1}, 2},
		{store.ParkedQuery{Filter: store.ParkedFilter{Key: "none"}, Look: 1, Limit: 1}, 0},
		{store.ParkedQuery{Filter: store.ParkedFilter{ID: mail[7].Envelope.ID}, Look: 1, Limit: 1}, 2},
	} {
		seen := make(map[string]bool)
		for pages := 0; ; pages++ {
			page, err := o.BrowseParked(t.Context(), c.query)
			require.NoError(t, err)
			for _, d := range page.Deliveries {
				at := fmt.Sprint(d.Sink, d.Envelope.Offset)
				require.False(t, seen[at], "%+v has %s twice", c.query, at)
				seen[at] = true
			}
			if page.Next == (store.ParkedPlace{}) {
				break
			}
			require.LessOrEqual(t, len(page.Deliveries), c.query.Limit)
			require.Less(t, pages, 2*n)
			c.query.After = page.Next
		}
		require.Len(t, seen, c.want, "%+v", c.query)
	}
	page, err := o.BrowseParked(t.Context(), store.ParkedQuery{Filter: store.ParkedFilter{Sink: "mail", Key: "none"}, Look: n + 1, Limit: 1})
	require.NoError(t, err)
	require.Zero(t, page.Next, "parked deliveries of other sinks are not looked at")
}
