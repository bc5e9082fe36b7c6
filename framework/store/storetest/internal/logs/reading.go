package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

var readingFacts = []kit.Fact{
	{"an empty log has no rows and an end", emptyLog},
	{"rows come once, in order, with every field", completeRows},
	{"a producer needs nothing but type and payload", plainProducer},
	{"metadata of other producers may be any object", foreignMetadata},
	{"uncommitted rows do not come", uncommittedRows},
	{"rolled back rows never come", rolledBackRows},
	{"a target bounds the rows that come", targetBounds},
	{"a target before the position brings nothing", olderTarget},
	{"every page size brings the same rows", pageSizes},
	{"pages are cut by the size of their rows", largeRows},
	{"every position continues behind its row", continuing},
	{"any reader at any position sees the log as it was published", modelOfReading},
	{"after an error the reader repeats and skips nothing", readErrors},
	{"rows that retention removed are passed over", retention},
	{"a log that was started again is read from its beginning", restartedLog},
	{"concurrent publishers' rows come once and in key order", concurrentPublishers},
}

func emptyLog(t *testing.T, o *kit.Outbox) {
	target := o.Target(t)
	require.Zero(t, target.Last())
	page := kit.NextPage(t, o.Reader(t, nil, kit.All), target, 10)
	require.Empty(t, page.Envelopes)
	require.True(t, page.CaughtUp)
	require.Empty(t, page.Rebased)

	o.Publish(t, kit.Several(1)...)
	envelopes, _ := o.Read(t, kit.Marshal(t, page.End), kit.All, 10)
	require.Len(t, envelopes, 1)
}

func completeRows(t *testing.T, o *kit.Outbox) {
	full := kit.Envelope("order.placed", "customer/17")
	full.ID = "an id of the application's own"
	full.Version = notification.MaxVersion
	full.DeliverAt = kit.Moment.Add(time.Hour + time.Microsecond)
	full.Metadata = notification.Metadata{"tenant": "a", "": "empty name", "quoted": `"\'` + "\n\t<&>", "grüße": "€ 😀", "empty": ""}
	full.Payload = []byte("{ \"text\" : \"grüße € 😀\",\n\"b\":1, \"a\":[ ] }")

	local := kit.Envelope("order.paid", "")
	local.OccurredOn = kit.Moment.In(time.FixedZone("west", -7*3600))
	local.DeliverAt = kit.Moment.In(time.FixedZone("east", 3*3600))

	odd := kit.Envelope(`o'"\%_?$1:x`, `k'"\%_?$1:x`)
	odd.OccurredOn = time.Date(1969, 7, 20, 20, 17, 40, 0, time.UTC)

	long := kit.Envelope(strings.Repeat("t", notification.MaxTypeLength), strings.Repeat("é", notification.MaxKeyLength/2))
	long.ID = strings.Repeat("i", notification.MaxIDLength)

	want := []notification.Envelope{full, local, odd, long, kit.Envelope("order.placed", "customer/17")}
	if o.BinaryPayload() {
		binary := kit.Envelope("order.placed", "")
		for b := range 256 {
			binary.Payload = append(binary.Payload, byte(b))
		}
		empty := kit.Envelope("order.placed", "")
		empty.Payload = nil
		want = append(want, binary, empty)
	}
	o.Publish(t, want...)

	got, _ := o.Read(t, nil, kit.All, 100)
	require.Equal(t, kit.IDs(want), kit.IDs(got))
	for i := range want {
		kit.RequireSame(t, want[i], got[i])
		require.NotNil(t, got[i].Payload)
		if i > 0 {
			require.Greater(t, got[i].Offset, got[i-1].Offset)
		}
	}
	require.Positive(t, got[0].Offset)
	require.Equal(t, got[len(got)-1].Offset, o.Target(t).Last())
}

func plainProducer(t *testing.T, o *kit.Outbox) {
	o.Exec(t, `INSERT INTO outbox (type, payload) VALUES ('order.placed', '{"n":1}'), ('order.placed', '{"n":2}')`)

	got, _ := o.Read(t, nil, kit.All, 10)
	require.Len(t, got, 2)
	require.NotEqual(t, got[0].ID, got[1].ID)
	for i, e := range got {
		require.Len(t, e.ID, 36, "a UUID")
		require.NoError(t, e.Validate())
		require.Equal(t, "order.placed", e.Type)
		require.Equal(t, 1, e.Version)
		require.Empty(t, e.Key)
		require.WithinDuration(t, time.Now(), e.OccurredOn, time.Minute)
		require.True(t, e.DeliverAt.IsZero())
		require.Empty(t, e.Metadata)
		require.JSONEq(t, fmt.Sprintf(`{"n":%d}`, i+1), string(e.Payload))
	}
}

