package receiver

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/waybill-go/waybill/benchmarks/result"
)

// Tally records which of the notifications with the numbers from 0 on have arrived, how often, and in
// which order. It has pages of bits, made on demand, so it is small: 10 million numbers take 1.25 MB. It
// is safe for concurrent use and takes no locks.
type Tally struct {
	*Counter // of different numbers
	pages    [pages]atomic.Pointer[page]
	repeated atomic.Int64
	unknown  atomic.Int64

	last    []atomic.Int64 // the highest number of each key, plus 1
	made    *Made          // nil if the transactions of a key never overlap
	swapped atomic.Int64
}

const (
	pageSize = 1 << 16
	pages    = 1 << 12
)

type page [pageSize / 64]atomic.Uint64

// NewTally returns an empty tally. If keys is not 0, a number has the key of its remainder, and the tally
// finds numbers that arrive after a higher one of their key. Then made has the times of their
// transactions, unless those of a key never overlap.
func NewTally(keys int, made *Made) *Tally {
	return &Tally{Counter: NewCounter(), last: make([]atomic.Int64, keys), made: made}
}

// Note records an arrival; known is false for what is no notification of the run. It returns true if it
// is the first arrival of this number.
func (t *Tally) Note(number int, known bool) (first bool) {
	if !known || number < 0 || number >= pages*pageSize {
		t.unknown.Add(1)
		return false
	}
	at := &t.pages[number/pageSize]
	p := at.Load()
	if p == nil {
		at.CompareAndSwap(nil, new(page))
		p = at.Load()
	}
	bit := uint64(1) << (number % 64)
	if p[number%pageSize/64].Or(bit)&bit != 0 {
		t.repeated.Add(1)
		return false
	}
	if len(t.last) > 0 {
		t.noteOrder(number)
	}
	t.Add(1)
	return true
}

// noteOrder stores the highest number of each key, plus 1.
func (t *Tally) noteOrder(number int) {
	last := &t.last[number%len(t.last)]
	for {
		highest := last.Load()
		if int64(number) < highest {
			// The transactions of a key begin in the order of their numbers. So one that overlaps with the
			// highest overlaps with all in between.
			if t.made == nil || !t.made.overlapped(number, int(highest-1)) {
				t.swapped.Add(1)
			}
			return
		}
		if last.CompareAndSwap(highest, int64(number)+1) {
			return
		}
	}
}

// Check compares what has arrived with the numbers below expected.
func (t *Tally) Check(expected int) result.Check {
	c := result.Check{
		Expected: int64(expected), Repeated: t.repeated.Load(), Unknown: t.unknown.Load(), OutOfOrder: t.swapped.Load(),
	}
	for n := range expected {
		if p := t.pages[n/pageSize].Load(); p != nil && p[n%pageSize/64].Load()&(1<<(n%64)) != 0 {
			c.Arrived++
		}
	}
	c.Lost = c.Expected - c.Arrived
	c.Unknown += t.Count() - c.Arrived // numbers that were never published
	return c
}

// Counter counts arrivals. It is safe for concurrent use.
type Counter struct {
	n    atomic.Int64
	goal atomic.Pointer[goal]
}

type goal struct {
	n       int64
	once    sync.Once
	reached chan struct{}
}

// NewCounter returns a counter at 0.
func NewCounter() *Counter {
	c := new(Counter)
	c.Expect(math.MaxInt)
	return c
}

// Count returns the number of arrivals.
func (c *Counter) Count() int64 { return c.n.Load() }

// Add adds arrivals.
func (c *Counter) Add(n int64) {
	g := c.goal.Load()
	if c.n.Add(n) >= g.n {
		g.once.Do(func() { close(g.reached) })
	}
}

// Expect returns a channel that is closed when there are n arrivals. It replaces the channel that an
// earlier call has returned.
func (c *Counter) Expect(n int) <-chan struct{} {
	g := &goal{n: int64(n), reached: make(chan struct{})}
	c.goal.Store(g)
	c.Add(0) // the number may be reached already
	return g.reached
}
