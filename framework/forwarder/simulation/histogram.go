package simulation

import (
	"math"
	"time"
)

// histogram counts durations, with an error of at most 2 %.
type histogram struct {
	counts [1024]int64
	all    int64
}

// perDoubling is the number of buckets between a duration and twice the duration.
const perDoubling = 24

func (h *histogram) note(d time.Duration) {
	bucket := 0
	if d > time.Microsecond {
		bucket = min(int(perDoubling*math.Log2(float64(d)/float64(time.Microsecond)))+1, len(h.counts)-1)
	}
	h.counts[bucket]++
	h.all++
}

func (h *histogram) add(o *histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.all += o.all
}

// quantile returns the duration that the given share of all does not exceed; 0 if there are none.
func (h *histogram) quantile(share float64) time.Duration {
	left := int64(math.Ceil(share * float64(h.all)))
	if left <= 0 {
		return 0
	}
	for i, n := range h.counts {
		if left -= n; left <= 0 {
			return time.Duration(math.Exp2((float64(i)-0.5)/perDoubling) * float64(time.Microsecond))
		}
	}
	return math.MaxInt64
}
