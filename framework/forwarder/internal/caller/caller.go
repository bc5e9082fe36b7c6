// Package caller calls a sink: it applies the routes to the deliveries, recovers from the sink's
// panics, and returns a result for each delivery.
package caller

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

var (
	// ErrPanic: the sink panicked in the call.
	ErrPanic = errors.New("sink panicked")
	// ErrResults: the sink did not return a result for each delivery of a batch.
	ErrResults = errors.New("sink returned too few results")
	// ErrOpen: the sink cannot be opened.
	ErrOpen = errors.New("the sink cannot be opened")
	// ErrPassesBy: routes lead to the sink, but none of their conditions holds.
	ErrPassesBy = errors.New("not for this sink")

	// errBehind: the delivery was not handed to the sink, because an earlier one of its key
	// failed in the same batch.
	errBehind = errors.New("waits behind an earlier one of its key")
)

// Caller calls one sink. It is safe for concurrent use once its fields are set.
type Caller struct {
	// Opener opens the sink before its first call, and again before the next one until it has
	// succeeded, never concurrently; until then the sink is unavailable. nil: nothing to do.
	Opener sinks.Opener
	// Path decides which notifications go to the sink, and with which payload.
	Path *route.Path
	// Check returns why a notification must not be delivered; nil: all may be.
	Check func(ctx context.Context, e *notification.Envelope) error
	// Deliver makes one delivery.
	Deliver func(ctx context.Context, d *notification.Delivery) (notification.Receipt, error)
	// Batcher makes several deliveries; nil: the sink takes one at a time.
	Batcher sinks.Batcher

	// Private shows notifications with private values as the sink gets them; nil: as they are.
	Private *Private

	// AnswerBytes is how much of a destination's answer its errors have.
	AnswerBytes int

	// Addresser names the destination of a delivery; nil: there is a single one.
	Addresser sinks.Addresser

	// Groups says how deliveries are collected; nil: they are not.
	Groups *Groups

	opening sync.Mutex
	opened  atomic.Bool
}

// Open opens the sink, unless it is already open.
func (c *Caller) Open(ctx context.Context) error {
	if c.opened.Load() {
		return nil
	}
	c.opening.Lock()
	defer c.opening.Unlock()
	if c.Opener != nil && !c.opened.Load() {
		if err := c.Opener.Open(ctx); err != nil {
			return fmt.Errorf("%w: %w", ErrOpen, err)
		}
	}
	c.opened.Store(true)
	return nil
}

// patience bounds the time for the conditions of one page, so that the lane goes on.
const patience = 50 * time.Millisecond

// PassesBy reports which rows of a page are not for the sink, because no condition of its routes
// holds; nil if all are for it. If a condition cannot be evaluated, the row goes on to the call
// and fails there. So do rows for which no time is left: the call evaluates their conditions,
// concurrently up to the sink's threshold. If the sink collects, there is no limit but ctx, after which the result
// says nothing.
func (c *Caller) PassesBy(ctx context.Context, page store.Page) []bool {
	if c.Path.Plain() {
		return nil
	}
	passes := make([]bool, len(page.Envelopes))
	if c.Groups == nil { // what is collected must be for the sink: it may replace others
		within, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		ctx = within
	}
	for i := range page.Envelopes {
		if ctx.Err() != nil {
			break
		}
		if c.Private != nil && isPrivate(&page.Envelopes[i]) {
			continue // it is decrypted in the call
		}
		admitted, err := c.Path.Admits(ctx, &page.Envelopes[i])
		passes[i] = err == nil && !admitted
	}
	return passes
}

// Destinations returns the destinations of a page's rows; nil if the sink has a single one.
func (c *Caller) Destinations(page store.Page) []string {
	if c.Addresser == nil {
		return nil
	}
	destinations := make([]string, len(page.Envelopes))
	for i := range page.Envelopes {
		destinations[i] = c.Destination(&notification.Delivery{Envelope: &page.Envelopes[i]})
	}
	return destinations
}

// Destination returns where a delivery goes; "" if the sink does not name it.
func (c *Caller) Destination(d *notification.Delivery) string {
	if c.Addresser == nil {
		return ""
	}
	return c.Addresser.Destination(d)
}

