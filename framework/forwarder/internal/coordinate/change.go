package coordinate

import "time"

// change is a request to replace a sink.
type change struct {
	sink string
	next *Sink // nil: the sink is removed
	done chan struct{}
}

// Change replaces a sink while the coordinator runs, or removes it if next is nil: its lanes are
// released, and leased again for the new one. Other sinks continue. It returns when all work with
// the old one has ended, or when the coordinator has stopped. It may be called at any time, but
// only once at a time for each sink.
func (k *Coordinator) Change(sink string, next *Sink) {
	c := change{sink, next, make(chan struct{})}
	select {
	case k.changes <- c:
	case <-k.over:
		return
	}
	select {
	case <-c.done:
	case <-k.over:
	}
}

func (k *Coordinator) isChanging(sink string) bool {
	_, ok := k.changing[sink]
	return ok
}

// apply releases the lanes of changing sinks, and replaces those sinks that have none left.
func (k *Coordinator) apply() {
	for sink, c := range k.changing {
		if k.endWork(sink) {
			continue
		}
		if c.next == nil {
			delete(k.Sinks, sink)
			delete(k.uncut, sink)
			delete(k.paused, sink)
		} else {
			k.Sinks[sink] = *c.next
			k.uncut[sink] = true
		}
		delete(k.changing, sink)
		close(c.done)
		k.heartbeat = time.Time{} // send one at the next look
		k.Nudge()
	}
}

// endWork ends the work on a sink, and reports whether some has not ended yet.
func (k *Coordinator) endWork(sink string) (busy bool) {
	if cancel := k.cutting[sink]; cancel != nil {
		cancel()
		busy = true
	}
	for id, h := range k.held {
		if id.sink != sink {
			continue
		}
		busy = true
		if !h.leaving {
			h.leave()
		}
	}
	return busy
}
