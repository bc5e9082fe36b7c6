package history

import (
	"maps"
	"time"

	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/store"
)

const (
	// Points is the number of points of the last hour.
	Points = 120
	// step is the time that a point covers.
	step = time.Hour / Points
)

// Point has the figures of one step of the last hour.
type Point struct {
	// Delivered, Failed and Dead count deliveries and failures.
	Delivered, Failed, Dead int64
	// Lag is the maximum lag.
	Lag time.Duration
}

// series is a ring of points.
type series [Points]struct {
	Point
	number int64 // the number of the step since 1970; the point is outdated if it is not as expected
}

// at returns the point of a time.
func (s *series) at(t time.Time) *Point {
	number := t.UnixNano() / int64(step)
	place := &s[number%Points]
	if place.number != number {
		place.Point, place.number = Point{}, number
	}
	return &place.Point
}

// Hour returns the last hour of a sink, the oldest point first. Points without a sample are zero.
func (h *History) Hour(sink string) (points [Points]Point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.series[sink]
	if s == nil {
		return points
	}
	last := time.Now().UnixNano() / int64(step)
	for i := range points {
		number := last - Points + 1 + int64(i)
		if place := &s[number%Points]; place.number == number {
			points[i] = place.Point
		}
	}
	return points
}

// source is a forwarder and a sink. The owner is "" for the forwarder of this process: its counts
// do not come from heartbeats, so they include all sinks and the time before its first heartbeat.
type source struct{ owner, sink string }

// counts are a forwarder's counts for a sink since its start.
type counts struct{ delivered, failed, dead int64 }

// since returns the difference to earlier counts, or all counts if the forwarder has restarted.
func (c counts) since(before counts) counts {
	if c.delivered < before.delivered || c.failed < before.failed || c.dead < before.dead {
		return c
	}
	return counts{c.delivered - before.delivered, c.failed - before.failed, c.dead - before.dead}
}

// count adds a snapshot to the series. The first counts of a forwarder add nothing: it is not known
// when it counted them. The caller holds mu.
func (h *History) count(t *target.Target, s *Snapshot) {
	s.Sinks = make(map[string]store.SinkRunning)
	reported := make(map[source]counts)
	for _, m := range s.Membership.Members {
		if t.Forwarder != nil && m.Owner == t.Forwarder.OwnerIn(t.Database) {
			continue
		}
		for _, r := range m.Running.Sinks {
			reported[source{m.Owner, r.Sink}] = counts{r.Delivered, r.Failed, r.Dead}
		}
	}
	for _, r := range s.Membership.Sinks() {
		s.Sinks[r.Sink] = r
	}
	if h.reported == nil {
		h.recall(s)
	}
	h.countOwn(t, s, reported)
	for from, now := range reported {
		if before, known := h.reported[from]; known {
			more, p := now.since(before), h.point(from.sink, s.At)
			p.Delivered += more.delivered
			p.Failed += more.failed
			p.Dead += more.dead
		}
	}
	h.reported = reported
	for _, sink := range s.Sample.Sinks {
		p := h.point(sink.Sink, s.At)
		p.Lag = max(p.Lag, sink.Lag)
	}
}

// recall begins the series with what heartbeats say about the last hour, so that it survives a restart of this process.
// Figures of five minutes are spread evenly over their points.
func (h *History) recall(s *Snapshot) {
	last := make(map[string]store.Member) // by name: one that has left and is back counts once
	for _, m := range append(s.departed, s.Membership.Members...) {
		last[m.Owner] = m
	}
	for _, m := range last {
		for _, r := range m.Running.Sinks {
			for i, done := range r.Hour {
				begin := m.SeenAt.Truncate(store.HourSpan).Add(-time.Duration(i) * store.HourSpan)
				end := begin.Add(store.HourSpan)
				if i == 0 {
					end = m.SeenAt
				}
				h.spread(r.Sink, begin, end, done)
			}
		}
	}
}

// spread adds what was done in a time to the points of that time that are in the last hour.
func (h *History) spread(sink string, begin, end time.Time, done store.Done) {
	n := max(int64((end.Sub(begin)+step-1)/step), 1)
	for i := range n {
		at := begin.Add(time.Duration(i) * step)
		if time.Since(at) >= time.Hour-step {
			continue
		}
		share := func(total int64) int64 { return total*(i+1)/n - total*i/n }
		p := h.point(sink, at)
		p.Delivered += share(done[0])
		p.Failed += share(done[1])
	}
}

// countOwn adds the counts of this process's forwarder, including those of sinks that no heartbeat
// names.
func (h *History) countOwn(t *target.Target, s *Snapshot, reported map[source]counts) {
	if t.Forwarder == nil {
		return
	}
	named := s.Sinks
	s.Sinks = make(map[string]store.SinkRunning, len(named))
	for _, own := range t.Forwarder.StatsIn(t.Database) {
		reported[source{"", own.Sink}] = counts{own.Delivered, own.Failed, own.Dead}
		s.Sinks[own.Sink] = store.SinkRunning{Sink: own.Sink, Delivered: own.Delivered, Failed: own.Failed, Dead: own.Dead, InFlight: own.InFlight, Pending: own.Pending}
	}
	for _, f := range t.Forwarder.Figures().Sinks {
		r := s.Sinks[f.Sink]
		r.Threshold, r.BreakerOpen = f.Threshold, f.BreakerOpen
		s.Sinks[f.Sink] = r
	}
	maps.Copy(s.Sinks, named)
}

func (h *History) point(sink string, at time.Time) *Point {
	s := h.series[sink]
	if s == nil {
		s = new(series)
		h.series[sink] = s
	}
	return s.at(at)
}
