package dispatch

import "time"

// alarm calls a function at the earliest of the times that were set. The dispatcher's mutex guards it; the
// function calls rang first.
type alarm struct {
	timer *time.Timer
	at    time.Time // zero: never
}

func newAlarm(ring func()) alarm {
	a := alarm{timer: time.AfterFunc(time.Hour, ring)}
	a.timer.Stop()
	return a
}

func (a *alarm) set(at time.Time) {
	if a.at.IsZero() || at.Before(a.at) {
		a.at = at
		a.timer.Reset(max(0, time.Until(at)))
	}
}

// rang records that the alarm has called its function.
func (a *alarm) rang() { a.at = time.Time{} }
