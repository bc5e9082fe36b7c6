package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
)

// RerouteCount is how many deliveries of a type have a route now.
type RerouteCount struct {
	store.RerouteCount
	// Sinks are the sinks of the type's routes.
	Sinks []string `json:"sinks"`
}

// Reroute plans to deliver notifications that had no route when they were read, and have one
// now: Run moves what is parked under store.SinkUnrouted to the sinks of its routes, due at
// once, in log order and in order for each key, with all retries of the sinks. Scheduled
// deliveries keep their time. The filter narrows the selection; it must not name a sink.
//
// A notification that one of its sinks has not settled yet stays while its row is in the log:
// with the routes, forwarders deliver it from the log, and it can be rerouted afterwards. Every
// sink must have begun to forward; otherwise Run fails with store.ErrUnknownSink. As with Plan,
// deliveries that are parked or changed after the count are not moved.
func (a *Admin) Reroute(ctx context.Context, f Filter, routes *route.Table) (*Plan, error) {
	if f.Sink != "" && f.Sink != store.SinkUnrouted {
		return nil, fmt.Errorf("%w: a reroute is about what is parked under %s: leave the sink out, the routes name it", ErrFilter, store.SinkUnrouted)
	}
	for _, s := range f.States {
		if s != store.StateDead && s != store.StateScheduled {
			return nil, fmt.Errorf("%w: a notification without a route is never %s, only dead or scheduled", ErrFilter, s)
		}
	}
	parsed, more, err := a.parse(ctx, f)
	if err != nil {
		return nil, err
	}
	routing, err := a.Beside(ctx, Routing{Routes: routes})
	if err != nil {
		return nil, err
	}
	q := store.RerouteQuery{Filter: parsed, Sinks: routes.Filters()}
	maps.Copy(q.Sinks, routing.Elsewhere)
	counts, changed, err := a.store.CountReroute(ctx, q)
	if q.Filter.Until.IsZero() {
		q.Filter.Until = changed
	}
	p := &Plan{Types: []RerouteCount{}, More: more, admin: a, name: "reroute", filter: f, parsed: q.Unrouted(), rows: batchRows}
	p.batch = func(ctx context.Context, b store.ParkedBatch) (store.ParkedBatchResult, error) {
		result, err := a.store.Reroute(ctx, store.RerouteBatch{RerouteQuery: q, Action: b.Action, After: b.After, Limit: b.Limit})
		if errors.Is(err, store.ErrUnknownSink) {
			err = fmt.Errorf("%w; start a forwarder with the routes first, so that the sink has a cursor", err)
		}
		p.Left += int64(result.Left)
		return store.ParkedBatchResult{Changed: result.Changed, Last: result.Last, Done: result.Done}, err
	}
	var types notification.TypeFilter
	for _, c := range counts {
		p.Counts = append(p.Counts, store.ParkedCount{Sink: store.SinkUnrouted, State: c.State, Count: c.Count})
		p.Types = append(p.Types, RerouteCount{RerouteCount: c, Sinks: append(routes.Sinks(c.Type), routing.takenElsewhere(c.Type)...)})
		types.Names = append(types.Names, c.Type)
	}
	p.parsed.Types = types // for the examples
	return p, err
}
