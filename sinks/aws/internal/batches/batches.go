// Package batches sends entries in requests that keep a service's limits, and settles each entry.
package batches

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// tries is how often an entry is sent that the service throttled, or failed for reasons of the service.
const tries = 4

// pause is how long the first pause between tries takes on average. Each one is twice as long as the one before.
var pause = 100 * time.Millisecond

// atOnce is how many entries are made at the same time.
const atOnce = 16

// destinationsAtOnce is how many destinations of a batch are sent to at the same time. Each needs a connection.
const destinationsAtOnce = 32

// Limits are those of a request.
type Limits struct{ Entries, Bytes int }

// Entry is an entry of a request, and its place in the batch.
type Entry[E any] struct {
	Value E
	Bytes int
	Index int
}

// Deliver makes an entry of each delivery, and sends the entries of each destination as [Send] does. It returns the result
// of each delivery.
//
// Entries are made a few at a time, since that may store their bodies. If the store or a registry is down, the others
// that wait for it end with the same error. Up to 32 destinations are sent to at the same time. So what does not answer
// takes no longer than one request to it, and leaves a sink its time for the rest of the batch.
func Deliver[E any](
	ctx context.Context, batch []*notification.Delivery, limits Limits,
	entry func(ctx context.Context, i int, e *notification.Envelope) (destination string, _ Entry[E], _ error),
	send func(ctx context.Context, destination string, entries []E) ([]sinks.Result, error),
) []sinks.Result {
	results := make([]sinks.Result, len(batch))
	destinations, entries := make([]string, len(batch)), make([]Entry[E], len(batch))
	up, down := context.WithCancelCause(ctx)
	defer down(nil)
	var making errgroup.Group
	making.SetLimit(atOnce)
	for i, d := range batch {
		making.Go(func() error {
			destinations[i], entries[i], results[i].Err = entry(up, i, d.Envelope)
			switch err := results[i].Err; {
			case errors.Is(err, context.Canceled) && up.Err() != nil && ctx.Err() == nil:
				results[i].Err = context.Cause(up)
			case isDown(err):
				down(err)
			}
			return nil
		})
	}
	_ = making.Wait() // no error is returned
	all := make(map[string][]Entry[E])
	for i, e := range entries {
		if results[i].Err == nil {
			e.Index = i
			all[destinations[i]] = append(all[destinations[i]], e)
		}
	}
	var sending errgroup.Group
	sending.SetLimit(destinationsAtOnce)
	for destination, its := range all {
		sending.Go(func() error {
			Send(ctx, its, limits, results, func(ctx context.Context, entries []E) ([]sinks.Result, error) { return send(ctx, destination, entries) })
			return nil
		})
	}
	_ = sending.Wait()
	return results
}

// Send sends entries, and writes the result of each to its place in results. send sends one request and returns a
// result for each entry, or an error if the service refused the request as a whole.
//
// An entry that was throttled or failed in the service is sent again a few times, and holds back no other. If a
// request is refused for what is in it, its entries are sent in halves, so that only the guilty one fails.
func Send[E any](ctx context.Context, entries []Entry[E], limits Limits, results []sinks.Result, send func(context.Context, []E) ([]sinks.Result, error)) {
	r := &requests[E]{results, send}
	for len(entries) > 0 {
		n := fitting(entries, limits)
		again, down := r.send(ctx, entries[:n])
		for try := 1; len(again) > 0 && down == nil && try < tries && wait(ctx, try); try++ {
			again, down = r.send(ctx, again)
		}
		if entries = entries[n:]; down != nil {
			r.fail(entries, down)
			return
		}
	}
}

// fitting returns how many of the first entries fit into a request, at least 1.
func fitting[E any](entries []Entry[E], limits Limits) (n int) {
	for bytes := 0; n < len(entries) && n < limits.Entries; n++ {
		if bytes += entries[n].Bytes; bytes > limits.Bytes && n > 0 {
			break
		}
	}
	return n
}

// requests sends requests and settles their entries.
type requests[E any] struct {
	results []sinks.Result
	request func(context.Context, []E) ([]sinks.Result, error)
}

// send sends a request, and returns the entries that should be sent again. down is why the service accepts no request at
// all.
func (r *requests[E]) send(ctx context.Context, entries []Entry[E]) (again []Entry[E], down error) {
	values := make([]E, len(entries))
	for i, e := range entries {
		values[i] = e.Value
	}
	settled, err := r.request(ctx, values)
	switch {
	case err == nil:
		for i, e := range entries {
			r.results[e.Index] = settled[i]
			if isDown(settled[i].Err) {
				again = append(again, e)
			}
		}
		return again, nil
	case isDown(err) || ctx.Err() != nil:
		r.fail(entries, err)
		return nil, err
	case len(entries) == 1:
		r.fail(entries, err)
		return nil, nil
	}
	return r.halves(ctx, entries, err)
}

// halves sends the halves of a request that was refused for what may be in it. If even two entries that are sent alone are
// refused for what need not be theirs, the service refuses everything, and the others are not tried one by one.
func (r *requests[E]) halves(ctx context.Context, entries []Entry[E], err error) (again []Entry[E], down error) {
	half := len(entries) / 2
	first, down := r.send(ctx, entries[:half])
	if down == nil && half > 1 && r.areRefused(entries[:half]) {
		down = err
	}
	if down != nil {
		r.fail(entries[half:], down)
		return first, down
	}
	second, down := r.send(ctx, entries[half:])
	return append(first, second...), down
}

// areRefused reports whether all entries have failed for what need not be theirs.
func (r *requests[E]) areRefused(entries []Entry[E]) bool {
	for _, e := range entries {
		if class, _ := sinks.Classify(r.results[e.Index].Err); r.results[e.Index].Err == nil || class != sinks.ClassTransient {
			return false
		}
	}
	return true
}

// fail sets the error of entries that have no result.
func (r *requests[E]) fail(entries []Entry[E], err error) {
	for _, e := range entries {
		if r.results[e.Index] == (sinks.Result{}) {
			r.results[e.Index].Err = err
		}
	}
}

// isDown reports whether an error is about the service, and not about what was sent.
func isDown(err error) bool {
	class, _ := sinks.Classify(err)
	return class == sinks.ClassThrottled || class == sinks.ClassUnavailable
}

// wait reports whether there is time for another try.
func wait(ctx context.Context, try int) bool {
	d := pause << (try - 1)
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
