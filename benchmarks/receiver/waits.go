package receiver

import (
	"sync"
	"time"

	"github.com/waybill-go/waybill/benchmarks/durations"
)

// Waits measures the time from the commit of each notification to its arrival. It keeps only what is in
// flight. It is safe for concurrent use.
type Waits struct {
	mu     sync.Mutex
	from   int               // the first number that counts
	open   map[int]time.Time // by number: committed and not arrived, or the other way round
	result *durations.Histogram
}

// NewWaits returns a Waits for the notifications with the numbers after and including from.
func NewWaits(from int) *Waits {
	return &Waits{from: from, open: make(map[int]time.Time), result: durations.New()}
}

// Committed records when the publisher knew of the commit of a notification. If it had arrived before,
// the time counts as 0.
func (w *Waits) Committed(n int, at time.Time) { w.note(n, at, 1) }

// Arrived records the first arrival of a notification.
func (w *Waits) Arrived(n int, at time.Time) { w.note(n, at, -1) }

// Restart discards everything and begins with the notification of this number.
func (w *Waits) Restart(from int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.from = from
	clear(w.open)
	w.result.Reset()
}

// Percentile returns a percentile of the times in milliseconds; 100 is the maximum.
func (w *Waits) Percentile(p float64) float64 { return w.result.Percentile(p) }

func (w *Waits) note(n int, at time.Time, sign time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n < w.from {
		return
	}
	other, some := w.open[n]
	if !some {
		w.open[n] = at
		return
	}
	delete(w.open, n)
	w.result.Record(sign * other.Sub(at))
}
