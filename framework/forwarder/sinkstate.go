package forwarder

import (
	"maps"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// state is what holds up the sink's deliveries, for people to see.
func (c *courier) state() store.SinkState {
	c.mu.Lock()
	defer c.mu.Unlock()
	var s store.SinkState
	if c.circuit.IsOpen() {
		s.BreakerOpen, s.OpenSince = true, c.circuit.OpenSince().UTC()
		if c.circuit.Cause() != nil {
			s.Cause = textOf(c.circuit.Cause().Error(), maxErrorText)
		}
	}
	if c.circuit.ThrottledUntil().After(time.Now()) {
		s.ThrottledUntil = c.circuit.ThrottledUntil().UTC()
	}
	return s
}

// states are those of the sinks that do not go well.
func (k *keeper) states() map[string]store.SinkState {
	states := make(map[string]store.SinkState)
	for name, c := range k.couriers {
		if s := c.state(); s.Holds() {
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
