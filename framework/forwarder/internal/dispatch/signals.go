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
	s.linger.time = Linger
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

// signalSoon is signal after the linger's time.
func (s *signals) signalSoon() {
	if !s.linger.runs {
		s.linger.runs = true
		s.linger.timer.Reset(s.linger.time)
	}
}

// Linger is how long a settled row of the log usually waits for others before it is written. No
// other delivery waits for it; a crash repeats what was delivered within that time.
const Linger = 25 * time.Millisecond

type linger struct {
	timer *time.Timer
	time  time.Duration
	runs  bool
}

// Linger sets how long settled rows of the log wait for others before they are written.
func (l *Lane) Linger(d time.Duration) {
	l.dispatcher.mu.Lock()
	defer l.dispatcher.mu.Unlock()
	l.linger.time = d
}

// needsRoom reports that what is settled is written at once, since the reader waits for its room. If
// checkpoints are costly, it is written only once that makes a quarter of the room.
func (l *Lane) needsRoom() bool {
	return l.full && (l.linger.time <= Linger || len(l.out.Settled) >= l.rows/4)
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
