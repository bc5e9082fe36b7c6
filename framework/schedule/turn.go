package schedule

import (
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// grace is how late a tick may be before Skip passes over it, and before another process
// takes over a schedule whose own processes do not make it.
const grace = time.Minute

// mostBack is how far the database's clock may have been set back, as by a failover, for a
// schedule to wait until it is there again and make each tick once. After a greater jump the
// schedule begins from now: a clock that once was a year ahead would have it wait a year.
const mostBack = time.Hour

// turn is what is to be done about a schedule.
type turn struct {
	// wait is how long there is nothing to do.
	wait time.Duration
	// from is the row as it was read, to as it is to be.
	from, to store.Schedule
	// tick is to be made; zero for none.
	tick time.Time
	// setBack says that the clock was far ahead when the row was written.
	setBack bool
}

// turn decides by a row, whose reading says what time it is.
func (j *job) turn(row store.Schedule) turn {
	t := turn{from: row, to: row}
	spec, missed := j.When.String(), string(j.Missed)
	late := row.ReadAt.Sub(row.NextTick)
	switch {
	case row.Spec != spec && (!j.met || row.Spec == "" || late > grace || !row.RequestedAt.IsZero() && row.ReadAt.Sub(row.RequestedAt) > grace):
		t.to.Spec, t.to.Missed, t.to.NextTick = spec, missed, j.When.Next(row.ReadAt)
	case row.Spec != spec:
		t.wait = poll // it is of others
	case !j.met && row.Missed != missed:
		t.to.Missed = missed
	case !row.RequestedAt.IsZero():
		t.tick, t.to.RequestedAt = row.RequestedAt, time.Time{}
	case late < -mostBack && row.NextTick.After(j.When.Next(row.ReadAt.Add(mostBack))): // which was made or passed over
		t.to.NextTick, t.setBack = j.When.Next(row.ReadAt), true
	case late < 0:
		t.wait = -late
	default:
		last := row.NextTick
		if row.Paused || j.Missed != All {
			last = j.When.latest(row.NextTick, row.ReadAt)
		}
		t.to.NextTick = j.When.Next(last)
		if !row.Paused && (j.Missed != Skip || row.ReadAt.Sub(last) <= grace) {
			t.tick = last
		}
	}
	if !t.tick.IsZero() {
		t.to.LastTick = t.tick
	}
	j.met = j.met || row.Spec == spec && row.Missed == missed
	return t
}

// passes reports whether the turn passes over ticks that a person expects.
func (t *turn) passes() bool {
	return t.from.Spec == t.to.Spec && !t.from.Paused && !t.to.NextTick.Equal(t.from.NextTick) && !t.tick.Equal(t.from.NextTick)
}
