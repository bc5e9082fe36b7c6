package history

import (
	"maps"
	"time"

	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/store"
)

const (
	// Points is how many points the last hour has.
	Points = 120
	// step is the time between two of them.
	step = time.Hour / Points
)

// Point is a part of the last hour.
type Point struct {
	// Delivered, Failed and Dead were counted in it.
	Delivered, Failed, Dead int64
	// Lag is the longest that was seen in it.
	Lag time.Duration
}

// series is a ring of points.
type series [Points]struct {
	Point
	number int64 // of steps since 1970; another one than expected: the place is free
}

// at is the point of a time.
func (s *series) at(t time.Time) *Point {
	number := t.UnixNano() / int64(step)
	place := &s[number%Points]
	if place.number != number {
		place.Point, place.number = Point{}, number
	}
	return &place.Point
}

// Hour is the last hour of a sink, the oldest point first: nothing of what was not seen.
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

// source is a forwarder's counts for a sink. The owner is "" for this process's forwarder,
// which is asked itself: it has counts before its first heartbeat, and of each sink.
type source struct{ owner, sink string }

// done is what a forwarder has counted in its life.
type done struct{ delivered, failed, dead int64 }

// since is what was counted since an earlier time: all of it if counting began again.
func (d done) since(before done) done {
	if d.delivered < before.delivered || d.failed < before.failed || d.dead < before.dead {
		return d
	}
	return done{d.delivered - before.delivered, d.failed - before.failed, d.dead - before.dead}
}

// count adds a look to the series. A forwarder that is new counts from then on. The
// caller holds mu.
func (h *History) count(t *target.Target, l *Look) {
	l.Sinks = make(map[string]store.SinkRunning)
	told := make(map[source]done)
	for _, m := range l.Membership.Members {
		if t.Forwarder != nil && m.Owner == t.Forwarder.OwnerIn(t.Database) {
			continue
		}
		for _, s := range m.Running.Sinks {
			told[source{m.Owner, s.Sink}] = done{s.Delivered, s.Failed, s.Dead}
		}
	}
	for _, s := range l.Membership.Sinks() {
		l.Sinks[s.Sink] = s
	}
	h.countOwn(t, l, told)
	for from, now := range told {
		if before, known := h.told[from]; known {
			more, p := now.since(before), h.point(from.sink, l.At)
			p.Delivered += more.delivered
			p.Failed += more.failed
			p.Dead += more.dead
		}
	}
	h.told = told
	for _, s := range l.Sample.Sinks {
		p := h.point(s.Sink, l.At)
		p.Lag = max(p.Lag, s.Lag)
	}
}

// countOwn adds this process's forwarder, and the sinks of it that heartbeats do not name.
func (h *History) countOwn(t *target.Target, l *Look, told map[source]done) {
	if t.Forwarder == nil {
		return
	}
	named := l.Sinks
	l.Sinks = make(map[string]store.SinkRunning, len(named))
	for _, s := range t.Forwarder.StatsIn(t.Database) {
		told[source{"", s.Sink}] = done{s.Delivered, s.Failed, s.Dead}
		l.Sinks[s.Sink] = store.SinkRunning{Sink: s.Sink, Delivered: s.Delivered, Failed: s.Failed, Dead: s.Dead, InFlight: s.InFlight, Pending: s.Pending}
	}
	for _, f := range t.Forwarder.Figures().Sinks {
		s := l.Sinks[f.Sink]
		s.Threshold, s.BreakerOpen = f.Threshold, f.BreakerOpen
		l.Sinks[f.Sink] = s
	}
	maps.Copy(l.Sinks, named)
}

func (h *History) point(sink string, at time.Time) *Point {
	s := h.series[sink]
	if s == nil {
		s = new(series)
		h.series[sink] = s
	}
	return s.at(at)
}
