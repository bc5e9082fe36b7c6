package receiver

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-go/waybill/benchmarks/workload"
)

// Verdict is what has arrived during a run.
type Verdict struct {
	Distinct int // distinct orders
	Repeats  int // arrivals of an order that had arrived before
	Foreign  int // arrivals that are not orders of the run
	Swapped  int // first arrivals after a later order of their key, unless both were made at the same time
}

// Tally records which orders arrived, how often, in which order and when. It is safe for concurrent
// use.
type Tally struct {
	seen    []atomic.Uint32 // a bit for each order
	arrived []atomic.Int64  // nanoseconds since began, after KeepTimes
	last    [workload.Keys]atomic.Int64
	began   time.Time
	made    *Made // nil if no two orders of a key are made at the same time

	distinct countdown
	repeats  atomic.Int64
	foreign  atomic.Int64
	swapped  atomic.Int64
}

// NewTally returns a tally for orders from 0 to capacity-1.
func NewTally(capacity int) *Tally {
	return &Tally{seen: make([]atomic.Uint32, (capacity+31)/32), began: time.Now(), distinct: newCountdown()}
}

// KeepTimes records the times of arrivals, for Arrived.
func (t *Tally) KeepTimes() { t.arrived = make([]atomic.Int64, 32*len(t.seen)) }

// Take records one arrival.
func (t *Tally) Take(payload []byte) { t.note(workload.Number(payload)) }

func (t *Tally) note(number int, ok bool) {
	if !ok || number/32 >= len(t.seen) {
		t.foreign.Add(1)
		return
	}
	bit := uint32(1) << (number % 32)
	if t.seen[number/32].Or(bit)&bit != 0 {
		t.repeats.Add(1)
		return
	}
	if t.arrived != nil {
		t.arrived[number].Store(int64(time.Since(t.began)))
	}
	t.noteOrder(number)
	t.distinct.add(1)
}

// noteOrder stores the highest order of each key, plus 1.
func (t *Tally) noteOrder(number int) {
	last := &t.last[number%workload.Keys]
	for {
		highest := last.Load()
		if int64(number) < highest {
			// Orders of a key begin in their order, so if this one overlaps with the highest, it does with all
			// in between.
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

// Arrived returns the time of an order's first arrival.
func (t *Tally) Arrived(number int) (at time.Time, ok bool) {
	since := t.arrived[number].Load()
	return t.began.Add(time.Duration(since)), since != 0
}

// Verdict returns what has arrived so far.
func (t *Tally) Verdict() Verdict {
	return Verdict{
		Distinct: int(t.distinct.n.Load()), Repeats: int(t.repeats.Load()),
		Foreign: int(t.foreign.Load()), Swapped: int(t.swapped.Load()),
	}
}

// countdown closes a channel when a number of arrivals is reached.
type countdown struct {
	n, goal *atomic.Int64
	once    *sync.Once
	reached chan struct{}
}

func newCountdown() countdown {
	c := countdown{new(atomic.Int64), new(atomic.Int64), new(sync.Once), make(chan struct{})}
	c.goal.Store(math.MaxInt64)
	return c
}

func (c countdown) add(n int64) {
	if now := c.n.Add(n); now >= c.goal.Load() {
		c.once.Do(func() { close(c.reached) })
	}
}

func (c countdown) expect(n int) <-chan struct{} {
	c.goal.Store(int64(n))
	c.add(0) // the number may be reached already
	return c.reached
}
