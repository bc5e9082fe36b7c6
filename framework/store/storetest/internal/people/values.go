package people

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// What the log accepts, everything can hold.
var valuesFacts = []kit.Fact{
	{"a time of the years 1 to 9999 comes back unchanged, from the log, parked and as JSON", acceptedTimes},
	{"the log refuses other times from any producer", refusedTimes},
	{"a publisher refuses what the database would refuse, and its transaction goes on", refusedValues},
	{"rows from before times were refused stop no reader, and can be parked", olderTimes},
	{"a far time of a sink or a hook can be written", farTimes},
}

// edges are the first and last times that are accepted, as people in several zones write them.
func edges() (times []time.Time) {
	for _, at := range []time.Time{notification.MinTime, notification.MaxTime, notification.MaxTime.Add(999)} {
		for _, hours := range []int{0, 14, -12} {
			times = append(times, at.In(time.FixedZone("", hours*3600)))
		}
	}
	return times
}

func acceptedTimes(t *testing.T, o *kit.Outbox) {
	times := edges()
	rapid.Check(t, func(t *rapid.T) {
		second := rapid.Int64Range(notification.MinTime.Unix()+1, notification.MaxTime.Unix()).Draw(t, "second")
		at := time.Unix(second, rapid.Int64Range(0, 999_999_999).Draw(t, "nanosecond"))
		times = append(times, at.In(time.FixedZone("", 60*rapid.IntRange(-12*60, 14*60).Draw(t, "zone"))))
	})
	envelopes := kit.Several(len(times))
	for i, at := range times {
		envelopes[i].OccurredOn, envelopes[i].DeliverAt = at, at
	}
	o.Publish(t, envelopes...)
	sameTimes(t, o, envelopes)
}

// sameTimes requires that everything holds the envelopes' times: a reader, and each parked one.
func sameTimes(t *testing.T, o *kit.Outbox, want []notification.Envelope) {
	t.Helper()
	read, _ := o.Read(t, nil, kit.All, 1000)
	require.Len(t, read, len(want))
	parked := make([]store.Parked, len(read))
	for i := range read {
		require.Equal(t, notification.ClampTime(want[i].OccurredOn), read[i].OccurredOn)
		require.Equal(t, notification.ClampTime(want[i].DeliverAt), read[i].DeliverAt)
		_, err := json.Marshal(read[i])
		require.NoError(t, err)
		parked[i] = store.Parked{Envelope: read[i], State: store.StateScheduled, DueAt: read[i].DeliverAt, FirstParkedAt: kit.Moment}
	}
	o.Park(t, parked...)
	due, next := o.DueAt(t, notification.MaxTime)
	require.True(t, next.IsZero())
	require.Len(t, due, len(read))
	byOffset := make(map[int64]store.Parked)
	for _, p := range due {
		byOffset[p.Envelope.Offset] = p
	}
	for i := range read {
		p := byOffset[read[i].Offset]
		kit.RequireSame(t, read[i], p.Envelope)
		require.Equal(t, read[i].DeliverAt, p.DueAt)
	}
	page, _ := browse(t, o, store.LogQuery{Limit: 1000})
	require.Len(t, page.Rows, len(want))
	_, err := json.Marshal(page)
	require.NoError(t, err)
}

func refusedTimes(t *testing.T, o *kit.Outbox) {
	times := []string{"0001-01-01 00:00:00", "0000-12-31 23:59:59", "0000-01-01 00:00:00", "10000-01-01 00:00:00", "2016-12-31 23:59:99", ""}
	if !o.NoZones {
		times = append(times, "0001-01-01 13:00:00+14:00", "9999-12-31 12:00:00-12:00", "0000-01-01 00:00:00+14:00", "infinity", "-infinity", "0044-03-15 12:00:00 BC")
	}
	for _, at := range append(times, o.OldTimes...) {
		for _, column := range []string{"occurred_on", "deliver_at"} {
			_, err := o.DB.ExecContext(t.Context(), fmt.Sprintf(`INSERT INTO outbox (type, payload, %s) VALUES ('a', '{}', '%s')`, column, at))
			require.Error(t, err, "%s %s", column, at)
		}
	}
	require.Empty(t, o.Dump(t, `SELECT * FROM outbox`))
}

