package postgres

import "time"

// SetListening has the store notice a silent listening connection sooner.
func (s *Store) SetListening(heartbeat, silence time.Duration) {
	s.listening.heartbeat, s.listening.silence = heartbeat, silence
}
