package dispatch

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/internal/presence"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// clock moves the two clocks in a time.Time separately.
func clock(t time.Time, wall, monotonic time.Duration) time.Time {
	parts := (*struct {
		wall uint64 // the highest bit, seconds from bit 30 on, nanoseconds
		ext  int64  // the monotonic clock
	})(unsafe.Pointer(&t))
	parts.wall += uint64(int64(wall/time.Second)) << 30
	parts.ext += int64(monotonic)
	return t
}

func TestALeaseExpiresByEitherClock(t *testing.T) {
	t.Parallel()
	leased := time.Now()
	const ttl = 15 * time.Second
	moved := clock(leased, time.Hour, time.Minute)
	require.Equal(t, time.Minute, moved.Sub(leased), "the monotonic clock")
	require.Equal(t, time.Hour, moved.Round(0).Sub(leased.Round(0)), "the wall clock")
	for name, c := range map[string]struct {
		wall, monotonic time.Duration
		expired         bool
	}{
		"at once":                                 {0, 0, false},
		"before its end":                          {14 * time.Second, 14 * time.Second, false},
		"after its end":                           {16 * time.Second, 16 * time.Second, true},
		"the machine was suspended":               {time.Hour, time.Second, true},
		"the wall clock was set back":             {-time.Hour, 16 * time.Second, true},
		"the wall clock was set back in time":     {-time.Hour, 14 * time.Second, false},
		"the wall clock was set forward a little": {14 * time.Second, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.expired, expired(clock(leased, c.wall, c.monotonic), leased.Add(ttl)))
		})
	}
}

func TestAnEmptyLaneReadsAPageWhateverOthersHaveInMemory(t *testing.T) {
	t.Parallel()
	d := idle(t)
	page := func(offset int64) store.Page {
		return store.Page{Envelopes: []notification.Envelope{{Offset: offset, ID: "large", Payload: make([]byte, memoryBytes)}}}
	}
	full, empty := join(d, 0, 1), join(d, 1, 1)
	full.Add(page(1))
	require.False(t, full.Offer(page(2)))
	require.True(t, empty.Offer(page(3)))
	require.False(t, empty.Offer(page(4)))
}

func TestWhatWasDeliveredIsRememberedUntilTheLaneHasCaughtUp(t *testing.T) {
	t.Parallel()
	d := idle(t)
	pages := []store.Page{
		{Envelopes: []notification.Envelope{{Offset: 1, ID: "first"}}},
		{Envelopes: []notification.Envelope{{Offset: 2, ID: "second"}}, CaughtUp: true},
		{Envelopes: []notification.Envelope{{Offset: 3, ID: "third"}}, CaughtUp: true},
	}
	before := join(d, 0, 1)
	for _, page := range pages {
		before.Add(page)
		before.delivered(next(t, d), notification.Receipt("of "+page.Envelopes[0].ID))
	}
	before.Remember(nil)
	before.Leave()

	after := join(d, 0, 2)
	after.Add(pages[0])
	after.Add(pages[1])
	out := after.Take(nil)
	require.Len(t, out.Settled, 2)
	for i, id := range []string{"first", "second"} {
		require.True(t, out.Settled[i].Delivered)
		require.EqualValues(t, "of "+id, out.Settled[i].Receipt)
	}
	require.Zero(t, d.queue.Len())
	after.Add(pages[2])
	require.Equal(t, "third", next(t, d).ID, "it was not read by then, so this is another row")
}

// A page may miss a cancellation that was committed while it was read, so its rows that have become due
// since are checked again.
func TestRowsThatBecomeDueWhileAPageIsReadAreParked(t *testing.T) {
	t.Parallel()
	asked := time.Now()
	lane := join(idle(t), 0, 1)
	lane.Add(store.Page{Asked: asked, Envelopes: []notification.Envelope{
		{Offset: 1, ID: "before", DeliverAt: asked.Add(-time.Nanosecond)},
		{Offset: 2, ID: "meanwhile", DeliverAt: asked.Add(time.Nanosecond)},
		{Offset: 3, ID: "no time"},
	}})
	out := lane.Take(nil)
	require.Len(t, out.Settled, 1)
	require.Equal(t, "meanwhile", out.Settled[0].Parked.Envelope.ID)
	require.Equal(t, store.StateScheduled, out.Settled[0].Parked.State)
}

func TestALaneBeginsNothingWhileItsProcessMayBeTakenForDead(t *testing.T) {
	t.Parallel()
	d := idle(t)
	d.settings.Parallelism.Threshold = 16
	var gate presence.Gate
	lease := store.Lease{Lane: store.NewLane("mail", 0, 1), Owner: "o", Epoch: 1}
	l := d.Join(t.Context(), lease, time.Now(), time.Minute, gate.Term())
	fill := func() (offsets []int64) {
		d.mu.Lock()
		defer d.mu.Unlock()
		for c := (&call{}); ; c.reset() {
			if d.take(c, 1, 16, time.Now()); len(c.items) == 0 {
				return offsets
			}
			offsets = append(offsets, c.items[0].Offset)
		}
	}
	page := func(offsets ...int64) (p store.Page) {
		for _, offset := range offsets {
			p.Envelopes = append(p.Envelopes, notification.Envelope{Offset: offset, ID: "n"})
		}
		return p
	}
	l.Add(page(1, 2))
	require.Equal(t, []int64{1, 2}, fill())
	gate.Promise(time.Now().Add(-time.Millisecond))
	l.Add(page(3, 4))
	require.Empty(t, fill())
	l.Add(page(5))
	require.Empty(t, fill())
	l.Suspend()
	gate.Promise(time.Now().Add(time.Minute))
	require.Empty(t, fill(), "a checkpoint fails")
	l.Continue()
	require.Equal(t, []int64{3, 4, 5}, fill())
	gate.Promise(time.Now().Add(-time.Millisecond))
	l.Add(page(6, 7))
	require.Empty(t, fill())
	l.Suspend()
	l.Continue()
	require.Empty(t, fill(), "a checkpoint was written")
	gate.Evicted()
	require.Empty(t, fill())
	require.ErrorIs(t, l.Take(nil).Over, store.ErrLeaseLost)
}
