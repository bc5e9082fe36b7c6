package deliveries

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// modelOfParked writes random checkpoints of several lanes, whose leases are acquired, released and
// lost, and compares every query with the simplest model: a map of parked deliveries and a cursor
// for each lane.
func modelOfParked(t *testing.T, o *kit.Outbox) {
	page := pageOf(t, o, kit.Several(5)...)
	rapid.Check(t, func(rt *rapid.T) {
		o.Exec(t, `DELETE FROM outbox_parked`, `DELETE FROM outbox_cursors`)
		m := &parkedModel{o: o, t: t, page: page, rows: make(map[parkedRow]store.Parked)}
		for _, l := range append(store.Lanes("mail", 2), kit.Lane("events")) {
			m.lanes = append(m.lanes, &modelLane{Lane: l})
		}
		rt.Repeat(map[string]func(*rapid.T){
			"acquire":    m.acquire,
			"expire":     m.expire,
			"release":    m.release,
			"checkpoint": m.checkpoint,
			"written":    m.writtenAlready,
			"stale":      m.stale,
			"due":        m.due,
			"followers":  m.followers,
			"":           m.check,
		})
	})
}

type parkedModel struct {
	o     *kit.Outbox
	t     *testing.T
	page  store.Page
	lanes []*modelLane
	rows  map[parkedRow]store.Parked
}

type parkedRow struct {
	sink string
	store.Ref
}

type modelLane struct {
	store.Lane
	lease   store.Lease // the last one
	held    bool        // not released
	expired bool
	old     []store.Lease
	number  int64
	passed  int // rows of the page that are before the cursor
	settled []store.OffsetRange
}

// parkable are the envelopes that may be parked: five for each key, and two for each offset, as if
// the log had been truncated. Those two have different keys, so that offsets determine the order
// within a key.
var parkable = func() (all []notification.Envelope) {
	slots := map[string]int{"": 511, "a": 0, "b": store.Slots - 1, "c": 512}
	keys := []string{"", "a", "b", "c"}
	for offset := range 10 {
		for i, id := range []string{"first", "second"} {
			e := kit.Envelope("order.placed", keys[(offset+i)%len(keys)])
			e.Offset, e.ID, e.Slot = int64(1+offset), id, slots[e.Key]
			all = append(all, e)
		}
	}
	return all
}()

func (m *parkedModel) lane(rt *rapid.T) *modelLane {
	return m.lanes[rapid.IntRange(0, len(m.lanes)-1).Draw(rt, "lane")]
}

func (m *parkedModel) heldLane(rt *rapid.T) *modelLane {
	l := m.lane(rt)
	if !l.held {
		rt.Skip("no forwarder holds it")
	}
	return l
}

func (m *parkedModel) acquire(rt *rapid.T) {
	l, owner := m.lane(rt), rapid.SampledFrom([]string{"w1", "w2"}).Draw(rt, "owner")
	if l.held && !l.expired && l.lease.Owner != owner {
		_, err := m.o.Acquire(m.t.Context(), l.Lane, owner, time.Hour)
		require.ErrorIs(rt, err, store.ErrLeaseHeld)
		return
	}
	var lease store.Lease
	require.NoError(rt, m.o.Repeat(func() (err error) {
		lease, err = m.o.Acquire(m.t.Context(), l.Lane, owner, time.Hour)
		return err
	}))
	require.Greater(rt, lease.Epoch, l.lease.Epoch)
	require.Equal(rt, l.settled, lease.Settled)
	require.Equal(rt, l.number, lease.Checkpoint)
	if l.passed == 0 {
		require.Nil(rt, lease.Position)
	} else {
		got, _ := m.o.Read(m.t, lease.Position, kit.All, 10)
		require.Equal(rt, kit.IDs(m.page.Envelopes[l.passed:]), kit.IDs(got))
	}
	if l.lease.Epoch > 0 {
		l.old = append(l.old, l.lease)
	}
	l.lease, l.held, l.expired = lease, true, false
}

func (m *parkedModel) expire(*rapid.T) {
	expireLeases(m.t, m.o)
	for _, l := range m.lanes {
		l.expired = true
	}
}

func (m *parkedModel) release(rt *rapid.T) {
	l := m.heldLane(rt)
	require.NoError(rt, m.o.Release(m.t.Context(), l.lease))
	l.held, l.old = false, append(l.old, l.lease)
}