func refusedValues(t *testing.T, o *kit.Outbox) {
	change := func(set func(e *notification.Envelope)) notification.Envelope {
		e := kit.Envelope("order.placed", "")
		set(&e)
		return e
	}
	payload := func(text string) notification.Envelope {
		return change(func(e *notification.Envelope) { e.Payload = []byte(text) })
	}
	bad := map[string]notification.Envelope{
		"year 0":     change(func(e *notification.Envelope) { e.OccurredOn = notification.MinTime.Add(-time.Millisecond - 1) }),
		"year 10000": change(func(e *notification.Envelope) { e.DeliverAt = notification.MaxTime.Add(time.Microsecond) }),
		"no year":    change(func(e *notification.Envelope) { e.DeliverAt = time.Unix(1<<62, 0) }),
		"its zone": change(func(e *notification.Envelope) {
			e.OccurredOn = time.Date(1, 1, 1, 13, 0, 0, 0, time.FixedZone("", 14*3600))
		}),
		"version":     change(func(e *notification.Envelope) { e.Version = 1 << 20 }),
		"NUL":         change(func(e *notification.Envelope) { e.Metadata = notification.Metadata{"a": "\x00"} }),
		"not UTF-8":   change(func(e *notification.Envelope) { e.Key = "\xff" }),
		"long id":     change(func(e *notification.Envelope) { e.ID = strings.Repeat("i", 256) }),
		"long key":    change(func(e *notification.Envelope) { e.Key = strings.Repeat("k", 1025) }),
		"spaces":      change(func(e *notification.Envelope) { e.Type = "a b" }),
		"before year": change(func(e *notification.Envelope) { e.OccurredOn = time.Unix(-1<<55, 0) }),
	}
	if !o.BinaryPayload() {
		bad["text"] = payload("hello")
		bad["said to be JSON"] = payload("hello")
		bad["said to be JSON"].Metadata[notification.MetadataContentType] = "application/json"
		bad["JSON that is not UTF-8"] = payload("\"\xff\"")
		bad["deep JSON"] = payload(strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000))
	}
	tx := o.Tx(t)
	for name, e := range bad {
		err := o.Append(t.Context(), tx, kit.Envelope("order.placed", ""), e, kit.Envelope("order.placed", ""))
		require.ErrorContains(t, err, "notification 2 of 3: "+strings.TrimPrefix(e.Type, "a b"), name)
	}
	good := kit.Several(2)
	for _, text := range []string{`"\u0000"`, `"\ud800"`, `"\udc00x"`, `"\ud83d\ude00\\"`, `1e400`, `-1e-400`, strings.Repeat("1", 400), strings.Repeat(`{"a":[`, 20) + strings.Repeat(`]}`, 20)} {
		if o.Append(t.Context(), tx, payload(text)) != nil { // not of the database: the transaction goes on
			continue
		}
		good = append(good, payload(text))
	}
	require.NoError(t, o.Append(t.Context(), tx, good[:2]...))
	require.NoError(t, tx.Commit())
	got, _ := o.Read(t, nil, kit.All, 100)
	require.Len(t, got, len(good), "only the good ones")
}

func olderTimes(t *testing.T, o *kit.Outbox) {
	if o.OldChecks == nil {
		t.Skip("the store's own suite has the checks of earlier versions")
	}
	o.Exec(t, o.OldChecks...)
	odd := append([]string{"0001-01-01 00:00:00"}, o.OldTimes...)
	for _, at := range odd {
		o.Exec(t, fmt.Sprintf(`INSERT INTO outbox (type, payload, occurred_on, deliver_at) VALUES ('a', '{}', '%s', '%s')`, at, at))
	}
	_, err := o.Migrate(t.Context(), o.DB)
	require.NoError(t, err)

	read, _ := o.Read(t, nil, kit.All, 1000)
	require.Len(t, read, len(odd))
	for i, e := range read {
		require.NoError(t, e.Validate(), odd[i])
		require.False(t, e.OccurredOn.IsZero() || e.DeliverAt.IsZero(), odd[i])
	}
	sameTimes(t, o, read)
	_, err = o.DB.ExecContext(t.Context(), `INSERT INTO outbox (type, payload, occurred_on) VALUES ('a', '{}', '0001-01-01 00:00:00')`)
	require.Error(t, err, "new rows are checked")
}

// farTimes is about times that programs compute, which no check of the log has seen.
func farTimes(t *testing.T, o *kit.Outbox) {
	far := kit.Parked(1, "", store.StateRetrying, time.Unix(1<<40, 0))
	far.Envelope.OccurredOn, far.Envelope.DeliverAt = time.Time{}, time.Unix(-1<<40, 0) // a log elsewhere may have them
	o.Park(t, far)
	got, _ := o.DueAt(t, time.Unix(1<<41, 0))
	require.Equal(t, notification.MaxTime, got[0].DueAt)
	require.Equal(t, notification.MinTime, got[0].Envelope.OccurredOn)
	require.Equal(t, notification.MinTime, got[0].Envelope.DeliverAt)
}
