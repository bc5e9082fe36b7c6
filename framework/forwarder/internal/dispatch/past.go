package dispatch

import (
	"context"
	"errors"

	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// past is what the parked row of an item says about its earlier attempts.
type past struct {
	lastError string
	attempts  []store.PastAttempt
}

// pastOf returns the past of a parked delivery; nil if it has none.
func pastOf(p *store.Parked) *past {
	if p.LastError == "" && len(p.Attempts) == 0 {
		return nil
	}
	return &past{p.LastError, p.Attempts}
}

// noted adds the attempt to the item's past, before the item is parked because of it.
func (f *failure) noted() {
	text := store.CutText(sinks.Text(f.err), maxErrorText)
	a := store.PastAttempt{Began: f.now, Number: f.number, Class: f.word(), Error: text, Forwarder: f.lane.lease.Owner}
	if began := f.call.began; !began.IsZero() { // it is zero for one that ends without a call
		a.Began, a.Duration = began, f.now.Sub(began)
	}
	var before []store.PastAttempt
	if f.past != nil {
		before = f.past.attempts
	}
	f.past = &past{text, store.WithPastAttempt(before, a)}
}

// word returns the class of the failure, or what a transient one comes from.
func (f *failure) word() string {
	switch {
	case errors.Is(f.err, caller.ErrPanic):
		return "panic"
	case f.class == sinks.ClassTransient && (errors.Is(f.err, context.DeadlineExceeded) || errors.Is(f.err, ErrAbandoned)):
		return "timeout"
	}
	return f.class.String()
}
