package coordinate

import (
	"time"
)

// change is how a sink is to be worked on.
type change struct {
	sink string
	next *Sink // nil: not at all
	done chan struct{}
}

// Change has a sink worked on otherwise while the coordinator runs, or no longer if next is
// nil: its lanes are given back, and taken up again with what is new. Other sinks go on. It
// returns true once nothing that was is under way any more, and false if the
// coordinator has stopped. It may be called at any time, once for a sink at a time.
func (k *Coordinator) Change(sink string, next *Sink) bool {
	c := change{sink, next, make(chan struct{})}
	select {
	case k.changes <- c:
	case <-k.over:
		return false
	}
	select {
	case <-c.done:
		return true
	case <-k.over:
		return false
	}
}

func (k *Coordinator) isChanging(sink string) bool {
	_, ok := k.changing[sink]
	return ok
}

// apply lets go of the lanes of sinks that are to change, and changes those of which none
// is left.
func (k *Coordinator) apply() {
	for sink, c := range k.changing {
		if k.letsGo(sink) {
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
		k.heartbeat = time.Time{} // the others learn of it
		k.Nudge()
	}
}

// letsGo returns whether work on a sink is under way, and ends it.
func (k *Coordinator) letsGo(sink string) (busy bool) {
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
