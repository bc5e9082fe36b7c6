// Package durations computes percentiles of durations.
package durations

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Histogram counts durations in microseconds, up to an hour, with three significant digits. Its size does
// not depend on their number. It is safe for concurrent use.
type Histogram struct {
	mu   sync.Mutex
	data *hdrhistogram.Histogram
}

// New returns an empty histogram.
func New() *Histogram {
	return &Histogram{data: hdrhistogram.New(1, time.Hour.Microseconds(), 3)}
}

// Record counts a duration. Durations above an hour count as an hour, and those below 0 as 0.
func (h *Histogram) Record(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.data.RecordValue(min(max(d, 0).Microseconds(), h.data.HighestTrackableValue()))
}

// Percentile returns a percentile in milliseconds; 100 is the maximum. It is 0 if nothing was recorded.
func (h *Histogram) Percentile(p float64) float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return float64(h.data.ValueAtPercentile(p)) / 1000
}

// Reset removes all durations.
func (h *Histogram) Reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.data.Reset()
}