func foreignMetadata(t *testing.T, o *kit.Outbox) {
	o.Exec(t, `INSERT INTO outbox (type, payload, metadata) VALUES ('a', '{}', '{"tenant":"x","retries":3,"ok":true,"none":null}')`)
	got, _ := o.Read(t, nil, kit.All, 10)
	require.Equal(t, notification.Metadata{"tenant": "x", "retries": "3", "ok": "true", "none": ""}, got[0].Metadata)

	for _, metadata := range []string{`[]`, `"text"`, `null`, `{`, `17`} {
		_, err := o.DB.Exec(`INSERT INTO outbox (type, payload, metadata) VALUES ('a', '{}', '` + metadata + `')`)
		require.Error(t, err, "the producer gets the error, not the reader: %s", metadata)
	}
}

func uncommittedRows(t *testing.T, o *kit.Outbox) {
	o.Publish(t, kit.Several(2)...)
	r := o.Reader(t, nil, kit.All)
	tx := o.Tx(t)
	late := kit.Several(3)
	require.NoError(t, o.Append(t.Context(), tx, late...))

	got, _ := kit.Drain(t, r, o.Target(t), 10)
	require.Len(t, got, 2)
	require.NoError(t, tx.Commit())
	got, _ = kit.Drain(t, r, o.Target(t), 10)
	require.Equal(t, kit.IDs(late), kit.IDs(got))
}

func rolledBackRows(t *testing.T, o *kit.Outbox) {
	before, after := kit.Several(2), kit.Several(2)
	o.Publish(t, before...)
	tx := o.Tx(t)
	require.NoError(t, o.Append(t.Context(), tx, kit.Several(3)...))
	require.NoError(t, tx.Rollback())
	r := o.Reader(t, nil, kit.All)
	got, _ := kit.Drain(t, r, o.Target(t), 10)
	require.Equal(t, kit.IDs(before), kit.IDs(got))

	o.Publish(t, after...)
	got, _ = kit.Drain(t, r, o.Target(t), 10)
	require.Equal(t, kit.IDs(after), kit.IDs(got))
}

func targetBounds(t *testing.T, o *kit.Outbox) {
	first, second := kit.Several(3), kit.Several(3)
	o.Publish(t, first...)
	target := o.Target(t)
	o.Publish(t, second...)

	r := o.Reader(t, nil, kit.All)
	got, end := kit.Drain(t, r, target, 2)
	require.Equal(t, kit.IDs(first), kit.IDs(got))
	got, _ = kit.Drain(t, r, o.Target(t), 2)
	require.Equal(t, kit.IDs(second), kit.IDs(got))
	got, _ = o.Read(t, end, kit.All, 2)
	require.Equal(t, kit.IDs(second), kit.IDs(got))
}

// olderTarget is about a lane that comes from a process whose probe was more recent than ours.
func olderTarget(t *testing.T, o *kit.Outbox) {
	o.Publish(t, kit.Several(3)...)
	older := o.Target(t)
	o.Publish(t, kit.Several(3)...)
	_, end := o.Read(t, nil, kit.All, 10)
	more := kit.Several(1)
	o.Publish(t, more...)

	r := o.Reader(t, end, kit.All)
	page := kit.NextPage(t, r, older, 10)
	require.Empty(t, page.Envelopes)
	require.Empty(t, page.Rebased, "the log is the same")
	got, _ := o.Read(t, kit.Marshal(t, page.End), kit.All, 10)
	require.Equal(t, kit.IDs(more), kit.IDs(got))
	got, _ = kit.Drain(t, r, o.Target(t), 10)
	require.Equal(t, kit.IDs(more), kit.IDs(got))
}

func pageSizes(t *testing.T, o *kit.Outbox) {
	want := kit.Several(14)
	o.Publish(t, want[:5]...)
	o.Publish(t, want[5:]...)
	for limit := 1; limit <= 7; limit++ {
		got, _ := o.Read(t, nil, kit.All, limit)
		require.Equal(t, kit.IDs(want), kit.IDs(got), "limit %d", limit)
	}
}

func largeRows(t *testing.T, o *kit.Outbox) {
	large := func(megabytes int) notification.Envelope {
		e := kit.Envelope("report.made", "")
		e.Payload = slices.Concat([]byte(`"`), bytes.Repeat([]byte("x"), megabytes<<20), []byte(`"`))
		return e
	}
	want := []notification.Envelope{large(20), large(5), large(5), large(5), kit.Envelope("a", "")}
	for _, e := range want {
		o.Publish(t, e)
	}

	r, target := o.Reader(t, nil, kit.All), o.Target(t)
	page := kit.NextPage(t, r, target, 100)
	require.Equal(t, kit.IDs(want[:1]), kit.IDs(page.Envelopes), "a row larger than a page comes alone")
	require.False(t, page.CaughtUp)
	require.Len(t, page.Envelopes[0].Payload, 20<<20+2)

	rest, _ := kit.Drain(t, r, target, 100)
	require.Equal(t, kit.IDs(want[1:]), kit.IDs(rest))
	rest, _ = o.Read(t, kit.Marshal(t, page.End), kit.All, 100)
	require.Equal(t, kit.IDs(want[1:]), kit.IDs(rest))
}

