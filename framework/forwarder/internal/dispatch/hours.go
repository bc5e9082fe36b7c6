package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
)

// Outside of the hours of a sink, an item whose turn comes is parked as quiet, without spending an attempt, until
// the hours begin. It holds back its key, so the order of the key is kept.
//
// An item for which the condition Unless holds does not wait. Outside of the hours it is loose: it goes as if
// it had no key, since the key may be held until the morning. Where a dead delivery halts its key none is loose: it
// would pass the dead one.

// hours are the hours of a sink. They are safe for concurrent use; nil: there are none.
type hours struct {
	*settings.Timetable
	types *registry.Registry // nil: the types are not known
	log   *slog.Logger

	noZone, noUnless pace.Decades // failures

	mu    sync.Mutex
	zones map[string]*time.Location // by name; nil: there is no such zone
}

// Bounds of the names that hours.zones has: publishers choose them. There are about 600 zones.
const (
	maxZones    = 2000
	maxZoneName = 64
)

// timing is what the hours of a sink mean for one item.
type timing struct {
	of     *hours
	zone   *time.Location
	urgent bool // it does not wait
}

func newHours(s settings.Hours, types *registry.Registry, log *slog.Logger) *hours {
	if !s.On() {
		return nil
	}
	return &hours{Timetable: s.Timetable(), types: types, log: log, zones: make(map[string]*time.Location)}
}

// timing returns the timing for an envelope.
func (h *hours) timing(ctx context.Context, e *notification.Envelope) timing {
	t := timing{of: h}
	if h == nil {
		return t
	}
	if h.Unless != nil {
		var err error
		if t.urgent, err = h.Unless.Holds(ctx, e, h.types); err != nil && ctx.Err() == nil {
			h.fail(&h.noUnless, "unless", e, err)
		}
	}
	if t.zone = h.Zone; t.zone == nil {
		name, err := h.ZoneOf.Of(ctx, e, h.types)
		if t.zone = h.find(name); t.zone == nil {
			if err == nil {
				err = fmt.Errorf("there is no zone %.40q", name)
			}
			if t.zone = time.UTC; ctx.Err() == nil {
				h.fail(&h.noZone, "zone", e, err)
			}
		}
	}
	return t
}

// find returns a zone; nil if there is none with that name.
func (h *hours) find(name string) *time.Location {
	if name == "" || name == "Local" || len(name) > maxZoneName {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	zone, known := h.zones[name]
	if !known {
		if len(h.zones) >= maxZones {
			clear(h.zones)
		}
		zone, _ = time.LoadLocation(name) // nil if it fails
		h.zones[name] = zone
	}
	return zone
}

// fail logs some of the failures of an expression.
func (h *hours) fail(failed *pace.Decades, of string, e *notification.Envelope, err error) {
	if n, logs := failed.Count(); logs {
		h.log.Warn("an expression of hours fails: without a zone a notification waits for the hours of UTC, and if unless fails it waits",
			"expression", of, "type", e.Type, "id", e.ID, "error", err, "count", n)
	}
}

// timings returns the timings of a page's rows; nil if they are as quickly found when they are needed. It uses no lock
// of the dispatcher. Once ctx is done, the result says nothing.
func (d *Dispatcher) timings(ctx context.Context, page store.Page) []timing {
	h := d.hours.Load()
	if h == nil || h.Zone != nil && h.Unless == nil {
		return nil
	}
	timings := make([]timing, len(page.Envelopes))
	for i := range page.Envelopes {
		timings[i] = h.timing(ctx, &page.Envelopes[i])
	}
	return timings
}

// opening returns when a delivery to the zone of an item may begin: now if it may begin now. It looks at the item's
// timing again if the hours have changed.
func (d *Dispatcher) opening(it *item, now time.Time) time.Time {
	h := d.hours.Load()
	if it.timing.of != h {
		it.timing = h.timing(context.Background(), it.Envelope)
		it.timing.urgent = it.timing.urgent && it.unit == nil // its members that are urgent went alone
	}
	if h == nil {
		return now
	}
	return h.Opening(now, it.timing.zone)
}

// waits reports whether an item must wait for the hours, and until when.
func (d *Dispatcher) waits(it *item, now time.Time) (until time.Time, waits bool) {
	until = d.opening(it, now)
	return until, until.After(now) && !it.timing.urgent
}

// isUrgent reports whether an item does not wait for the hours although they have not begun.
func (d *Dispatcher) isUrgent(it *item) bool {
	now := time.Now()
	return d.hours.Load() != nil && d.opening(it, now).After(now) && it.timing.urgent
}

// begins returns when the hours begin for all items of the sink: now if they have begun, or are not the same for all.
func (d *Dispatcher) begins(now time.Time) time.Time {
	if h := d.hours.Load(); h != nil && h.Zone != nil {
		return h.Opening(now, h.Zone)
	}
	return now
}

// loosen reports whether an item is loose, since it does not wait for the hours, and makes it so.
func (d *Dispatcher) loosen(it *item) bool {
	it.loose = it.Key != "" && !it.lane.halt && d.isUrgent(it)
	return it.loose
}

// parkIfQuiet parks an item outside of its hours, with what waits behind it; false if it may go. What is loose among
// those goes.
func (d *Dispatcher) parkIfQuiet(it *item, now time.Time) bool {
	until, waits := d.waits(it, now)
	if !waits {
		return false
	}
	l := it.lane
	d.queue.Done(it)
	d.pending--
	p := it.parked(store.StateQuiet)
	if p.DueAt = until; it.past != nil {
		p.LastError = it.past.lastError
	}
	// The table may have loose ones of the key that wait behind this one.
	ask := it.timing.of.Unless != nil && it.Key != "" && l.keys.Holds(it.Key)
	l.end(it, Settlement{Parked: &p, Ask: ask})
	l.parkWaiting(slices.DeleteFunc(l.takeWaiting(it), func(behind *item) bool {
		if d.loosen(behind) {
			d.offer(behind)
			return true
		}
		return false
	}))
	return true
}

// takeWaiting holds the key of an item that is parked, and returns what waits behind it in memory.
func (l *Lane) takeWaiting(it *item) []*item {
	switch {
	case it.Key == "":
		return nil
	case it.loose: // the key may have a head
		l.keys.Held(it.Key, true)
		return l.keys.Spill(it.Key)
	}
	return l.keys.Hold(it.Key)
}

// asksAfter reports whether the parked table must be queried for the key of a loose item that has ended: its row
// may have held back others.
func (l *Lane) asksAfter(it *item) bool { return !it.fromLog() && l.keys.Idle(it.Key) }

// resumeLoose hands over the loose ones among deliveries that wait behind a head in the parked table.
func (l *Lane) resumeLoose(behind []store.Parked) {
	for i := range behind {
		p := &behind[i]
		if p.State == store.StateBlocked && l.dispatcher.loosen(&item{lane: l, Delivery: notification.Delivery{Envelope: &p.Envelope}}) {
			l.resume(p)
		}
	}
}
