package forwarder

import (
	"context"
	"time"
)

// deadlines hands out contexts that bound deliveries. Deliveries that begin
// close together share one context, because a context and a timer for each
// would cost more than a fast sink's delivery does: a delivery has the timeout
// and up to a sixteenth more.
type deadlines struct {
	parent  context.Context
	timeout time.Duration

	current context.Context
	begun   time.Time
	// cancel of the current context is never called: deliveries share it and its
	// timer ends it. The parent's end releases them all.
	cancel context.CancelFunc
}

// context returns a context for a delivery that begins now.
func (d *deadlines) context() context.Context {
	now := time.Now()
	if d.current == nil || now.Sub(d.begun) >= d.timeout/16 {
		d.begun = now
		d.current, d.cancel = context.WithDeadline(d.parent, now.Add(d.timeout+d.timeout/16))
	}
	return d.current
}
