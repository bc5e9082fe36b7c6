package schedule

import (
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// grace is how late a tick may be before Skip skips it, and before a process takes over a
// schedule from others that do not make its ticks.
const grace = time.Minute

// mostBack is the largest step back of the database's clock, as after a failover, for which a
// schedule waits until the clock has caught up, so that it makes each tick once. After a larger
// step the schedule begins from now: otherwise a clock that was once a year ahead would stop it
// for a year.
const mostBack = time.Hour

// turn is what to do about a schedule.
type turn struct {
	// wait is how long there is nothing to do.
	wait time.Duration
	// from is the row as read, and to is the row to write.
	from, to store.Schedule
	// tick is the tick to make; zero: none.
	tick time.Time
	// setBack reports that the clock was far ahead when the row was written.
	setBack bool
}

// turn decides from the row what to do. The row also holds the database's time.
func (j *job) turn(row store.Schedule) turn {
	t := turn{from: row, to: row}
	spec, missed := j.When.String(), string(j.Missed)
	late := row.ReadAt.Sub(row.NextTick)
	switch {
	case row.Spec != spec && (!j.met || row.Spec == "" || late > grace || !row.RequestedAt.IsZero() && row.ReadAt.Sub(row.RequestedAt) > grace):
		t.to.Spec, t.to.Missed, t.to.NextTick = spec, missed, j.When.Next(row.ReadAt)
	case row.Spec != spec:
		t.wait = poll // other processes run it
	case !j.met && row.Missed != missed:
		t.to.Missed = missed
	case !row.RequestedAt.IsZero():
		t.tick, t.to.RequestedAt = row.RequestedAt, time.Time{}
	case late < -mostBack && row.NextTick.After(j.When.Next(row.ReadAt.Add(mostBack))): // the clock was set back
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

// passes reports whether the turn skips ticks that people would expect.
func (t *turn) passes() bool {
	return t.from.Spec == t.to.Spec && !t.from.Paused && !t.to.NextTick.Equal(t.from.NextTick) && !t.tick.Equal(t.from.NextTick)
}
