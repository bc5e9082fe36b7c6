// Package admin is for operators of an outbox: look at parked deliveries, requeue, discard and
// skip them, pause sinks, replay the log, and ask where a notification is. The command line
// and the dashboard use it.
//
// A bulk action is first planned, which counts what it would change and changes nothing, and
// then run, in batches:
//
//	plan, err := a.Requeue(ctx, admin.Filter{Sink: "partner", Error: "timeout"})
//	fmt.Println(plan.Total()) // ask for confirmation
//	action, err := plan.Run(ctx, nil)
//
// Each action is recorded, with who did it and how many deliveries it changed. Forwarders
// notice changes within a twentieth of their lease, or at once if they listen.
package admin

import (
	"context"
	"errors"
	"time"

	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
)

// Errors of requests.
var (
	// ErrFilter: a filter is not valid. All mistakes in a filter are reported as one joined
	// error.
	ErrFilter = errors.New("invalid filter")
	// ErrMore: more deliveries match than the caller expects.
	ErrMore = errors.New("more matches than expected")
	// ErrKeyUsed: the key was already used for a different request.
	ErrKeyUsed = errors.New("the key was already used for a different request")
)

// Admin acts on one outbox on behalf of one person. It is safe for concurrent use.
type Admin struct {
	store   Store
	who     string
	request Request
}

// Store is what an Admin needs from an outbox.
type Store interface {
	store.Inspector
	store.Operator
	store.Log
	store.Schedules
	store.Personal
	store.PrivateKeys
}

// New returns an Admin for an outbox. Each action is recorded with who, such as ada@laptop.
func New(s Store, who string) *Admin { return &Admin{store: s, who: who} }

// Parked returns at most limit parked deliveries that match the filter, by sink and in log
// order, after a given place; the zero value is before all. The payloads of one call are
// limited to some megabytes: it may return fewer than limit although there are more, but
// always at least one if there is any.
func (a *Admin) Parked(ctx context.Context, f Filter, after store.ParkedPlace, limit int) ([]store.ParkedDelivery, error) {
	filter, _, err := a.parse(ctx, f)
	if err != nil {
		return nil, err
	}
	return a.store.FindParked(ctx, filter, after, limit)
}

// Count counts the parked deliveries that match the filter, by sink and state.
func (a *Admin) Count(ctx context.Context, f Filter) ([]store.ParkedCount, error) {
	filter, _, err := a.parse(ctx, f)
	if err != nil {
		return nil, err
	}
	counts, _, err := a.store.CountParked(ctx, filter)
	return counts, err
}

// Status is the state of an outbox, and what is wrong with its sinks and its log.
type Status struct {
	// SampledAt is when the state was read.
	SampledAt time.Time `json:"sampled_at"`
	store.Status
	Troubles []Trouble `json:"troubles"`
	// Forwarders are the running forwarders.
	Forwarders []ForwarderStatus `json:"forwarders"`
}

// Status reads the state of the log, the cursors and the parked deliveries. With routes, only
// rows of a sink's own types count as pending for it; routes may be nil.
func (a *Admin) Status(ctx context.Context, routes *route.Table) (Status, error) {
	look := Look{At: time.Now()}
	var err error
	if look.Sample, err = a.store.Sample(ctx, store.SampleQuery{Types: Routing{Routes: routes}.Filters()}); err != nil {
		return Status{}, err
	}
	if look.Membership, err = a.store.Membership(ctx); err != nil {
		return Status{}, err
	}
	if look.Pauses, err = a.Pauses(ctx, look.Membership); err != nil {
		return Status{}, err
	}
	holders, err := a.store.Holders(ctx, nil)
	if err != nil {
		return Status{}, err
	}
	status := look.Status(holders)
	for i := range look.Sample.Sinks {
		unknown, err := a.UnknownTypes(ctx, &look, look.Sample.Sinks[i].Sink)
		if err != nil {
			return Status{}, err
		}
		status.Troubles = append(status.Troubles, unknown...)
	}
	return status, nil
}

// Status returns what was seen as a Status. holders are the sinks that keep rows in the log.
func (l *Look) Status(holders []store.Holder) Status {
	status := Status{l.At.UTC(), l.Sample.Status(holders), []Trouble{}, forwardersOf(l.Membership)}
	status.Cursors = append([]store.CursorStatus{}, status.Cursors...) // [] in JSON, not null
	status.Parked = append([]store.ParkedCount{}, status.Parked...)
	status.Holders = append([]store.Holder{}, status.Holders...)
	for i := range l.Sample.Sinks {
		status.Troubles = append(status.Troubles, l.Troubles(&l.Sample.Sinks[i], Usual)...)
	}
	status.Troubles = append(status.Troubles, l.Held(HeldAfter)...)
	return status
}

// Types counts the last limit rows of the log, and as many parked deliveries, by type and
// version, ordered by these; a limit of 0 counts all.
func (a *Admin) Types(ctx context.Context, limit int) ([]store.TypeCount, error) {
	return a.store.Types(ctx, limit)
}
