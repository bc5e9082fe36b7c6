package forwarder

import (
	"math"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// tally makes totals of a forwarder's life of what its dispatchers count, and their rate. A
// reload replaces dispatchers, and what counts anew would be taken for less. It is not safe for
// concurrent use.
type tally struct {
	before map[string]done // by dispatchers that were replaced
	told   map[string]done // the last totals: while a dispatcher is replaced they stand still
	marks  []mark          // of the last minute, and the last one before, oldest first
}

// done is what was done for a sink.
type done struct{ delivered, failed, dead int64 }

// mark is what had been delivered to each sink at a time.
type mark struct {
	at        time.Time
	delivered map[string]int64
}

// Bounds of the marks: what the rate is over, and how far they are apart at least.
const (
	rateTime  = time.Minute
	markTime  = 5 * time.Second
	rateDigit = 100 // PerSecond has two decimals
)

// ended takes note of what a dispatcher did that has ended.
func (t *tally) ended(s Stats) {
	if t.before == nil {
		t.before = make(map[string]done)
	}
	b := t.before[s.Sink]
	t.before[s.Sink] = done{b.delivered + s.Delivered, b.failed + s.Failed, b.dead + s.Dead}
}

// count makes totals of the figures of the dispatchers that work now, in place, and adds the rate.
func (t *tally) count(sinks []store.SinkRunning, now time.Time) []store.SinkRunning {
	told, delivered := make(map[string]done, len(sinks)), make(map[string]int64, len(sinks))
	for i := range sinks {
		s := &sinks[i]
		before, last := t.before[s.Sink], t.told[s.Sink]
		s.Delivered = max(last.delivered, before.delivered+s.Delivered)
		s.Failed = max(last.failed, before.failed+s.Failed)
		s.Dead = max(last.dead, before.dead+s.Dead)
		told[s.Sink], delivered[s.Sink] = done{s.Delivered, s.Failed, s.Dead}, s.Delivered
	}
	t.told = told
	for len(t.marks) > 1 && now.Sub(t.marks[1].at) >= rateTime {
		t.marks = t.marks[1:]
	}
	if len(t.marks) > 0 {
		first := t.marks[0]
		if passed := now.Sub(first.at).Seconds(); passed > 0 {
			for i := range sinks {
				from, known := first.delivered[sinks[i].Sink]
				if !known {
					from = t.before[sinks[i].Sink].delivered // a sink that came, or came again
				}
				rate := float64(sinks[i].Delivered-from) / passed
				sinks[i].PerSecond = math.Round(rate*rateDigit) / rateDigit
			}
		}
	}
	if n := len(t.marks); n == 0 || now.Sub(t.marks[n-1].at) >= markTime {
		t.marks = append(t.marks, mark{now, delivered})
	}
	return sinks
}
