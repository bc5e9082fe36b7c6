package window_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/forwarder/internal/window"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// place is a position for tests: the number of rows before it.
type place int

func (p place) MarshalJSON() ([]byte, error) { return json.Marshal(int(p)) }

// log returns pages.
type log struct{ read int }

func (l *log) page(offsets ...int64) *window.Page {
	start := l.read
	l.read += len(offsets)
	envelopes := make([]notification.Envelope, len(offsets))
	for i, offset := range offsets {
		envelopes[i].Offset = offset
	}
	return window.NewPage(store.Page{Envelopes: envelopes, Start: place(start), End: place(l.read),
		After: func(i int) store.Position { return place(start + i + 1) }})
}

func TestThePositionFollowsTheSettledPrefix(t *testing.T) {
	t.Parallel()
	var l log
	w := window.New(nil)
	require.Nil(t, w.Position())
	first, second := l.page(1, 2, 3), l.page(4, 5)
	w.Add(first)
	w.Add(second)
	require.Equal(t, place(0), w.Position())

	first.Settle(1)
	second.Settle(1)
	w.Advance()
	require.Equal(t, place(0), w.Position(), "the first row is not settled")
	require.Equal(t, store.OffsetRanges(2, 5), w.Ahead())

	first.Settle(0)
	w.Advance()
	require.Equal(t, place(2), w.Position())
	require.Equal(t, store.OffsetRanges(5), w.Ahead())

	first.Settle(2)
	second.Settle(0)
	w.Advance()
	require.Equal(t, place(5), w.Position())
	require.Empty(t, w.Ahead())
}

func TestAnEmptyPageAdvancesTheEnd(t *testing.T) {
	t.Parallel()
	var l log
	w := window.New(nil)
	p := l.page(1)
	w.Add(p)
	l.read = 10
	w.Add(l.page())
	p.Settle(0)
	w.Advance()
	require.Equal(t, place(10), w.Position())
	w.Add(l.page())
	w.Advance()
	require.Equal(t, place(10), w.Position())
}

func TestAnIdleLaneWithAnOpenRowKeepsOnePage(t *testing.T) {
	t.Parallel()
	var l log
	w := window.New(nil)
	p := l.page(1)
	w.Add(p)
	for range 100 {
		w.Add(l.page())
		w.Advance()
	}
	require.Equal(t, 1, w.Pages())
	l.read = 10
	w.Add(l.page())
	p.Settle(0)
	require.Equal(t, place(10), w.Position())
}

func TestRangesSettledBeforeAreKeptUntilThePositionPassesThem(t *testing.T) {
	t.Parallel()
	var l log
	w := window.New(store.OffsetRanges(2, 3))
	p := l.page(1, 2)
	w.Add(p)
	p.Settle(1)
	w.Advance()
	require.Equal(t, store.OffsetRanges(2, 3), w.Ahead())
	w.Passed()
	require.Equal(t, store.OffsetRanges(2, 3), w.Ahead(), "3 is in no page: the sink does not take its type now")
	next := l.page(4, 5)
	w.Add(next)
	next.Settle(1)
	w.Advance()
	require.Equal(t, store.OffsetRanges(2, 3, 5), w.Ahead())
	p.Settle(0)
	require.Equal(t, store.OffsetRanges(5), w.Ahead(), "the position has passed them")
	w.Advance()
	require.Equal(t, store.OffsetRanges(5), w.Ahead())
}

// What is settled ahead is subtracted from what is pending, so nothing else may be in it.
func TestRangesThatWereReadOrPassedAreNotKept(t *testing.T) {
	t.Parallel()
	var l log
	w := window.New(store.OffsetRanges(2, 3, 5))
	first, stuck := l.page(1, 2), l.page(3, 4, 5)
	w.Add(first)
	w.Add(stuck)
	first.Settle(1)
	stuck.Settle(0)
	stuck.Settle(2)
	first.Settle(0)
	w.Advance()
	w.Passed()
	require.Equal(t, store.OffsetRanges(5), w.Ahead())
	stuck.Settle(1)
	require.Empty(t, w.Ahead())
}

func TestRangesSettledBeforeOutliveTheEnvelopesOfTheirPage(t *testing.T) {
	t.Parallel()
	for _, passed := range []int{0, 1, 2} {
		var l log
		w := window.New(store.OffsetRanges(3))
		stuck, last := l.page(1), l.page(2)
		w.Add(stuck)
		w.Add(last)
		for step, do := range []func(){func() { last.Settle(0) }, w.Advance, w.Advance} {
			if step >= passed {
				w.Passed()
			}
			do()
		}
		require.Equal(t, store.OffsetRanges(2, 3), w.Ahead(), "passed from step %d on", passed)
		stuck.Settle(0)
		require.Empty(t, w.Ahead())
	}
}

