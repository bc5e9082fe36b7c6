package outbox

import (
	"context"
	"slices"
)

// Recorder collects notifications until they are published. An aggregate embeds
// one and records what happened to it; the unit of work that saves the aggregate
// publishes what it recorded, in the same transaction:
//
//	type Order struct {
//		outbox.Recorder
//		…
//	}
//
//	func (o *Order) Place() { o.Record(OrderPlaced{ID: o.ID}) }
//
//	err := publisher.PublishRecorded(ctx, tx, order)
//
// The zero value is empty and ready. It is not safe for concurrent use.
type Recorder struct{ recorded []any }

// Record adds notifications, which may be wrapped by With.
func (r *Recorder) Record(notifications ...any) {
	r.recorded = append(r.recorded, notifications...)
}

// Recorded returns what was recorded and not yet taken, in its order.
func (r *Recorder) Recorded() []any { return slices.Clone(r.recorded) }

// Forget drops what was recorded, as after a commit.
func (r *Recorder) Forget() { r.recorded = nil }

// Recording is anything that embeds a Recorder.
type Recording interface {
	Recorded() []any
	Forget()
}

// PublishRecorded publishes what the aggregates have recorded, in their order, in
// one call, and has them forget it. On an error they keep it. If tx
// rolls back afterwards, what they recorded is gone with the rest of their state:
// load them again.
func (p *Publisher) PublishRecorded(ctx context.Context, tx Tx, aggregates ...Recording) error {
	var all []any
	for _, a := range aggregates {
		all = append(all, a.Recorded()...)
	}
	if err := p.Publish(ctx, tx, all...); err != nil {
		return err
	}
	for _, a := range aggregates {
		a.Forget()
	}
	return nil
}