// draw draws a random checkpoint, and returns how far it moves the cursor.
func (m *parkedModel) draw(rt *rapid.T, l *modelLane, lease store.Lease) (c store.Checkpoint, passed int) {
	c = store.Checkpoint{Lease: lease, TTL: time.Hour}
	if rapid.Bool().Draw(rt, "moves") {
		passed = rapid.IntRange(1, len(m.page.Envelopes)).Draw(rt, "passed")
		c.Position = m.page.After(passed - 1)
		for range rapid.IntRange(0, 2).Draw(rt, "settled") {
			c.Settled = append(c.Settled, store.OffsetRanges(int64(100+10*len(c.Settled)))...)
		}
	}
	var own []int
	for i := range parkable {
		if s := parkable[i].Slot; l.Slots.First <= s && s <= l.Slots.Last {
			own = append(own, i)
		}
	}
	for _, i := range rapid.SliceOfNDistinct(rapid.SampledFrom(own), 0, 5, rapid.ID[int]).Draw(rt, "deliveries") {
		if rapid.IntRange(0, 2).Draw(rt, "unpark") == 0 {
			c.Unpark = append(c.Unpark, store.RefOf(&parkable[i]))
			continue
		}
		p := store.Parked{
			Envelope:      parkable[i],
			State:         rapid.SampledFrom([]store.State{store.StateRetrying, store.StateScheduled, store.StateBlocked, store.StateQuiet, store.StateDead, store.StateSettling}).Draw(rt, "state"),
			Attempt:       rapid.IntRange(0, 3).Draw(rt, "attempt"),
			LastError:     rapid.SampledFrom([]string{"", "refused"}).Draw(rt, "error"),
			Attempts:      kit.Attempts()[:rapid.IntRange(0, 2).Draw(rt, "attempts")],
			Receipt:       notification.Receipt(rapid.SampledFrom([]string{"", "202"}).Draw(rt, "receipt")),
			HookError:     rapid.SampledFrom([]string{"", "deadlock"}).Draw(rt, "hook error"),
			HookFailures:  rapid.IntRange(0, 2).Draw(rt, "hook failures"),
			FirstParkedAt: kit.After(time.Duration(rapid.IntRange(-2, 2).Draw(rt, "parked")) * time.Hour),
		}
		if p.State == store.StateRetrying || p.State == store.StateScheduled || p.State == store.StateQuiet || rapid.Bool().Draw(rt, "was due") {
			p.DueAt = m.moment(rt).Add(time.Duration(i%2) * time.Microsecond) // two of the same offset differ
		}
		c.Park = append(c.Park, p)
	}
	return c, passed
}

// moment draws one of a few times, so that several deliveries are due at once.
func (m *parkedModel) moment(rt *rapid.T) time.Time {
	return kit.After(time.Duration(rapid.IntRange(-3, 3).Draw(rt, "time")) * time.Second)
}

func (m *parkedModel) checkpoint(rt *rapid.T) {
	l := m.heldLane(rt)
	c, passed := m.draw(rt, l, l.lease)
	if rapid.IntRange(0, 4).Draw(rt, "counted") > 0 {
		l.number += int64(rapid.IntRange(1, 3).Draw(rt, "number"))
		c.Number = l.number
	}
	require.NoError(rt, m.o.Checkpoint(m.t.Context(), c))
	l.expired = false
	if passed > 0 {
		l.passed, l.settled = passed, c.Settled
	}
	for _, ref := range c.Unpark {
		delete(m.rows, parkedRow{l.Sink, ref})
	}
	for _, p := range c.Park {
		row := parkedRow{l.Sink, store.RefOf(&p.Envelope)}
		if before, parked := m.rows[row]; parked {
			if p.State == store.StateBlocked {
				continue
			}
			p.FirstParkedAt = before.FirstParkedAt
		}
		m.rows[row] = p
	}
}

// writtenAlready writes a checkpoint with a number that was already used.
func (m *parkedModel) writtenAlready(rt *rapid.T) {
	l := m.heldLane(rt)
	if l.number == 0 {
		rt.Skip("nothing is written yet")
	}
	c, _ := m.draw(rt, l, l.lease)
	c.Number = rapid.Int64Range(1, l.number).Draw(rt, "number")
	before := m.o.DumpAll(m.t, "lease_until", "updated_at")
	require.NoError(rt, m.o.Checkpoint(m.t.Context(), c))
	require.Equal(rt, before, m.o.DumpAll(m.t, "lease_until", "updated_at"))
}

// stale writes with a lease that has ended.
func (m *parkedModel) stale(rt *rapid.T) {
	l := m.lane(rt)
	if len(l.old) == 0 {
		rt.Skip("no lease has ended")
	}
	c, _ := m.draw(rt, l, rapid.SampledFrom(l.old).Draw(rt, "lease"))
	c.Number = rapid.Int64Range(0, 20).Draw(rt, "number")
	before := m.o.DumpAll(m.t)
	require.ErrorIs(rt, m.o.Checkpoint(m.t.Context(), c), store.ErrLeaseLost)
	require.NoError(rt, m.o.Release(m.t.Context(), c.Lease))
	require.Equal(rt, before, m.o.DumpAll(m.t))
}

// of returns the deliveries of a lane in one of the states.
func (m *parkedModel) of(l store.Lane, states ...store.State) (list []store.Parked) {
	for row, p := range m.rows {
		s := p.Envelope.Slot
		if row.sink == l.Sink && l.Slots.First <= s && s <= l.Slots.Last && slices.Contains(states, p.State) {
			list = append(list, p)
		}
	}
	return list
}

// holding returns the states in which a delivery holds back its key.
func holding(halt bool) []store.State {
	if halt {
		return []store.State{store.StateRetrying, store.StateBlocked, store.StateQuiet, store.StateDead}
	}
	return []store.State{store.StateRetrying, store.StateBlocked, store.StateQuiet}
}