func continuing(t *testing.T, o *kit.Outbox) {
	want := kit.Several(10)
	o.Publish(t, want...)
	for limit := 1; limit <= 7; limit++ {
		r, target, read := o.Reader(t, nil, kit.All), o.Target(t), 0
		for read < len(want) {
			page := kit.NextPage(t, r, target, limit)
			for i := range page.Envelopes {
				got, _ := o.Read(t, kit.Marshal(t, page.After(i)), kit.All, 3)
				require.Equal(t, kit.IDs(want[read+i+1:]), kit.IDs(got), "limit %d, behind row %d", limit, read+i)
			}
			read += len(page.Envelopes)
			got, _ := o.Read(t, kit.Marshal(t, page.End), kit.All, 3)
			require.Equal(t, kit.IDs(want[read:]), kit.IDs(got), "limit %d, behind the page that ends at %d", limit, read)
		}
	}
}

func readErrors(t *testing.T, o *kit.Outbox) {
	want := kit.Several(5)
	o.Publish(t, want...)
	r, target := o.Reader(t, nil, kit.All), o.Target(t)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()

	var got []notification.Envelope
	for len(got) < len(want) {
		_, err := r.Next(cancelled, target, 2)
		require.ErrorIs(t, err, context.Canceled)
		page := kit.NextPage(t, r, target, 2)
		got = append(got, page.Envelopes...)
	}
	require.Equal(t, kit.IDs(want), kit.IDs(got))
}

func retention(t *testing.T, o *kit.Outbox) {
	want := kit.Several(6)
	o.Publish(t, want...)
	all6, _ := o.Read(t, nil, kit.All, 10)
	r := o.Reader(t, nil, kit.All)
	page := kit.NextPage(t, r, o.Target(t), 2)
	require.Equal(t, kit.IDs(want[:2]), kit.IDs(page.Envelopes))

	o.Exec(t, fmt.Sprintf(`DELETE FROM outbox WHERE {offset} <= %d`, all6[3].Offset))
	got, end := kit.Drain(t, r, o.Target(t), 2)
	require.Equal(t, kit.IDs(want[4:]), kit.IDs(got))

	o.Exec(t, `DELETE FROM outbox`)
	got, _ = o.Read(t, end, kit.All, 2)
	require.Empty(t, got)
	after := kit.Several(1)
	o.Publish(t, after...)
	got, _ = o.Read(t, end, kit.All, 2)
	require.Equal(t, kit.IDs(after), kit.IDs(got))
}

func restartedLog(t *testing.T, o *kit.Outbox) {
	o.Publish(t, kit.Several(5)...)
	r := o.Reader(t, nil, kit.All)
	kit.Drain(t, r, o.Target(t), 10)
	o.Write(t, o.Hold(t, "mail"), func(*store.Checkpoint) {}) // what a dialect remembers of a checkpoint is outdated too
	o.Publish(t, kit.Several(1)...)
	_, end := kit.Drain(t, r, o.Target(t), 10)
	o.Exec(t, o.Restart...)
	want := kit.Several(2)
	o.Publish(t, want...)

	for name, r := range map[string]store.Reader{"reading on": r, "a new reader": o.Reader(t, end, kit.All)} {
		page, err := r.Next(t.Context(), o.Target(t), 10)
		require.NoError(t, err, name)
		require.NotEmpty(t, page.Rebased, name)
		require.Equal(t, kit.IDs(want), kit.IDs(page.Envelopes), name)

		again, err := r.Next(t.Context(), o.Target(t), 10)
		require.NoError(t, err, name)
		require.Empty(t, again.Rebased, "%s: reported once", name)
		require.Empty(t, again.Envelopes, name)
		got, _ := o.Read(t, kit.Marshal(t, page.End), kit.All, 10)
		require.Empty(t, got, name)
	}
}

// concurrentPublishers runs eight transactions at a time against a reader. Each publisher has a key
// and begins its transactions one after the other.
func concurrentPublishers(t *testing.T, o *kit.Outbox) {
	const publishers, transactions = 8, 25
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		want = make(map[string][]string) // by key
		errs []error
	)
	ctx := t.Context()
	publishOne := func(key string, n int) error {
		tx, err := o.DB.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		pair := []notification.Envelope{kit.Envelope("a", key), kit.Envelope("b", key)}
		if err := o.Append(ctx, tx, pair...); err != nil {
			return err
		}
		if n%5 == 4 {
			return tx.Rollback()
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		want[key] = append(want[key], kit.IDs(pair)...)
		return nil
	}
	for p := range publishers {
		wg.Go(func() {
			for n := range transactions {
				if err := o.Repeat(func() error { return publishOne(fmt.Sprint("key", p), n) }); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	published := make(chan struct{})
	go func() { wg.Wait(); close(published) }()

	got := make(map[string][]string)
	r := o.Reader(t, nil, kit.All)
	for done := false; !done; {
		select {
		case <-published:
			done = true // once the rest is read
		default:
		}
		envelopes, _ := kit.Drain(t, r, o.Target(t), 7)
		for _, e := range envelopes {
			got[e.Key] = append(got[e.Key], e.ID)
		}
	}
	require.NoError(t, errors.Join(errs...))
	require.Len(t, want, publishers)
	require.Equal(t, want, got)
}
