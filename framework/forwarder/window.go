package forwarder

import (
	"context"
	"slices"

	"github.com/waybill-go/waybill/framework/store"
)

// Bounds of a lane's window. They bound the memory of a forwarder whatever the
// backlog, and how much a crash can repeat.
const (
	pageRows    = 2000
	windowRows  = 8 * pageRows
	windowBytes = 64 << 20 // the last page read may exceed it

	// envelopeBytes is about what an item takes beside its payload.
	envelopeBytes = 500
)

// page is a page of the log in a lane's window.
type page struct {
	store.Page
	items   []item
	settled []bool
	prefix  int // items[:prefix] are settled
	bytes   int
}

// window is what a lane has read and not yet settled as a whole: pages in the
// order of the log. The settled prefix leaves it and moves the position; what is
// settled behind the first unsettled item is known by its offset, so that a
// crash does not repeat it.
type window struct {
	pages    []*page
	rows     int
	bytes    int
	position store.Position // behind the settled prefix; nil until the first page is read
	skip     map[int64]bool // settled before this lease began, not met yet
	room     chan struct{}  // capacity 1: something left the window, or might
	full     bool           // the reader waits for room
}

func (w *window) init(settled []store.OffsetRange) {
	w.room = make(chan struct{}, 1)
	w.skip = make(map[int64]bool, len(settled))
	for _, r := range settled {
		for offset := r.First; offset <= r.Last; offset++ {
			w.skip[offset] = true
		}
	}
}

// waitForRoom waits until the window has room for a page and returns how many
// rows it may have; false once ctx is done.
func (l *lane) waitForRoom(ctx context.Context) (rows int, ok bool) {
	for {
		l.courier.mu.Lock()
		rows = windowRows - l.window.rows
		l.window.full = rows <= 0 || l.window.bytes >= windowBytes
		full := l.window.full
		if full {
			l.spill()
		}
		l.courier.mu.Unlock()
		if !full {
			return min(rows, pageRows), true
		}
		select {
		case <-ctx.Done():
			return 0, false
		case <-l.window.room:
		}
	}
}

// waitForLevel waits until all that was read is settled; false once ctx is done.
func (l *lane) waitForLevel(ctx context.Context) bool {
	for {
		l.courier.mu.Lock()
		l.metAll()
		left := len(l.window.pages)
		l.mark() // the settler moves the position
		l.courier.mu.Unlock()
		if left == 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-l.window.room:
		}
	}
}

// add takes a page in.
func (w *window) add(read store.Page) *page {
	if n := len(w.pages); n > 0 && len(read.Envelopes) == 0 {
		w.pages[n-1].End = read.End // an empty one is nothing but a farther end
		return &page{Page: read}
	}
	p := &page{
		Page:    read,
		items:   make([]item, len(read.Envelopes)),
		settled: make([]bool, len(read.Envelopes)),
	}
	for i := range read.Envelopes {
		p.bytes += len(read.Envelopes[i].Payload) + envelopeBytes
	}
	w.pages = append(w.pages, p)
	w.rows += len(p.items)
	w.bytes += p.bytes
	return p
}

// begin forgets everything: the log is another one.
func (w *window) begin(at store.Position) {
	w.pages, w.rows, w.bytes, w.position = nil, 0, 0, at
}

// takeSkip says whether an offset was settled before this lease began.
func (w *window) takeSkip(offset int64) bool {
	if !w.skip[offset] {
		return false
	}
	delete(w.skip, offset)
	return true
}

// advance moves the position behind the settled prefix and lets go of the pages
// that lie before it.
func (w *window) advance() {
	done := 0
	for _, p := range w.pages {
		before := p.prefix
		for p.prefix < len(p.settled) && p.settled[p.prefix] {
			p.prefix++
		}
		if p.prefix < len(p.settled) {
			if p.prefix > before {
				w.position = p.After(p.prefix - 1)
			}
			break
		}
		w.position = p.End
		w.rows -= len(p.items)
		w.bytes -= p.bytes
		done++
	}
	if done == 0 {
		return
	}
	w.pages = slices.Delete(w.pages, 0, done)
	w.look()
}

// look has the reader look whether there is room.
func (w *window) look() {
	select {
	case w.room <- struct{}{}:
	default:
	}
}

// settledAhead lists the offsets that are settled behind the position, ascending.
func (w *window) settledAhead() []store.OffsetRange {
	var ahead []int64
	for offset := range w.skip {
		ahead = append(ahead, offset)
	}
	for _, p := range w.pages {
		for i := p.prefix; i < len(p.settled); i++ {
			if p.settled[i] {
				ahead = append(ahead, p.Envelopes[i].Offset)
			}
		}
	}
	slices.Sort(ahead)
	return store.OffsetRanges(ahead...)
}
