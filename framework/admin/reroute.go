package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
)

// ReroutePlan is a reroute that was counted and not run yet.
type ReroutePlan struct {
	// Counts are the deliveries in the plan.
	Counts []RerouteCount
	// Left is how many Run has left in place, since a sink of their type has not settled them
	// yet.
	Left int64

	admin  *Admin
	filter Filter
	query  store.RerouteQuery
}

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
func (a *Admin) Reroute(ctx context.Context, f Filter, routes *route.Table) (*ReroutePlan, error) {
	if f.Sink != "" && f.Sink != store.SinkUnrouted {
		return nil, fmt.Errorf("%w: a reroute is about what is parked under %s: leave the sink out, the routes name it", ErrFilter, store.SinkUnrouted)
	}
	for _, s := range f.States {
		if s != store.StateDead && s != store.StateScheduled {
			return nil, fmt.Errorf("%w: a notification without a route is never %s, only dead or scheduled", ErrFilter, s)
		}
	}
	parsed, err := f.parse()
	if err != nil {
		return nil, err
	}
	p := &ReroutePlan{admin: a, filter: f, query: store.RerouteQuery{Filter: parsed, Sinks: routes.Filters()}}
	counts, changed, err := a.store.CountReroute(ctx, p.query)
	if p.query.Filter.Until.IsZero() {
		p.query.Filter.Until = changed
	}
	for _, c := range counts {
		p.Counts = append(p.Counts, RerouteCount{RerouteCount: c, Sinks: routes.Sinks(c.Type)})
	}
	return p, err
}

// Total returns how many deliveries the plan included when it was made.
func (p *ReroutePlan) Total() (total int64) {
	for _, c := range p.Counts {
		total += c.Count
	}
	return total
}

// PlannedAt returns the moment that the plan is bound to; see Plan.PlannedAt.
func (p *ReroutePlan) PlannedAt() time.Time { return p.query.Filter.Until }

// Examples returns at most n of the plan's deliveries, by type.
func (p *ReroutePlan) Examples(ctx context.Context, n int) (examples []store.ParkedDelivery, err error) {
	filter := p.query.Unrouted()
	for _, c := range p.Counts {
		if len(examples) == n {
			break
		}
		filter.Types, filter.States = notification.TypeFilter{Names: []string{c.Type}}, []store.State{c.State}
		found, err := p.admin.store.FindParked(ctx, filter, store.ParkedPlace{}, n-len(examples))
		if err != nil {
			return nil, err
		}
		examples = append(examples, found...)
	}
	return examples, nil
}

// Expect returns ErrMore if the plan includes more than n deliveries; see Plan.Expect.
func (p *ReroutePlan) Expect(n int64) error { return expect(p.Total(), n) }

// Run moves the planned deliveries, and no more than were counted, in batches, each one
// transaction, and records the action; see Plan.Run.
func (p *ReroutePlan) Run(ctx context.Context, progress Progress) (store.Action, error) {
	action, err := p.admin.begin(ctx, "reroute", p.filter, p.Total())
	if err != nil {
		return action, err
	}
	progress.report(action)
	p.Left = 0
	b := store.RerouteBatch{RerouteQuery: p.query, Action: action.ID}
	for rest := p.Total(); rest > 0; {
		b.Limit = int(min(rest, batchRows))
		result, err := p.admin.store.Reroute(ctx, b)
		if errors.Is(err, store.ErrUnknownSink) {
			err = fmt.Errorf("%w; start a forwarder with the routes first, so that the sink has a cursor", err)
		}
		if err != nil {
			return p.admin.stopped(ctx, action, err)
		}
		action.Count += int64(result.Changed)
		p.Left += int64(result.Left)
		rest -= int64(result.Changed + result.Left)
		b.After = result.Last
		progress.report(action)
		if result.Done {
			break
		}
		if err := ctx.Err(); err != nil {
			return p.admin.stopped(ctx, action, err)
		}
	}
	return action, p.admin.end(ctx, &action)
}
