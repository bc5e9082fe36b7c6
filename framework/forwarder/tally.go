package forwarder

import (
	"math"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// tally adds up what all dispatchers of a sink have counted during the forwarder's life, and
// computes the rate. A reload replaces a dispatcher with one that counts from 0. It is not
// safe for concurrent use.
type tally struct {
	before   map[string]done // totals of replaced dispatchers
	reported map[string]done // last reported totals; totals never go back while a dispatcher is replaced
	marks    []mark          // the last minute's and one older, oldest first
	hours    map[string]*hour
}

// hour is what was done for a sink in spans of store.HourSpan, by the number of the span since 1970.
type hour [store.HourSpans]struct {
	number int64
	done   store.Done
}

// add adds what was done since the last heartbeat, and returns the last hour.
func (h *hour) add(now time.Time, delivered, failed int64) (last []store.Done) {
	number := now.UnixNano() / int64(store.HourSpan)
	p := &h[number%store.HourSpans]
	if p.number != number {
		p.number, p.done = number, store.Done{}
	}
	p.done[0] += delivered
	p.done[1] += failed
	for i := range int64(store.HourSpans) {
		if p := h[(number-i)%store.HourSpans]; p.number == number-i && p.done != (store.Done{}) {
			last = append(last, make([]store.Done, int(i)-len(last))...)
			last = append(last, p.done)
		}
	}
	return last
}

// done is what was done for a sink.
type done struct{ delivered, failed, dead int64 }

// mark is how much had been delivered to each sink at a time.
type mark struct {
	at        time.Time
	delivered map[string]int64
}

// rateTime is the period of the rate, and markTime the least distance of two marks.
const (
	rateTime  = time.Minute
	markTime  = 5 * time.Second
	rateDigit = 100 // PerSecond has two decimals
)

// ended adds the counts of a dispatcher that has ended.
func (t *tally) ended(s Stats) {
	if t.before == nil {
		t.before = make(map[string]done)
	}
	b := t.before[s.Sink]
	t.before[s.Sink] = done{b.delivered + s.Delivered, b.failed + s.Failed, b.dead + s.Dead}
}

// count replaces the figures of the present dispatchers by totals, and sets the rate.
func (t *tally) count(sinks []store.SinkRunning, now time.Time) []store.SinkRunning {
	reported, delivered := make(map[string]done, len(sinks)), make(map[string]int64, len(sinks))
	if t.hours == nil {
		t.hours = make(map[string]*hour)
	}
	for i := range sinks {
		s := &sinks[i]
		before := t.before[s.Sink]
		last, known := t.reported[s.Sink]
		s.Delivered = max(last.delivered, before.delivered+s.Delivered)
		s.Failed = max(last.failed, before.failed+s.Failed)
		s.Dead = max(last.dead, before.dead+s.Dead)
		if t.hours[s.Sink] == nil {
			t.hours[s.Sink] = new(hour)
		}
		if !known {
			last = before // a sink that was added again
		}
		s.Hour = t.hours[s.Sink].add(now, s.Delivered-last.delivered, s.Failed+s.Dead-last.failed-last.dead)
		reported[s.Sink], delivered[s.Sink] = done{s.Delivered, s.Failed, s.Dead}, s.Delivered
	}
	t.reported = reported
	for len(t.marks) > 1 && now.Sub(t.marks[1].at) >= rateTime {
		t.marks = t.marks[1:]
	}
	if len(t.marks) > 0 {
		first := t.marks[0]
		if passed := now.Sub(first.at).Seconds(); passed > 0 {
			for i := range sinks {
				from, known := first.delivered[sinks[i].Sink]
				if !known {
					from = t.before[sinks[i].Sink].delivered // a sink that was added since, or added again
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
