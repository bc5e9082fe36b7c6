package admin

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// batchRows is how many deliveries one transaction of an action changes.
const batchRows = 500

// Plan is an action on parked deliveries that was counted and not run yet. It is about
// those that it counted: what is parked, or changes, after that is left alone, so the count is
// a ceiling.
type Plan struct {
	// Counts is what it is about, by sink and state.
	Counts []store.ParkedCount

	admin  *Admin
	name   string
	filter Filter
	parsed store.ParkedFilter
	rows   int // of one batch
	batch  func(ctx context.Context, b store.ParkedBatch) (store.ParkedBatchResult, error)
}

// Requeue plans to try deliveries again at once, by the database's clock, with no
// attempt spent: dead ones, or retrying ones too if the filter names that state, an
// id or what is selected. The text of their last error stays. Of several dead ones of one key the first is due, and the
// others are blocked behind it, so that they go in their order. What has
// overtaken them meanwhile stays delivered.
//
// Blocked and scheduled deliveries are not requeued: the former wait for the head
// of their key, the latter for their time. Nor are settling ones: they are delivered. Nor
// is what has no route: it would die at once again; see Reroute.
func (a *Admin) Requeue(ctx context.Context, f Filter) (*Plan, error) {
	f.States = defaultStates(f, []store.State{store.StateDead}, []store.State{store.StateDead, store.StateRetrying})
	for _, s := range f.States {
		if s != store.StateDead && s != store.StateRetrying {
			return nil, fmt.Errorf("%w: %s deliveries cannot be requeued, only dead and retrying ones; the head of a key takes those blocked behind it along",
				ErrFilter, s)
		}
	}
	if f.Sink == store.SinkUnrouted {
		return nil, fmt.Errorf("%w: what is parked under %s has no sink to go to: add a route, and reroute it",
			ErrFilter, store.SinkUnrouted)
	}
	p := &Plan{admin: a, name: "requeue", filter: f, rows: batchRows, batch: a.store.Requeue}
	err := p.count(ctx)
	p.Counts = slices.DeleteFunc(p.Counts, func(c store.ParkedCount) bool { return c.Sink == store.SinkUnrouted })
	return p, err
}

// Discard plans to delete parked deliveries: dead ones, unless the filter names
// states, an id or what is selected. They will never be delivered. One that is being tried at that
// moment may still reach its sink, and is parked again if that fails.
func (a *Admin) Discard(ctx context.Context, f Filter) (*Plan, error) {
	f.States = defaultStates(f, []store.State{store.StateDead}, states)
	p := &Plan{admin: a, name: "discard", filter: f, rows: batchRows, batch: a.store.Discard}
	return p, p.count(ctx)
}

// Skip plans to delete the dead heads of halted keys (on_dead: halt), so that what
// waits behind them goes on. The filter's states must be left out. Where dead
// deliveries do not halt their key, it deletes the first dead one of each.
//
// It is one batch for each sink: behind it the next dead one of a key is its head.
func (a *Admin) Skip(ctx context.Context, f Filter) (*Plan, error) {
	if len(f.States) > 0 {
		return nil, fmt.Errorf("%w: skip is about dead heads of keys: leave the states out", ErrFilter)
	}
	p := &Plan{admin: a, name: "skip", filter: f, rows: math.MaxInt32, batch: a.store.Discard, parsed: store.ParkedFilter{Heads: true}}
	return p, p.count(ctx)
}

// defaultStates are those of a filter that has none.
func defaultStates(f Filter, usual, byID []store.State) []store.State {
	switch {
	case len(f.States) > 0:
		return f.States
	case f.ID != "" || len(f.Selected) > 0:
		return byID
	}
	return usual
}

func (p *Plan) count(ctx context.Context) error {
	heads := p.parsed.Heads
	var err error
	if p.parsed, err = p.filter.parse(); err != nil {
		return err
	}
	p.parsed.Heads = heads
	var changed time.Time
	if p.Counts, changed, err = p.admin.store.CountParked(ctx, p.parsed); p.parsed.Until.IsZero() {
		p.parsed.Until = changed
	}
	return err
}

// PlannedAt is the moment that the plan is pinned to: Filter.PlannedAt of a plan about the
// same deliveries, made later.
func (p *Plan) PlannedAt() time.Time { return p.parsed.Until }

// Total is how many deliveries the plan was about when it was made.
func (p *Plan) Total() (total int64) {
	for _, c := range p.Counts {
		total += c.Count
	}
	return total
}

// Examples are at most n of the deliveries that the plan is about, without their payloads.
func (p *Plan) Examples(ctx context.Context, n int) (examples []store.ParkedDelivery, err error) {
	sink := ""
	for _, c := range p.Counts {
		if len(examples) == n || c.Sink == sink {
			continue // or the counts of one sink's states
		}
		sink = c.Sink
		q := store.ParkedQuery{Filter: p.parsed, Look: browseLook, Limit: n - len(examples)}
		q.Filter.Sink = sink
		page, err := p.admin.store.BrowseParked(ctx, q)
		if err != nil {
			return nil, err
		}
		examples = append(examples, page.Deliveries...)
	}
	return examples, nil
}

// Expect returns ErrMore if the plan is about more than n deliveries. A plan that is made again at
// another one's PlannedAt may be about more: of what was committed in between by transactions that
// had begun before.
func (p *Plan) Expect(n int64) error { return expect(p.Total(), n) }

func expect(total, n int64) error {
	if total > n {
		return fmt.Errorf("%w: %d in place of %d", ErrMore, total, n)
	}
	return nil
}

// Progress is called once an action is recorded, before anything is done, and behind each of
// its batches, with what it has done so far.
type Progress func(store.Action)

func (p Progress) report(a store.Action) {
	if p != nil {
		p(a)
	}
}

// Run does what was planned, in batches that each are one transaction, and records
// it. After an error, or the end of ctx, what was done stays, and the returned action says
// what that is. store.ErrActionCancelled if a person has cancelled it meanwhile. progress may
// be nil.
func (p *Plan) Run(ctx context.Context, progress Progress) (store.Action, error) {
	action, err := p.admin.begin(ctx, p.name, p.filter, p.Total())
	if err != nil {
		return action, err
	}
	progress.report(action)
	for i := 0; i < len(p.Counts); {
		sink, count := p.Counts[i].Sink, int64(0)
		for ; i < len(p.Counts) && p.Counts[i].Sink == sink; i++ {
			count += p.Counts[i].Count
		}
		if err := p.runSink(ctx, sink, count, &action, progress); err != nil {
			return p.admin.stopped(ctx, action, err)
		}
	}
	return action, p.admin.end(ctx, &action)
}

// runSink acts on what was counted of a sink. What was committed after the count by a
// transaction that began before has an earlier time: that the count holds is due to the
// number.
func (p *Plan) runSink(ctx context.Context, sink string, count int64, action *store.Action, progress Progress) error {
	b := store.ParkedBatch{Action: action.ID, Filter: p.parsed}
	b.Filter.Sink = sink
	for rest := count; rest > 0; {
		b.Limit = int(min(rest, int64(p.rows)))
		result, err := p.batch(ctx, b)
		if err != nil {
			return err
		}
		action.Count += int64(result.Changed)
		rest -= int64(result.Changed)
		progress.report(*action)
		if result.Done {
			return nil
		}
		b.After = result.Last
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
