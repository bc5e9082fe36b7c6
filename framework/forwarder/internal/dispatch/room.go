package dispatch

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/budget"
)

// Bounds of what a lane has in memory, whatever the size of the backlog.
const (
	// PageRows is the maximum number of rows of a page.
	PageRows = 2000
	// WindowRows is the maximum number of rows of a lane that are not settled or not written,
	// and so of those that a crash repeats.
	WindowRows = 8 * PageRows

	// leastRows is the least room, in rows, for which a page is read.
	leastRows = PageRows / 4

	windowBytes = 64 << 20 // the last page read may exceed it
	// windowRanges bounds the offset ranges settled ahead of the position: each checkpoint
	// writes all of them.
	windowRanges = WindowRows

	// envelopeBytes is roughly the memory of an item without its payload.
	envelopeBytes = 500
)

// WaitForRoom waits until there is room for a page and returns how many rows it may have; false
// when ctx is done.
func (l *Lane) WaitForRoom(ctx context.Context) (rows int, ok bool) {
	for {
		if rows := l.hasRoom(); rows > 0 {
			return min(rows, PageRows), true
		}
		select {
		case <-ctx.Done():
			return 0, false
		case <-l.room:
		}
	}
}

func (l *Lane) hasRoom() (rows int) {
	d := l.dispatcher
	d.mu.Lock()
	defer d.mu.Unlock()
	rows = WindowRows - l.rows
	waits := l.space.Wait()
	if rows < leastRows || l.crowded() || waits {
		rows = 0
	}
	l.full = rows <= 0
	if l.needsRoom() {
		l.signal() // settled rows take room until they are written
	}
	if l.full && l.gathersTooMuch() {
		l.letAllGo()
	}
	if l.full && !waits {
		l.spill()
	}
	return rows
}

// occupied is what the rows of a lane occupy: those that are not settled or not written.
type occupied struct {
	rows  int
	space *budget.Share // their memory
	ahead int           // number of offset ranges settled ahead of the position
	// settledAhead is the number of rows in these ranges.
	settledAhead int
}

// occupy adds to the rows and bytes in memory.
func (o *occupied) occupy(rows, bytes int) {
	o.rows += rows
	if bytes != 0 {
		o.space.Take(bytes)
	}
}

// crowded reports that the lane must not read, however few rows it has.
func (o *occupied) crowded() bool {
	return o.space.Used() >= windowBytes || o.ahead >= windowRanges
}

// WaitUntilSettled waits until everything that was read is settled and written, and everything
// that the ledger names was met; false when ctx is done.
func (l *Lane) WaitUntilSettled(ctx context.Context) bool {
	patience := time.NewTimer(meetTime)
	defer patience.Stop()
	for patient := true; ; {
		l.dispatcher.mu.Lock()
		l.pass()
		l.letAllGo()
		left := l.rows
		if patient {
			left += len(l.owed)
		}
		l.full = true
		l.signal()
		l.dispatcher.mu.Unlock()
		if left == 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-patience.C:
			patient = false
		case <-l.room:
		}
	}
}

// A key is hot if at least 1/hotShare of the window waits for this key alone. Hot keys are
// spilled only if at least 1/otherShare of the window belongs to other keys.
const (
	hotShare   = 4
	otherShare = 16
)

// spill parks what waits for hot keys, to make room for other keys. It does so only while the
// sink has free capacity, and if there are other keys: a log of few keys is better read slowly
// than copied.
func (l *Lane) spill() {
	d := l.dispatcher
	if d.queue.Len() > 0 || d.breaker.IsOpen() || d.calls >= d.settings.Parallelism.Most() {
		return
	}
	var hot []string
	waiting := 0
	for name, n := range l.keys.Crowded(l.rows / hotShare) {
		hot = append(hot, name)
		waiting += n
	}
	// Rows settled after the first row of the hot keys belong to other keys.
	if span := l.rows + l.settledAhead; span-waiting < span/otherShare {
		return
	}
	for _, name := range hot {
		l.parkWaiting(l.keys.Spill(name))
	}
}
