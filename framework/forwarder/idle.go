package forwarder

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Idle is what RunDatabase returns if Database.Sleep is set and there is nothing left to do: no
// row came for that time, every sink has settled all rows, and no parked delivery is due soon. The
// lanes are released. The database needs no forwarder until Until, or until Moved or Changed
// returns true.
type Idle struct {
	// Until is when a parked delivery is due, or old rows should be removed.
	Until time.Time

	store  Store
	target store.QuietTarget // closed; everything up to it is settled
	lanes  []store.LaneState
}

var _ error = (*Idle)(nil)

// Error implements error, although an Idle is not a failure.
func (*Idle) Error() string { return "there is nothing to do" }

// longestIdle bounds Idle.Until, because retention removes rows only while a database is worked on.
const longestIdle = 15 * time.Minute

// Moved reports whether the log may have other rows as of a later target.
func (i *Idle) Moved(now store.Target) bool {
	q, ok := now.(store.QuietTarget)
	return !ok || q.Moved(i.target)
}

// Changed reports whether a person changed parked deliveries or paused or resumed a sink.
func (i *Idle) Changed(ctx context.Context) (bool, error) {
	now, err := i.store.Membership(ctx)
	if err != nil {
		return false, err
	}
	return !slices.EqualFunc(now.Lanes, i.lanes, func(a, b store.LaneState) bool {
		return a.Lane == b.Lane && a.Wanted == b.Wanted && a.Paused == b.Paused && a.Revision == b.Revision
	}), nil
}

// rest waits until there is nothing to do, ends the work on the outbox, and returns an Idle. An
// outbox with database errors is not idle.
func (o *outbox) rest(ctx context.Context, end func()) *Idle {
	for pace.Sleep(ctx, max(o.sleep/4, 10*time.Millisecond)) {
		if grown := o.feed.Grown(); grown.IsZero() || time.Since(grown) < o.sleep {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, o.forwarder.config.Lease)
		idle, err := o.idle(bounded)
		cancel()
		if err == nil && idle != nil {
			end()
			return idle
		}
	}
	return nil
}

// errNoSampler means that the outbox cannot be sampled, so it never rests.
var errNoSampler = errors.New("the store is not a store.Sampler")

// idle returns an Idle if there is nothing to do, otherwise nil. The order matters: it reads the
// lanes first, so that a later change by a person is noticed, and the target before it counts the
// rows, so that the count includes all rows of the target.
func (o *outbox) idle(ctx context.Context) (*Idle, error) {
	sampler, ok := o.given.(store.Sampler)
	if !ok {
		return nil, errNoSampler
	}
	membership, err := o.given.Membership(ctx)
	if err != nil {
		return nil, err
	}
	target, err := o.given.Probe(ctx)
	if err != nil {
		return nil, err
	}
	quiet, ok := target.(store.QuietTarget)
	if !ok || !quiet.Closed() {
		return nil, nil
	}
	active := o.forwarder.activeSinks()
	types := make(map[string]notification.TypeFilter, len(active))
	for name, a := range active {
		types[name] = a.types
	}
	sample, err := sampler.Sample(ctx, store.SampleQuery{Types: types})
	if err != nil || sample.LastOffset != target.Last() {
		return nil, err
	}
	idle := &Idle{Until: time.Now().Add(longestIdle), store: o.given, target: quiet, lanes: membership.Lanes}
	for _, s := range sample.Sinks {
		a := active[s.Sink]
		switch {
		case a == nil || s.Paused:
			continue
		case s.Pending > 0 || s.Estimated || len(s.Lanes) == 0:
			return nil, nil
		}
		due, next, err := o.given.Due(ctx, store.DueQuery{Lane: store.NewLane(s.Sink, 0, 1), Now: time.Now(), Limit: 1, Halt: a.OnDead == OnDeadHalt})
		switch {
		case err != nil:
			return nil, err
		case len(due) > 0 || !next.IsZero() && time.Until(next) < o.sleep:
			return nil, nil
		case !next.IsZero() && next.Before(idle.Until):
			idle.Until = next
		}
	}
	return idle, nil
}
