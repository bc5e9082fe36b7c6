// Package durations computes percentiles of how long things took.
package durations

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Histogram counts durations in microseconds up to an hour with three digits. It
// takes the same memory however many they are, and is safe for concurrent use.
type Histogram struct {
	mu   sync.Mutex
	data *hdrhistogram.Histogram
}

// New is an empty histogram.
func New() *Histogram {
	return &Histogram{data: hdrhistogram.New(1, time.Hour.Microseconds(), 3)}
}

// Record counts a duration; one above an hour counts as an hour, one below 0 as 0.
func (h *Histogram) Record(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.data.RecordValue(min(max(d, 0).Microseconds(), h.data.HighestTrackableValue()))
}

// Percentile is in milliseconds; 100 is the longest. It is 0 where nothing was
// recorded.
func (h *Histogram) Percentile(p float64) float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return float64(h.data.ValueAtPercentile(p)) / 1000
}

// Reset forgets everything.
func (h *Histogram) Reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.data.Reset()
}