func (m *parkedModel) due(rt *rapid.T) {
	l := m.lane(rt)
	q := store.DueQuery{
		Lane:  l.Lane,
		Now:   m.moment(rt).Add(time.Duration(rapid.IntRange(-1, 1).Draw(rt, "microseconds")) * time.Microsecond),
		Limit: rapid.IntRange(1, 8).Draw(rt, "limit"),
		Halt:  rapid.Bool().Draw(rt, "halt"),
	}
	held := make(map[string]bool)
	for _, p := range m.of(l.Lane, holding(q.Halt)...) {
		held[p.Envelope.Key] = p.Envelope.Key != ""
	}
	var want []store.Parked
	var next time.Time
	timed := m.timed(l.Lane)
	slices.SortFunc(timed, func(a, b store.Parked) int {
		return cmp.Or(a.DueAt.Compare(b.DueAt), cmp.Compare(a.Envelope.Offset, b.Envelope.Offset))
	})
	for _, p := range timed {
		switch {
		case p.DueAt.After(q.Now): // not due yet
		case rapid.IntRange(0, 3).Draw(rt, "in hand") == 0:
			q.Except = append(q.Except, store.RefOf(&p.Envelope))
		case p.State != store.StateScheduled || !held[p.Envelope.Key]:
			want = append(want, p)
		}
	}
	for _, p := range m.timed(store.NewLane(l.Sink, 0, 1)) {
		if p.DueAt.After(q.Now) && (next.IsZero() || p.DueAt.Before(next)) {
			next = p.DueAt
		}
	}
	var got []store.Parked
	var gotNext time.Time
	require.NoError(rt, m.o.Repeat(func() (err error) {
		got, gotNext, err = m.o.Due(m.t.Context(), q)
		return err
	}))
	require.Equal(rt, texts(want[:min(len(want), q.Limit)]), texts(got))
	if len(want) > q.Limit && gotNext.Equal(want[q.Limit].DueAt) {
		return // some stores return the first one left out
	}
	require.True(rt, next.Equal(gotNext), "next is %s, got %s", next, gotNext)
}

// timed returns the deliveries of a lane that wait for a time.
func (m *parkedModel) timed(l store.Lane) []store.Parked {
	return slices.DeleteFunc(m.of(l, store.StateRetrying, store.StateScheduled, store.StateQuiet, store.StateDead, store.StateSettling),
		func(p store.Parked) bool { return p.DueAt.IsZero() })
}

func (m *parkedModel) followers(rt *rapid.T) {
	l, halt, limit := m.lane(rt), rapid.Bool().Draw(rt, "halt"), rapid.IntRange(1, 6).Draw(rt, "limit")
	keys := rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), rapid.ID[string]).Draw(rt, "keys")
	var want []string
	for _, key := range keys {
		var of []store.Parked
		for row, p := range m.rows {
			if row.sink == l.Sink && p.Envelope.Key == key && slices.Contains(holding(halt), p.State) {
				of = append(of, p)
			}
		}
		slices.SortFunc(of, func(a, b store.Parked) int { return cmp.Compare(a.Envelope.Offset, b.Envelope.Offset) })
		want = append(want, texts(of[:min(len(of), limit)])...)
	}
	var got []store.Parked
	var answered int
	require.NoError(rt, m.o.Repeat(func() (err error) {
		got, answered, err = m.o.Followers(m.t.Context(), l.Lane, keys, halt, limit)
		return err
	}))
	require.Equal(rt, len(keys), answered)
	require.Equal(rt, want, append([]string(nil), texts(got)...))
}

// check compares the held keys of a lane, and the number of parked deliveries.
func (m *parkedModel) check(rt *rapid.T) {
	l, halt := m.lane(rt), rapid.Bool().Draw(rt, "halt")
	held := make(map[string]bool)
	for _, p := range m.of(l.Lane, holding(halt)...) {
		if key := p.Envelope.Key; key != "" {
			held[key] = held[key] || p.State != store.StateBlocked
		}
	}
	require.Equal(rt, held, keysHeld(rt, m.o, l.Lane, halt, rapid.IntRange(1, 3).Draw(rt, "page")))
	require.Equal(rt, fmt.Sprintf("n=%d \n", len(m.rows)), m.o.Dump(m.t, `SELECT count(*) AS n FROM outbox_parked`))
}

// texts makes parked deliveries comparable and readable.
func texts(parked []store.Parked) []string {
	list := make([]string, len(parked))
	for i, p := range parked {
		due := p.DueAt.UTC()
		list[i] = fmt.Sprintf("%d/%s of %q in %d: %s after %d due %s: %q, %q, %q, hook %q %d, first %s", p.Envelope.Offset, p.Envelope.ID, p.Envelope.Key,
			p.Envelope.Slot, p.State, p.Attempt, due.Format(time.RFC3339Nano), p.LastError, store.EncodePastAttempts(p.Attempts), p.Receipt, p.HookError, p.HookFailures, p.FirstParkedAt.UTC().Format(time.RFC3339Nano))
	}
	return list
}
