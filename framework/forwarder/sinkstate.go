package forwarder

import (
	"maps"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// state is what holds up the sink's deliveries, for people to see. When a breaker
// opened is the keeper's to add.
func (c *courier) state() store.SinkState {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := store.SinkState{BreakerOpen: c.gate.probing}
	if !c.gate.probing && c.gate.reopens.After(time.Now()) {
		s.ThrottledUntil = c.gate.reopens.UTC()
	}
	return s
}

// states are those of the sinks that do not go well. A breaker is open since the
// first look that found it so.
func (k *keeper) states() map[string]store.SinkState {
	states := make(map[string]store.SinkState)
	for name, c := range k.couriers {
		s := c.state()
		if s.BreakerOpen && s.OpenSince.IsZero() {
			if s.OpenSince = k.told[name].OpenSince; s.OpenSince.IsZero() {
				s.OpenSince = time.Now().UTC()
			}
		}
		if s.Holds() {
			states[name] = s
		}
	}
	return states
}

// isNews says whether states are worth telling before the regular time: one that
// begins or ends. A throttling that goes on is told with the next sign of life.
func (k *keeper) isNews(states map[string]store.SinkState) bool {
	return !maps.EqualFunc(k.told, states, func(a, b store.SinkState) bool {
		return a.BreakerOpen == b.BreakerOpen && a.ThrottledUntil.IsZero() == b.ThrottledUntil.IsZero()
	})
}
