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

// Idle is what RunDatabase returns where Database.Sleep is set and there was nothing left to do: no row
// came for that time, each row is settled for each sink, and nothing that is parked falls due soon. The lanes
// are given back. The database needs no forwarder until Until, or until Moved or Changed returns true.
type Idle struct {
	// Until is when something that is parked falls due, or old rows are to be removed.
	Until time.Time

	store  Store
	target store.QuietTarget // closed: there was nothing before it
	lanes  []store.LaneState
}

var _ error = (*Idle)(nil)

// Error says that it is no failure.
func (*Idle) Error() string { return "there is nothing to do" }

// longestIdle bounds Idle.Until: retention removes rows of a database that is worked on.
const longestIdle = 15 * time.Minute

// Moved reports whether the log may have other rows as of a later target.
func (i *Idle) Moved(now store.Target) bool {
	q, ok := now.(store.QuietTarget)
	return !ok || q.Moved(i.target)
}

// Changed reports whether a person has changed what is parked, or which sinks are paused.
func (i *Idle) Changed(ctx context.Context) (bool, error) {
	now, err := i.store.Membership(ctx)
	if err != nil {
		return false, err
	}
	return !slices.EqualFunc(now.Lanes, i.lanes, func(a, b store.LaneState) bool {
		return a.Lane == b.Lane && a.Wanted == b.Wanted && a.Paused == b.Paused && a.Revision == b.Revision
	}), nil
}

// rest ends the work on the outbox, with an Idle, once there is nothing to do. Trouble with the database is no
// idleness.
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

// errNoSampler: an outbox that cannot be sampled does not rest.
var errNoSampler = errors.New("the store is no store.Sampler")

// idle looks whether there is something to do; nil: there is. What a person does meanwhile changes the lanes,
// which are read first; the rows that are counted are at least those of the target, which comes before.
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
	work := o.forwarder.working()
	types := make(map[string]notification.TypeFilter, len(work))
	for name, w := range work {
		types[name] = w.types
	}
	sample, err := sampler.Sample(ctx, store.SampleQuery{Types: types})
	if err != nil || sample.LastOffset != target.Last() {
		return nil, err
	}
	idle := &Idle{Until: time.Now().Add(longestIdle), store: o.given, target: quiet, lanes: membership.Lanes}
	for _, s := range sample.Sinks {
		w := work[s.Sink]
		switch {
		case w == nil || s.Paused:
			continue
		case s.Pending > 0 || s.Uncounted || len(s.Lanes) == 0:
			return nil, nil
		}
		due, next, err := o.given.Due(ctx, store.DueQuery{Lane: store.NewLane(s.Sink, 0, 1), Now: time.Now(), Limit: 1, Halt: w.OnDead == OnDeadHalt})
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
