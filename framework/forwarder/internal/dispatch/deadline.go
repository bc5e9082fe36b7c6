package dispatch

import (
	"context"
	"slices"
	"time"
)

// deadlines makes contexts that bound deliveries. Deliveries that begin close together share
// one context, because a context and a timer for each would cost more than a delivery to a fast
// sink. So a delivery has the timeout and up to a sixteenth more.
type deadlines struct {
	parent context.Context

	current context.Context
	timeout time.Duration // of the current one
	begun   time.Time
	// cancel of the current context is never called: deliveries share it, and its timer ends
	// it. The end of the parent releases all of them.
	cancel context.CancelFunc
}

// context returns a context for a delivery that begins now.
func (d *deadlines) context(now time.Time, timeout time.Duration) context.Context {
	if d.current == nil || timeout != d.timeout || now.Sub(d.begun) >= timeout/16 {
		d.begun, d.timeout = now, timeout
		d.current, d.cancel = context.WithDeadline(d.parent, now.Add(timeout+timeout/16))
	}
	return d.current
}

// callContext returns a context for a call, and a function to call after it, or nil. The context
// ends at the deadline, or when one of the items' lanes cancels its deliveries.
func callContext(items []*item, now time.Time, timeout time.Duration) (context.Context, func()) {
	first := items[0].lane
	shared := first.deadlines.context(now, timeout)
	var others []*Lane
	for _, it := range items[1:] {
		if it.lane != first && !slices.Contains(others, it.lane) {
			others = append(others, it.lane)
		}
	}
	if others == nil {
		return shared, nil
	}
	ctx, cancel := context.WithCancel(shared)
	release := cancel
	for _, l := range others {
		inner, stop := release, context.AfterFunc(l.deadlines.parent, cancel)
		release = func() { stop(); inner() }
	}
	return ctx, release
}
