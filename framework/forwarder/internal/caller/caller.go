// Package caller has a sink deliver: it gives deliveries the shape that their routes
// make of them, contains the sink's panics, and returns a result for each.
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
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

var (
	// ErrPanic is the error of all deliveries of a call in which the sink panicked.
	ErrPanic = errors.New("sink panicked")
	// ErrResults is the error of the deliveries of a batch for which the sink gave no
	// result.
	ErrResults = errors.New("sink gave too few results")
	// ErrOpen is that of all deliveries while the sink cannot be opened.
	ErrOpen = errors.New("the sink cannot be opened")
	// ErrPassesBy is that of a delivery that no condition of its routes brings to the
	// sink.
	ErrPassesBy = errors.New("passes the sink by")

	// errBehind is that of a delivery that was not handed to the sink, because an
	// earlier one of its key in its batch failed before.
	errBehind = errors.New("waits behind one of its key")
)

// Caller calls one sink. It is safe for concurrent use once its fields are set.
type Caller struct {
	// Prepare opens the sink. It is called before each call until it has succeeded
	// once, and never twice at a time; meanwhile the sink is unavailable. nil: there is
	// nothing to do.
	Prepare func(ctx context.Context) error
	// Path says which notifications go to the sink, and in what shape.
	Path *route.Path
	// Deliver makes one delivery.
	Deliver func(ctx context.Context, d *notification.Delivery) (notification.Receipt, error)
	// Batcher makes several; nil: the sink takes one at a time.
	Batcher sinks.Batcher

	// Addresser says where deliveries go; nil: to one destination.
	Addresser sinks.Addresser

	preparing sync.Mutex
	prepared  atomic.Bool
}

// Open prepares the sink, unless that is done.
func (c *Caller) Open(ctx context.Context) error {
	if c.prepared.Load() {
		return nil
	}
	c.preparing.Lock()
	defer c.preparing.Unlock()
	if c.Prepare != nil && !c.prepared.Load() {
		if err := c.Prepare(ctx); err != nil {
			return fmt.Errorf("%w: %w", ErrOpen, err)
		}
	}
	c.prepared.Store(true)
	return nil
}

// patience is how long the conditions of one page may take before the lane goes on.
const patience = 50 * time.Millisecond

// PassesBy reports which rows of a page no condition of the routes brings to the sink;
// nil if all go there. A row for which a condition cannot be evaluated goes on to the
// call, where it fails in its turn. So do rows behind conditions that take long: the call
// evaluates them, as many at once as the sink's threshold says.
func (c *Caller) PassesBy(page store.Page) []bool {
	if c.Path.Plain() {
		return nil
	}
	passes := make([]bool, len(page.Envelopes))
	began := time.Now()
	for i := range page.Envelopes {
		if time.Since(began) > patience {
			break
		}
		admitted, err := c.Path.Admits(&page.Envelopes[i])
		passes[i] = err == nil && !admitted
	}
	return passes
}

// Destinations are those of a page's rows; nil where the sink has one destination.
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

// Destination is where a delivery goes; "" where the sink does not tell.
func (c *Caller) Destination(d *notification.Delivery) string {
	if c.Addresser == nil {
		return ""
	}
	return c.Addresser.Destination(d)
}

// Seen returns deliveries as the sink is to see them, after the routes have looked at them;
// nil: as they are.
type Seen func(deliveries []*notification.Delivery) []*notification.Delivery

// Call has the sink make deliveries and returns as many results, which it may append to
// results, an empty slice. follows says whether a delivery must not be made unless the
// one before it in the batch is.
func (c *Caller) Call(ctx context.Context, deliveries []*notification.Delivery, follows func(i int) bool, results []sinks.Result, seen Seen) (given []sinks.Result) {
	return c.CallOn(ctx, c.Batcher, deliveries, follows, results, seen)
}

// Batcher makes several deliveries at once.
type Batcher interface {
	DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result
}

// CallOn is Call with another Batcher.
func (c *Caller) CallOn(ctx context.Context, to Batcher, deliveries []*notification.Delivery, follows func(i int) bool, results []sinks.Result, seen Seen) (given []sinks.Result) {
	defer func() {
		if p := recover(); p != nil {
			given = sinks.Failed(deliveries, fmt.Errorf("%w: %v\n%s", ErrPanic, p, debug.Stack()))
		}
	}()
	if err := c.Open(ctx); err != nil {
		return sinks.Failed(deliveries, sinks.Unavailable(err))
	}
	if c.Path.Plain() {
		return c.hand(ctx, to, deliveries, results, seen)
	}
	return c.shaped(ctx, to, deliveries, follows, seen)
}

// shaped hands over what the routes make of the deliveries. What comes from the parked
// table may not be for the sink any more.
func (c *Caller) shaped(ctx context.Context, to Batcher, deliveries []*notification.Delivery, follows func(i int) bool, seen Seen) []sinks.Result {
	results := make([]sinks.Result, len(deliveries))
	var shaped []*notification.Delivery
	var places []int
	for i, d := range deliveries {
		if i > 0 && follows(i) && results[i-1].Err != nil && !errors.Is(results[i-1].Err, ErrPassesBy) {
			results[i].Err = errBehind
			continue
		}
		e, err := c.Path.Shape(d.Envelope)
		switch {
		case err != nil:
			results[i].Err = sinks.Permanent(err)
		case e == nil:
			results[i].Err = ErrPassesBy
		default:
			changed := *d
			changed.Envelope = e
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

// hand hands deliveries to the sink.
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
