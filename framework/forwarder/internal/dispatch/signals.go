package dispatch

import "time"

// signals wake the goroutines that wait for a lane. Each channel has a capacity of 1.
type signals struct {
	room   chan struct{} // there may be room
	full   bool          // the reader waits for room
	dirty  chan struct{} // there is something to take
	plenty chan struct{} // there is much to take
	linger linger        // signals dirty
}

func newSignals() signals {
	s := signals{room: make(chan struct{}, 1), dirty: make(chan struct{}, 1), plenty: make(chan struct{}, 1)}
	dirty := s.dirty
	s.linger.timer = time.AfterFunc(time.Hour, func() { raise(dirty) })
	s.linger.timer.Stop()
	return s
}

func raise(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// look makes the reader check whether there is room.
func (s *signals) look() { raise(s.room) }

// signal signals that there is something to take.
func (s *signals) signal() { raise(s.dirty) }

// signalSoon is signal after lingerTime.
func (s *signals) signalSoon() {
	if !s.linger.runs {
		s.linger.runs = true
		s.linger.timer.Reset(lingerTime)
	}
}

// lingerTime is how long a settled row of the log waits for others before it is written. No
// other delivery waits for it; a crash repeats what was delivered within that time.
const lingerTime = 25 * time.Millisecond

type linger struct {
	timer *time.Timer
	runs  bool
}

func (l *linger) stop() {
	l.runs = false
	l.timer.Stop()
}

// Dirty signals that there is something to take.
func (l *Lane) Dirty() <-chan struct{} { return l.dirty }

// Plenty signals that there is enough to take for a checkpoint without delay.
func (l *Lane) Plenty() <-chan struct{} { return l.plenty }

// plenty is how many settlements are worth a checkpoint at once.
const plenty = 2000
