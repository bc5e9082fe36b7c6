package process

import (
	"errors"
	"sync"
)

// Causes of unavailable errors.
var (
	// ErrEnded means that the program ended by itself, or that another process killed it. It
	// is restarted.
	ErrEnded = errors.New("the program ended")
	// ErrProtocol means that the program wrote something to stdout that is not an answer, or
	// did not say hello. It is stopped and restarted.
	ErrProtocol = errors.New("the program broke the protocol")
	// ErrStalled means that the program has neither read from stdin nor answered for the
	// whole timeout of a delivery. It is stopped and restarted.
	ErrStalled = errors.New("the program neither reads nor answers")
	// ErrNoCollections means that the sink has the setting collect, and the program does not say
	// in its hello that it takes collections.
	ErrNoCollections = errors.New(`the program takes no collections: its hello lacks "collections": true, and the sink has the setting collect`)
)

// Causes of errors of a single delivery.
var (
	// ErrAnswer means that the answer names its delivery but is otherwise invalid. The error
	// is transient.
	ErrAnswer = errors.New("the program's answer cannot be understood")
	// ErrTooLong means that the delivery's line would be longer than max_line_bytes. The
	// error is invalid.
	ErrTooLong = errors.New("the notification is too long for the program")
)

// errReason is the cause of an error for which the program gives a reason. The reason may repeat the
// notification, so it is the answer: see [sinks.WithAnswer].
var errReason = errors.New("the program's reason")

var (
	errNotOpen = errors.New("the sink is not open")
	errClosed  = errors.New("the sink is closed")

	// errHungUp means that the program closed a pipe. Usually the process ends soon after.
	errHungUp = errors.New("closed its side")
)

// crashesToBlame is how many programs in a row must end with the same single delivery in
// flight before the delivery is blamed.
const crashesToBlame = 3

// soleCrashes finds a delivery that crashes the program. While a sink is unavailable, the
// engine tries one delivery at a time without using up attempts. A delivery that crashes the
// program would then block all others forever. The zero value is ready to use.
type soleCrashes struct {
	mu    sync.Mutex
	id    string // the notification of the last crash
	count int    // its crashes in a row
}

// blame records that the program ended with only this notification in flight, and reports
// whether that happened crashesToBlame times in a row.
func (s *soleCrashes) blame(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id != id {
		s.id, s.count = id, 0
	}
	s.count++
	if s.count < crashesToBlame {
		return false
	}
	s.count = 0
	return true
}