// The last checkpoint before a sink's lanes are cut must have nothing settled ahead.
func TestNothingIsAheadOnceEverythingThatWasReadIsSettled(t *testing.T) {
	t.Parallel()
	var l log
	w := window.New(store.OffsetRanges(3, 4))
	p := l.page(1, 2)
	w.Add(p)
	p.Settle(1)
	require.Equal(t, store.OffsetRanges(2, 3, 4), w.AheadRead(), "3 and 4 are in no page: the sink does not take their types now")
	p.Settle(0)
	require.Empty(t, w.AheadRead())
}

func TestAnotherLogIsReadFromItsStart(t *testing.T) {
	t.Parallel()
	var l log
	w := window.New(store.OffsetRanges(7))
	old := l.page(1, 2)
	w.Add(old)
	w.Restart(place(100))
	old.Settle(0) // a row of the replaced log
	w.Advance()
	require.Equal(t, place(100), w.Position())
	require.Empty(t, w.Ahead())
}

func TestOneUnsettledRowKeepsOnlyItsPage(t *testing.T) {
	t.Parallel()
	var l log
	w := window.New(nil)
	w.Add(l.page(1)) // hangs
	for i := range int64(1000) {
		p := l.page(2+2*i, 3+2*i)
		w.Add(p)
		p.Settle(0)
		p.Settle(1)
		w.Advance()
	}
	require.Equal(t, []store.OffsetRange{{First: 2, Last: 2001}}, w.Ahead(), "one range")
	require.Equal(t, place(0), w.Position())
}

// The test compares a window with a list of all rows.
func TestAWindowHasTheSettledRows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var l log
		var order []int64 // offsets, as they were read
		settled := map[int64]bool{}
		type row struct {
			page  *window.Page
			index int
		}
		rows := map[int64]row{}
		free := rapid.Permutation(numbers(120)).Draw(t, "offsets") // late rows come after later offsets
		before := slices.Sorted(slices.Values(free[:rapid.IntRange(0, 10).Draw(t, "settled before")]))
		w := window.New(store.OffsetRanges(before...))
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				n := min(rapid.IntRange(0, 6).Draw(t, "rows"), len(free))
				p := l.page(free[:n]...)
				for i, offset := range free[:n] {
					rows[offset] = row{p, i}
				}
				order, free = append(order, free[:n]...), free[n:]
				w.Add(p)
				for i := range n { // rows that were settled before count as settled once they are read
					if offset := order[len(order)-n+i]; slices.Contains(before, offset) {
						p.Settle(i)
						settled[offset] = true
					}
				}
			},
			"settle": func(t *rapid.T) {
				var open []int64
				for _, offset := range order {
					if !settled[offset] {
						open = append(open, offset)
					}
				}
				if len(open) == 0 {
					t.Skip("all is settled")
				}
				offset := rapid.SampledFrom(open).Draw(t, "offset")
				settled[offset] = true
				rows[offset].page.Settle(rows[offset].index)
			},
			"": func(t *rapid.T) {
				w.Advance()
				prefix := 0
				for prefix < len(order) && settled[order[prefix]] {
					prefix++
				}
				if l.read > 0 && w.Position() != store.Position(place(prefix)) {
					t.Fatalf("the position is %v, and %d rows are settled", w.Position(), prefix)
				}
				want := map[int64]bool{}
				for _, offset := range before {
					want[offset] = true
				}
				for _, offset := range order[prefix:] {
					if settled[offset] {
						want[offset] = true
					}
				}
				ahead := w.Ahead()
				for _, offset := range order[prefix:] {
					if store.ContainsOffset(ahead, offset) != want[offset] {
						t.Fatalf("%v is ahead, and %d is settled: %v", ahead, offset, want[offset])
					}
				}
				if n := store.CountOffsets(ahead); n != int64(len(want)) {
					t.Fatalf("%v is ahead, and not %v", ahead, want)
				}
				if decoded, err := store.DecodeOffsets(store.EncodeOffsets(ahead)); err != nil || fmt.Sprint(decoded) != fmt.Sprint(ahead) {
					t.Fatalf("%v is stored as %v: %v", ahead, decoded, err)
				}
			},
		})
	})
}

func numbers(n int64) (all []int64) {
	for i := range n {
		all = append(all, i+1)
	}
	return all
}
