// Package window computes how far a lane is settled: the position up to which everything is
// settled, and the offsets that are settled ahead of it.
//
// It is pure: it uses no lock, clock or database. The checkpointer of a lane owns it.
package window

import (
	"cmp"
	"slices"

	"github.com/waybill-go/waybill/framework/store"
)

// Window holds the pages of a lane that are not completely settled. The settled prefix is
// removed and moves the position. A page after the first unsettled row that is completely
// settled releases its envelopes and is remembered by its offsets, so a hanging delivery only
// keeps its own page in memory.
type Window struct {
	position store.Position // nil until the first page is added
	pages    []*Page
	before   []store.OffsetRange // settled before the lease began; nil once the lane has been read beyond them
	through  int64               // the largest offset of the rows before the position
}

// Page is a page of the log in a window.
type Page struct {
	rows    store.Page // without envelopes once all of them are settled and written
	settled []bool
	prefix  int // rows[:prefix] are settled and before the position
	left    int // number of unsettled rows
	last    int64
	// before are offsets up to the end of the page that were settled before the lease began and are in no page: the
	// sink does not take their types any more, and may again before the position has passed them.
	before []store.OffsetRange
	// ranges are the offsets of a page that is completely settled and written.
	ranges []store.OffsetRange
}

// New returns the window of a lane. before are the offsets that were settled ahead of its
// position under earlier leases.
func New(before []store.OffsetRange) *Window { return &Window{before: before} }

// NewPage prepares a page for Add.
func NewPage(read store.Page) *Page {
	n := len(read.Envelopes)
	p := &Page{rows: read, settled: make([]bool, n), left: n}
	for i := range read.Envelopes {
		p.last = max(p.last, read.Envelopes[i].Offset)
	}
	return p
}

// Empty reports whether the page has no rows.
func (p *Page) Empty() bool { return len(p.settled) == 0 }

// Extend moves the end of a page.
func (p *Page) Extend(end store.Position) { p.rows.End = end }

// Add adds the next page. An empty page only moves the end of the one before it.
func (w *Window) Add(p *Page) {
	if w.position == nil {
		w.position = p.rows.Start
	}
	if n := len(w.pages); n > 0 && p.Empty() {
		w.pages[n-1].rows.End = p.rows.End
		return
	}
	w.pages = append(w.pages, p)
}

// Restart forgets everything and begins another log at a position.
func (w *Window) Restart(at store.Position) { *w = Window{position: at} }

// Passed records that the lane has been read beyond all offsets that were settled before the lease began.
func (w *Window) Passed() {
	if n := len(w.pages); n > 0 && w.before != nil { // otherwise it is recorded already
		if last := w.pages[n-1]; last.ranges != nil {
			last.ranges = normal(append(last.ranges, w.unread()...))
		} else {
			last.before = w.unread()
		}
	}
	w.before = nil
}

// unread returns what was settled before the lease began, is not before the position and is in no page.
func (w *Window) unread() (unread []store.OffsetRange) {
	read, through := make(map[int64]bool), w.through
	pages, _ := w.prefix()
	for i, p := range w.pages {
		if i < pages {
			through = max(through, p.last)
		}
		for i := range p.rows.Envelopes {
			read[p.rows.Envelopes[i].Offset] = true
		}
		for _, r := range p.ranges {
			for offset := r.First; offset <= r.Last; offset++ {
				read[offset] = true
			}
		}
	}
	for _, r := range w.before {
		for offset := max(r.First, through+1); offset <= r.Last; offset++ {
			if !read[offset] {
				unread = append(unread, store.OffsetRange{First: offset, Last: offset})
			}
		}
	}
	return normal(unread)
}

// Settle settles a row of a page. Each row is settled once.
func (p *Page) Settle(i int) {
	p.settled[i] = true
	p.left--
}

// Unsettle undoes Settle. It must be called before Advance.
func (p *Page) Unsettle(i int) {
	p.settled[i] = false
	p.left++
}

// prefix returns how many pages are completely settled, and how many rows of the next one.
func (w *Window) prefix() (pages, rows int) {
	for _, p := range w.pages {
		if p.left > 0 {
			rows = p.prefix
			for p.settled[rows] {
				rows++
			}
			return pages, rows
		}
		pages++
	}
	return pages, 0
}

// Position returns the position after the settled prefix; nil before the first page.
func (w *Window) Position() store.Position {
	pages, rows := w.prefix()
	switch {
	case pages < len(w.pages) && rows > w.pages[pages].prefix:
		return w.pages[pages].rows.After(rows - 1)
	case pages > 0:
		return w.pages[pages-1].rows.End
	}
	return w.position
}

// Ahead returns the offsets that are settled ahead of the position, ascending.
func (w *Window) Ahead() []store.OffsetRange { return w.ahead(slices.Clone(w.before)) }

// AheadRead is Ahead once the lane has been read beyond what was settled before the lease began, and all of that is
// settled in its pages.
func (w *Window) AheadRead() []store.OffsetRange {
	if pages, _ := w.prefix(); pages == len(w.pages) {
		return nil // the position is where the lane has been read
	}
	return w.ahead(w.unread())
}

func (w *Window) ahead(ahead []store.OffsetRange) []store.OffsetRange {
	pages, from := w.prefix()
	for _, p := range w.pages[pages:] {
		ahead = p.appendSettled(ahead, from)
		from = 0
	}
	return normal(ahead)
}

// appendSettled appends the settled offsets from a row on.
func (p *Page) appendSettled(to []store.OffsetRange, from int) []store.OffsetRange {
	if p.ranges != nil {
		return append(to, p.ranges...)
	}
	to = append(to, p.before...)
	for i := from; i < len(p.settled); i++ {
		if !p.settled[i] {
			continue
		}
		offset := p.rows.Envelopes[i].Offset
		if n := len(to); n > 0 && to[n-1].Last+1 == offset {
			to[n-1].Last = offset
		} else {
			to = append(to, store.OffsetRange{First: offset, Last: offset})
		}
	}
	return to
}

// Advance releases the rows before the position, and the envelopes of completely settled pages,
// after they were written.
func (w *Window) Advance() {
	w.position = w.Position()
	pages, rows := w.prefix()
	for _, p := range w.pages[:pages] {
		w.through = max(w.through, p.last)
	}
	w.pages = slices.Delete(w.pages, 0, pages)
	if len(w.pages) == 0 {
		return
	}
	w.pages[0].prefix = rows
	kept := w.pages[:1]
	for _, p := range w.pages[1:] {
		if p.left > 0 {
			kept = append(kept, p)
			continue
		}
		if p.ranges == nil {
			p.ranges = p.appendSettled(nil, 0)
			p.rows = store.Page{End: p.rows.End}
		}
		if last := kept[len(kept)-1]; last.ranges != nil { // merges neighbours
			last.ranges = normal(append(last.ranges, p.ranges...))
			last.rows.End = p.rows.End
			continue
		}
		kept = append(kept, p)
	}
	clear(w.pages[len(kept):])
	w.pages = kept
}

// normal sorts ranges and joins those that touch or overlap.
func normal(ranges []store.OffsetRange) []store.OffsetRange {
	if len(ranges) == 0 {
		return nil
	}
	slices.SortFunc(ranges, func(a, b store.OffsetRange) int { return cmp.Compare(a.First, b.First) })
	joined := ranges[:1]
	for _, r := range ranges[1:] {
		if last := &joined[len(joined)-1]; r.First <= last.Last+1 {
			last.Last = max(last.Last, r.Last)
		} else {
			joined = append(joined, r)
		}
	}
	return joined
}
