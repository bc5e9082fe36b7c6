package process

import (
	"errors"
	"sync"
)

// What a delivery that is unavailable wraps.
var (
	// ErrEnded: the program ended by itself, or another process killed it.
	ErrEnded = errors.New("the program ended")
	// ErrProtocol: the program wrote to stdout what is not an answer, or said no
	// hello. It is ended and started again.
	ErrProtocol = errors.New("the program broke the protocol")
	// ErrStalled: for as long as a delivery may take the program read nothing from
	// stdin and answered nothing. It is ended and started again.
	ErrStalled = errors.New("the program neither reads nor answers")
)

// What a delivery that failed alone wraps.
var (
	// ErrAnswer: the answer tells which delivery it is about, and cannot be
	// understood otherwise. Transient.
	ErrAnswer = errors.New("the program's answer cannot be understood")
	// ErrTooLong: the line of a delivery would be longer than max_line_bytes.
	// Permanent.
	ErrTooLong = errors.New("the notification is too long for the program")
)

var (
	errNotOpen = errors.New("the sink is not open")
	errClosed  = errors.New("the sink is closed")

	// errHungUp comes before the news of a process's end: a pipe to it is closed.
	errHungUp = errors.New("closed its side")
)

// lonelyDeaths is how many programs have to die with the same delivery, and
// nothing else, in flight before that delivery is blamed.
const lonelyDeaths = 3

// suspects tells a delivery that kills each program from programs that die for
// other reasons. While a destination is unavailable the engine tries one
// delivery at a time, so the same one comes alone again and again; without an
// attempt spent it would hold up all others forever. The zero value suspects
// no delivery.
type suspects struct {
	mu     sync.Mutex
	id     string
	deaths int
}

// blame notes that a program died with only this notification in flight and
// says whether it is to be taken for the reason.
func (s *suspects) blame(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id != id {
		s.id, s.deaths = id, 0
	}
	s.deaths++
	if s.deaths < lonelyDeaths {
		return false
	}
	s.deaths = 0
	return true
}
