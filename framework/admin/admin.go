// Package admin is what operators do with an outbox: look at parked deliveries,
// requeue, discard and skip them, pause sinks, replay the log, and ask where a
// notification is. The command line and the dashboard are made of it.
//
// A bulk action is planned first, which counts what it is about and changes
// nothing, and then run, in batches:
//
//	plan, err := a.Requeue(ctx, admin.Filter{Sink: "partner", Error: "timeout"})
//	fmt.Println(plan.Total()) // ask for confirmation
//	action, err := plan.Run(ctx, nil)
//
// What was done, by whom and to how many is kept in the table of actions.
// Forwarders notice it within a twentieth of their lease's time, and those that
// listen at once.
//
// The files in the order in which to read them: admin.go, action.go, filter.go, plan.go,
// reroute.go, replay.go, pause.go, schedules.go, types.go, forwarders.go, view.go, why.go, verdict.go, tree.go, browse.go, export.go.
package admin

import (
	"context"
	"errors"
	"time"

	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
)

// Errors of what people ask for.
var (
	// ErrFilter: a filter makes no sense. What is wrong with it is joined to one
	// error.
	ErrFilter = errors.New("invalid filter")
	// ErrMore: there is more to do than the person expects who asks for it.
	ErrMore = errors.New("more matches than expected")
	// ErrKeyUsed: the key of a request was used for another one.
	ErrKeyUsed = errors.New("the key was used for another request")
)

// Admin acts on one outbox for one person. It is safe for concurrent use.
type Admin struct {
	store   Store
	who     string
	request Request
}

// Store is what an Admin needs of an outbox.
type Store interface {
	store.Inspector
	store.Operator
	store.Log
	store.Schedules
}

// New returns an Admin for an outbox. who is recorded with each action, such as
// ada@laptop.
func New(s Store, who string) *Admin { return &Admin{store: s, who: who} }

// Parked lists at most limit parked deliveries that match, by sink and in log
// order, from behind a place on; the zero value is before all. The payloads of
// one call add up to some megabytes at most: fewer than limit may come while there
// are more, but never none.
func (a *Admin) Parked(ctx context.Context, f Filter, after store.ParkedPlace, limit int) ([]store.ParkedDelivery, error) {
	filter, err := f.parse()
	if err != nil {
		return nil, err
	}
	return a.store.FindParked(ctx, filter, after, limit)
}

// Count counts the parked deliveries that match, by sink and state.
func (a *Admin) Count(ctx context.Context, f Filter) ([]store.ParkedCount, error) {
	filter, err := f.parse()
	if err != nil {
		return nil, err
	}
	counts, _, err := a.store.CountParked(ctx, filter)
	return counts, err
}

// Status is a look at an outbox, and what holds up its sinks.
type Status struct {
	// SampledAt is when that was.
	SampledAt time.Time `json:"sampled_at"`
	store.Status
	Conditions []store.Condition `json:"conditions"`
	// Forwarders are those that live.
	Forwarders []ForwarderStatus `json:"forwarders"`
}

// Status looks at the log, the cursors and what is parked. With routes only the rows of
// a sink's own types are pending for it; routes may be nil.
func (a *Admin) Status(ctx context.Context, routes *route.Table) (Status, error) {
	look, err := a.store.Status(ctx, store.StatusQuery{Types: Routing{Routes: routes}.Filters()})
	if err != nil {
		return Status{}, err
	}
	membership, err := a.store.Membership(ctx)
	if err != nil {
		return Status{}, err
	}
	return StatusOf(time.Now(), look, membership), nil
}

// StatusOf is the status of an outbox that was looked at.
func StatusOf(at time.Time, look store.Status, m store.Membership) Status {
	look.Cursors = append([]store.CursorStatus{}, look.Cursors...) // [] in JSON, not null
	look.Parked = append([]store.ParkedCount{}, look.Parked...)
	look.Holders = append([]store.Holder{}, look.Holders...)
	return Status{at.UTC(), look, append([]store.Condition{}, m.Conditions(at)...), forwardersOf(m)}
}

// Types counts the last rows of the log, and parked deliveries, by type and version, in
// their order: at most limit of each; 0 is no limit.
func (a *Admin) Types(ctx context.Context, limit int) ([]store.TypeCount, error) {
	return a.store.Types(ctx, limit)
}
