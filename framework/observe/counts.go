package observe

import (
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// results has the values of the label result. The index is the class of the error, or delivered.
var results = [...]string{
	sinks.ClassTransient:     "transient",
	sinks.ClassThrottled:     "throttled",
	sinks.ClassUnavailable:   "unavailable",
	sinks.ClassPermanent:     "permanent",
	sinks.ClassInvalid:       "invalid",
	sinks.ClassUnknown:       "unknown",
	sinks.ClassCancelled:     "cancelled",
	sinks.ClassCancelled + 1: "delivered",
}

const delivered = sinks.ClassCancelled + 1

// parkedStates are the states of deliveries that an observer sees parked. One that is collecting is a closed
// collection that failed; members are not seen. Samples also have the state settling.
var parkedStates = []store.State{store.StateRetrying, store.StateScheduled, store.StateBlocked, store.StateQuiet, store.StateDead, store.StateCollecting}

// sinkCounts are the totals of one sink. Each sink has its own lock, held for a few additions only.
type sinkCounts struct {
	mu                   sync.Mutex
	duration, lag, batch histogram
	attempts             [len(results)]uint64
	dead                 map[event.DeadReason]uint64
	parked               map[store.State]uint64
}

// totals are the totals that belong to no sink.
type totals struct {
	written, failed, lost, rebased uint64
	rows, partitions               uint64
	wakeups                        map[event.LookCause]uint64
	errors                         map[event.DatabaseOp]uint64
	published                      map[string]uint64 // by type
	checkpoint                     histogram         // durations
	reloadFailed                   bool
}

func newTotals() totals {
	return totals{
		checkpoint: newHistogram(durationBounds), wakeups: make(map[event.LookCause]uint64), errors: make(map[event.DatabaseOp]uint64),
		published: make(map[string]uint64),
	}
}

// The upper bounds of the classic buckets.
var (
	durationBounds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	lagBounds      = []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400}
	batchBounds    = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000}
)

// counts returns the totals of a sink, and creates them if needed.
func (m *Monitor) counts(sink string) *sinkCounts {
	if c := (*m.sinks.Load())[sink]; c != nil {
		return c
	}
	return m.newCounts(sink)
}

// newCounts creates the totals of a sink. It stays a separate function, because it needs
// kilobytes of stack, which would otherwise be added to the stack of each worker of a sink.
//
//go:noinline
func (m *Monitor) newCounts(sink string) *sinkCounts {
	m.addingOne.Lock()
	defer m.addingOne.Unlock()
	all := *m.sinks.Load()
	if c := all[sink]; c != nil {
		return c
	}
	c := &sinkCounts{
		duration: newHistogram(durationBounds), lag: newHistogram(lagBounds), batch: newHistogram(batchBounds),
		dead: make(map[event.DeadReason]uint64), parked: make(map[store.State]uint64),
	}
	more := maps.Clone(all)
	more[sink] = c
	m.sinks.Store(&more)
	return c
}

// figures returns the figures of a target, and adds what it has collected since the last time. That has no events.
func (m *Monitor) figures(t *Target) forwarder.Figures {
	figures := t.Forwarder.Figures()
	m.mu.Lock()
	defer m.mu.Unlock()
	seen, watched := m.seen[t]
	if !watched {
		return figures
	}
	for _, s := range figures.Sinks {
		more := s.Collected.Since(seen[s.Sink]) // it is lower for a moment while a sink is replaced
		seen[s.Sink] = seen[s.Sink].Plus(more)
		if s.Collects || more != (forwarder.Collected{}) {
			m.collected[s.Sink] = m.collected[s.Sink].Plus(more)
		}
	}
	return figures
}

// inSeconds converts a duration to seconds. It is faster than Duration.Seconds.
func inSeconds(d time.Duration) float64 { return float64(d) / float64(time.Second) }

// Observe implements event.Observer: it counts the event.
func (m *Monitor) Observe(e event.Event) {
	switch e := e.(type) {
	case *event.Attempt:
		m.attempt(e)
		return
	case *event.Batch:
		c := m.counts(e.Sink)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.batch.observe(float64(e.Deliveries))
	case *event.Parked:
		c := m.counts(e.Sink)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.parked[e.State]++
		if e.State == store.StateDead {
			c.dead[e.Reason]++
		}
	case *event.Look:
		m.trip.Store(e.Began.Add(e.Duration).UnixNano())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.totals.count(e)
}

// attempt counts one attempt.
func (m *Monitor) attempt(a *event.Attempt) {
	c := m.counts(a.Delivery.Sink)
	if a.Err != nil {
		c.mu.Lock()
		c.attempts[a.Class]++
		c.duration.observe(inSeconds(a.Duration))
		c.mu.Unlock()
		return
	}
	due := a.Delivery.OccurredOn
	if a.Delivery.DeliverAt.After(due) {
		due = a.Delivery.DeliverAt
	}
	lag := a.Began.Sub(due) + a.Duration
	c.mu.Lock()
	c.attempts[delivered]++
	c.duration.observe(inSeconds(a.Duration))
	c.lag.observe(inSeconds(lag))
	c.mu.Unlock()
}

// maxTypes is how many types have their own series; otherType is the label of the others.
const (
	maxTypes  = 100
	otherType = "_other"
)

// Published counts what was published by type, if Config.Types is set. Pass it as
// outbox.Config.Published. It also counts transactions that roll back later.
func (m *Monitor) Published(envelopes []notification.Envelope) {
	if !m.config.Types {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range envelopes {
		m.totals.publish(envelopes[i].Type, 1)
	}
}

// publish adds n to a type, or to _other.
func (t *totals) publish(typ string, n uint64) {
	if _, known := t.published[typ]; !known && len(t.published) >= maxTypes {
		typ = otherType
	}
	t.published[typ] += n
}

// count counts what is not of one sink.
func (t *totals) count(e event.Event) {
	switch e := e.(type) {
	case *event.Checkpoint:
		t.written++
		t.checkpoint.observe(e.Duration.Seconds())
	case *event.LeaseChange:
		if errors.Is(e.Err, store.ErrLeaseLost) || errors.Is(e.Err, store.ErrServerChanged) || errors.Is(e.Err, forwarder.ErrLeaseExpired) {
			t.lost++ // it was not released
		}
	case *event.Look:
		t.wakeups[e.Cause]++
	case *event.DatabaseFailure:
		t.errors[e.Op]++
		if e.Op == event.OpCheckpoint {
			t.failed++
		}
	case *event.Rebase:
		t.rebased++
	case *event.Pruned:
		t.rows += uint64(e.Rows)
		t.partitions += uint64(e.Partitions)
	}
}