// Seen returns deliveries as the sink sees them, after the routes were applied; nil: unchanged.
type Seen func(deliveries []*notification.Delivery) []*notification.Delivery

// Batcher makes several deliveries at once.
type Batcher interface {
	DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result
}

// Call makes deliveries and returns as many results. It may append them to results, an empty
// slice. to makes them if there may be several; nil: the sink takes one at a time. follows reports
// whether a delivery must not be made unless the one before it in the batch was made.
func (c *Caller) Call(ctx context.Context, to Batcher, deliveries []*notification.Delivery, follows func(i int) bool, results []sinks.Result, seen Seen) (given []sinks.Result) {
	var as views
	defer func() { c.clean(given, as) }()
	defer func() {
		if p := recover(); p != nil {
			given = sinks.Failed(deliveries, fmt.Errorf("%w: %v\n%s", ErrPanic, p, debug.Stack()))
		}
	}()
	if err := c.Open(ctx); err != nil {
		return sinks.Failed(deliveries, sinks.Unavailable(err))
	}
	as = c.viewsOf(ctx, deliveries)
	if c.Path.Plain() && c.Check == nil && as == nil {
		return c.hand(ctx, to, deliveries, results, seen)
	}
	return c.shaped(ctx, to, deliveries, as, follows, seen)
}

// shape returns a notification as the routes shape it, once it is checked; nil if it is not for the sink. Its
// errors have a class.
func (c *Caller) shape(ctx context.Context, published *notification.Envelope, seen *privacy.View) (*notification.Envelope, error) {
	shown, checked := published, published
	if seen != nil {
		if seen.Err != nil {
			return nil, ofView(seen.Err)
		}
		shown = seen.Envelope
	}
	if isPrivate(published) { // what is encrypted cannot be checked
		if checked = nil; isRevealed(seen) {
			checked = shown
		}
	}
	e, err := shown, error(nil)
	if !c.Path.Plain() {
		e, err = c.Path.Shape(ctx, shown)
	}
	if c.Check != nil && (e != nil || err != nil) && checked != nil {
		if wrong := c.Check(ctx, checked); wrong != nil {
			return nil, wrong
		}
	}
	switch {
	case errors.Is(err, route.ErrNewerVersion):
		return nil, sinks.Unknown(err)
	case err != nil:
		return nil, sinks.Invalid(err)
	}
	return e, nil
}

// shaped applies the routes before it calls the sink. A delivery from the parked table may no
// longer be for the sink.
func (c *Caller) shaped(ctx context.Context, to Batcher, deliveries []*notification.Delivery, as views, follows func(i int) bool, seen Seen) []sinks.Result {
	results := make([]sinks.Result, len(deliveries))
	var shaped []*notification.Delivery
	var places []int
	for i, d := range deliveries {
		if i > 0 && follows(i) && results[i-1].Err != nil && !errors.Is(results[i-1].Err, ErrPassesBy) {
			results[i].Err = errBehind
			continue
		}
		e, err := c.shape(ctx, d.Envelope, as.of(i))
		switch {
		case ctx.Err() != nil:
			results[i].Err = ctx.Err()
		case err != nil:
			results[i].Err = err
		case e == nil:
			results[i].Err = ErrPassesBy
		default:
			changed := *d
			changed.Envelope, changed.Revealed = e, isRevealed(as.of(i))
			shaped, places = append(shaped, &changed), append(places, i)
		}
	}
	if len(shaped) == 0 {
		return results
	}
	for j, result := range c.hand(ctx, to, shaped, nil, seen)[:len(shaped)] {
		results[places[j]] = result
	}
	return results
}

// hand calls the sink.
func (c *Caller) hand(ctx context.Context, to Batcher, deliveries []*notification.Delivery, results []sinks.Result, seen Seen) []sinks.Result {
	if seen != nil {
		deliveries = seen(deliveries)
	}
	if to == nil {
		receipt, err := c.Deliver(ctx, deliveries[0])
		return append(results, sinks.Result{Receipt: receipt, Err: err})
	}
	results = to.DeliverBatch(ctx, deliveries)
	for given := len(results); len(results) < len(deliveries); {
		err := fmt.Errorf("%w: %d for a batch of %d", ErrResults, given, len(deliveries))
		results = append(results, sinks.Result{Err: err})
	}
	return results
}
