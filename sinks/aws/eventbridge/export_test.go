package eventbridge

import "time"

// Outdate makes what the sink knows of a bus as old as it may be.
func (s *Sink) Outdate(bus string) { s.checked.Store(bus, time.Now().Add(-checkEvery)) }
