package outbox

import "slices"

// Recorder collects the events of an aggregate until a [Unit] has published them. An
// aggregate embeds one:
//
//	type Order struct {
//		outbox.Recorder
//		…
//	}
//
//	func (o *Order) Place() { o.Record(OrderPlaced{ID: o.ID}) }
//
// The zero value is ready to use. A Recorder is not safe for concurrent use.
type Recorder struct{ events []any }

var _ Aggregate = (*Recorder)(nil)

// Record adds domain events or notifications. They may be wrapped by [With].
func (r *Recorder) Record(events ...any) { r.events = append(r.events, events...) }

// Events returns a copy of the events that are recorded and not yet cleared, in order.
func (r *Recorder) Events() []any { return slices.Clone(r.events) }

// ClearEvents drops the first n events.
func (r *Recorder) ClearEvents(n int) { r.events = slices.Delete(r.events, 0, min(n, len(r.events))) }
