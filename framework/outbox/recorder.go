package outbox

import "slices"

// Recorder collects what happens to an aggregate until a [Unit] has published it. An
// aggregate embeds one:
//
//	type Order struct {
//		outbox.Recorder
//		…
//	}
//
//	func (o *Order) Place() { o.Record(OrderPlaced{ID: o.ID}) }
//
// The zero value is empty and ready. It is not safe for concurrent use.
type Recorder struct{ events []any }

var _ Aggregate = (*Recorder)(nil)

// Record adds domain events or notifications, which may be wrapped by [With].
func (r *Recorder) Record(events ...any) { r.events = append(r.events, events...) }

// Events returns a copy of what is recorded and not cleared yet, in its order.
func (r *Recorder) Events() []any { return slices.Clone(r.events) }

// ClearEvents drops the first n events.
func (r *Recorder) ClearEvents(n int) { r.events = slices.Delete(r.events, 0, min(n, len(r.events))) }
