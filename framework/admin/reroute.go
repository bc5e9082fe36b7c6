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
	// Counts is what it is about.
	Counts []RerouteCount
	// Left is how many Run has left where they are, since a sink of their type has not
	// settled them yet.
	Left int64

	admin  *Admin
	filter Filter
	query  store.RerouteQuery
}

// RerouteCount is how much of a type has a route now.
type RerouteCount struct {
	store.RerouteCount
	// Sinks get it.
	Sinks []string `json:"sinks"`
}

// Reroute plans to deliver what had no route when it was read and has one now: what is
// parked under store.SinkUnrouted goes to the sinks of its routes, due at once, in the
// order of the log and of its keys, with all the sinks' retries. What is scheduled keeps
// its time. The filter selects some of it; it takes no sink.
//
// One that a sink of its type has not settled yet stays, while its row is in the log: it
// comes from the log by itself where the forwarders have the routes, and can be rerouted
// behind that. Every sink must have begun to forward, or Run gives
// store.ErrUnknownSink. Like Plan, it is about what it counted: what is parked, or changes, after
// that stays.
func (a *Admin) Reroute(ctx context.Context, f Filter, routes *route.Table) (*ReroutePlan, error) {
	if f.Sink != "" && f.Sink != store.SinkUnrouted {
		return nil, fmt.Errorf("%w: a reroute is about what is parked under %s: leave the sink out, the routes name it", ErrFilter, store.SinkUnrouted)
	}
	for _, s := range f.States {
		if s != store.StateDead && s != store.StateScheduled {
			return nil, fmt.Errorf("%w: nothing without a route is %s, only dead and scheduled", ErrFilter, s)
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

// Total is how many deliveries the plan was about when it was made.
func (p *ReroutePlan) Total() (total int64) {
	for _, c := range p.Counts {
		total += c.Count
	}
	return total
}

// PlannedAt is the moment that the plan is pinned to; see Plan.PlannedAt.
func (p *ReroutePlan) PlannedAt() time.Time { return p.query.Filter.Until }

// Examples are at most n of the deliveries that the plan is about, by type.
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

// Expect returns ErrMore if the plan is about more than n deliveries; see Plan.Expect.
func (p *ReroutePlan) Expect(n int64) error { return expect(p.Total(), n) }

// Run moves what was planned, and no more than was counted, in batches that each are one
// transaction, and records it; see Plan.Run.
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
