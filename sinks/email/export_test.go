package email

import "time"

// LimitAge changes how old a connection may be.
func LimitAge(s *Sink, age time.Duration) { s.pool.server.maxAge = age }
