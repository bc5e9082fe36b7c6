package dispatch

import (
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

var (
	// errPassesBy: no condition of the routes to the sink holds.
	errPassesBy = errors.New("passes the sink by")
	// errBehind: an earlier one of its key in its batch failed before it was handed
	// to the sink.
	errBehind = errors.New("waits behind one of its key")
)

// passesBy reports which rows of a page no condition of the routes brings to the
// sink; nil if all go there. A row for which a condition cannot be evaluated goes on
// to the call, where it dies in its turn.
func (d *Dispatcher) passesBy(page store.Page) []bool {
	if d.path.Plain() {
		return nil
	}
	passes := make([]bool, len(page.Envelopes))
	for i := range page.Envelopes {
		admitted, err := d.path.Admits(&page.Envelopes[i])
		passes[i] = err == nil && !admitted
	}
	return passes
}

// performShaped has the sink deliver what its routes make of the deliveries. What
// comes from the parked table may not be for the sink any more.
func (d *Dispatcher) performShaped(worker *call) {
	results := make([]sinks.Result, len(worker.items))
	var shaped []*notification.Delivery
	var places []int
	for i, it := range worker.items {
		if i > 0 && worker.items[i-1].chained && results[i-1].Err != nil && !errors.Is(results[i-1].Err, errPassesBy) {
			results[i].Err = errBehind
			continue
		}
		e, err := d.path.Shape(it.Envelope)
		switch {
		case err != nil:
			results[i].Err = sinks.Permanent(err)
		case e == nil:
			results[i].Err = errPassesBy
		default:
			d := it.Delivery
			d.Envelope = e
			shaped, places = append(shaped, &d), append(places, i)
		}
	}
	if len(shaped) > 0 {
		taken := d.hand(worker.ctx, shaped, nil)
		for j, i := range places {
			if j < len(taken) {
				results[i] = taken[j]
			} else {
				results[i].Err = fmt.Errorf("%w: %d for a batch of %d", ErrResults, len(taken), len(shaped))
			}
		}
	}
	worker.results = results
}

// passed settles an item that is not for the sink.
func (d *Dispatcher) passed(it *item) {
	d.pending--
	d.stats.PassedBy++
	it.lane.passed(it)
}
