package receiver

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-go/waybill/benchmarks/workload"
)

// Verdict is what a receiver found once a run was over.
type Verdict struct {
	Distinct int // different orders that arrived
	Repeats  int // arrivals of an order that had arrived before
	Foreign  int // arrivals that are no order of the run
	Swapped  int // first arrivals behind a later order of their key, unless both were made at the same time
}

// Tally notes which orders arrived, how often, in which order and when. Its methods
// may be called in parallel.
type Tally struct {
	seen    []atomic.Uint32 // a bit for each order
	arrived []atomic.Int64  // nanoseconds since began, if times are kept
	last    [workload.Keys]atomic.Int64
	began   time.Time
	made    *Made // nil if no two orders of a key are made at the same time

	distinct countdown
	repeats  atomic.Int64
	foreign  atomic.Int64
	swapped  atomic.Int64
}

// NewTally is for orders 0 up to capacity.
func NewTally(capacity int) *Tally {
	return &Tally{seen: make([]atomic.Uint32, (capacity+31)/32), began: time.Now(), distinct: newCountdown()}
}

// KeepTimes makes Arrived tell.
func (t *Tally) KeepTimes() { t.arrived = make([]atomic.Int64, 32*len(t.seen)) }

// Take notes one arrival.
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

// noteOrder keeps the highest order of each key, plus 1.
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

// Arrived returns when an order arrived first.
func (t *Tally) Arrived(number int) (at time.Time, ok bool) {
	since := t.arrived[number].Load()
	return t.began.Add(time.Duration(since)), since != 0
}

// Verdict may be asked at any time.
func (t *Tally) Verdict() Verdict {
	return Verdict{
		Distinct: int(t.distinct.n.Load()), Repeats: int(t.repeats.Load()),
		Foreign: int(t.foreign.Load()), Swapped: int(t.swapped.Load()),
	}
}

// countdown reports when so many have come.
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
	c.add(0) // they may have come already
	return c.reached
}
