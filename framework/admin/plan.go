package admin

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// batchRows is the number of deliveries that one transaction of an action changes.
const batchRows = 500

// Plan is an action on parked deliveries that was counted and not run yet. It includes only the
// counted deliveries: those that are parked or changed later are left alone, so the count is a
// ceiling.
type Plan struct {
	// Counts are the deliveries in the plan, by sink and state.
	Counts []store.ParkedCount
	// Types are the deliveries of a reroute by type, and Left is how many Run has left in place,
	// since a sink of their type has not settled them yet. Types is nil in other plans.
	Types []RerouteCount
	Left  int64
	// More reports that there may be further deliveries of the filter's cause; see Causes.
	More bool

	admin  *Admin
	name   string
	filter Filter
	parsed store.ParkedFilter
	rows   int // of a batch
	batch  func(ctx context.Context, b store.ParkedBatch) (store.ParkedBatchResult, error)
}

// Requeue plans to try deliveries again at once, by the database's clock, with all attempts
// available again. It selects dead deliveries. If the filter names their state, an id, a cause or
// selected deliveries, it also selects those that are tried again anyway: retrying ones, and the first member
// of a closed collection, with which all of it is tried. It selects quiet ones if the filter names
// that state; they wait again unless the hours of their sink have changed.
//
// Dead members are tried in the collection that they were in. The text of the last error stays. Of
// several dead ones of one key, the first becomes due and the others are blocked behind it, so that
// their order is kept. Deliveries that have overtaken them stay delivered.
//
// Blocked and scheduled deliveries are not requeued: they wait for the head of their key, or for
// their time. Nor are members of a collection that is still open, settling ones, which are delivered,
// and notifications without a route, which would be dead again at once; see Reroute.
func (a *Admin) Requeue(ctx context.Context, f Filter) (*Plan, error) {
	f.States = defaultStates(f, []store.State{store.StateDead}, []store.State{store.StateDead, store.StateRetrying, store.StateCollecting})
	for _, s := range f.States {
		if s != store.StateDead && s != store.StateRetrying && s != store.StateQuiet && s != store.StateCollecting {
			return nil, fmt.Errorf("%w: %s deliveries cannot be requeued, only dead, retrying and quiet ones, and collections; requeue the head of a key to release those blocked behind it",
				ErrFilter, s)
		}
	}
	if f.Sink == store.SinkUnrouted {
		return nil, fmt.Errorf("%w: what is parked under %s has no sink: add a route, and reroute it",
			ErrFilter, store.SinkUnrouted)
	}
	p := &Plan{admin: a, name: "requeue", filter: f, rows: batchRows, batch: a.store.Requeue, parsed: store.ParkedFilter{Firsts: true}}
	err := p.count(ctx)
	p.Counts = slices.DeleteFunc(p.Counts, func(c store.ParkedCount) bool { return c.Sink == store.SinkUnrouted })
	return p, err
}

// Discard plans to delete parked deliveries: dead ones, unless the filter names states, an id,
// a cause or selected deliveries. They will never be delivered, with one exception: a delivery that is
// being tried at that moment may still reach its sink, and is parked again if that fails.
func (a *Admin) Discard(ctx context.Context, f Filter) (*Plan, error) {
	f.States = defaultStates(f, []store.State{store.StateDead}, states)
	p := &Plan{admin: a, name: "discard", filter: f, rows: batchRows, batch: a.store.Discard}
	return p, p.count(ctx)
}

// Skip plans to delete the dead heads of halted keys (on_dead: halt), so that the deliveries
// behind them go on. The filter must not name states. For keys that are not halted, it deletes
// the first dead delivery of each.
//
// It uses one batch for each sink: in a second batch, the next dead delivery of a key would be
// its head.
func (a *Admin) Skip(ctx context.Context, f Filter) (*Plan, error) {
	if len(f.States) > 0 {
		return nil, fmt.Errorf("%w: skip is about the dead heads of keys: leave the states out", ErrFilter)
	}
	p := &Plan{admin: a, name: "skip", filter: f, rows: math.MaxInt32, batch: a.store.Discard, parsed: store.ParkedFilter{Heads: true}}
	return p, p.count(ctx)
}

// defaultStates returns the states of a filter, with a default.
func defaultStates(f Filter, usual, byID []store.State) []store.State {
	switch {
	case len(f.States) > 0:
		return f.States
	case f.ID != "" || f.Cause != "" || len(f.Selected) > 0:
		return byID
	}
	return usual
}

func (p *Plan) count(ctx context.Context) error {
	heads, firsts := p.parsed.Heads, p.parsed.Firsts
	var err error
	if p.parsed, p.More, err = p.admin.parse(ctx, p.filter); err != nil {
		return err
	}
	p.parsed.Heads, p.parsed.Firsts = heads, firsts
	var changed time.Time
	if p.Counts, changed, err = p.admin.store.CountParked(ctx, p.parsed); p.parsed.Until.IsZero() {
		p.parsed.Until = changed
	}
	return err
}

// PlannedAt returns the moment that the plan is bound to. Set it as Filter.PlannedAt of a later
// plan about the same deliveries.
func (p *Plan) PlannedAt() time.Time { return p.parsed.Until }

// Total returns how many deliveries the plan included when it was made.
func (p *Plan) Total() (total int64) {
	for _, c := range p.Counts {
		total += c.Count
	}
	return total
}

// Examples returns at most n of the plan's deliveries, without their payloads.
func (p *Plan) Examples(ctx context.Context, n int) (examples []store.ParkedDelivery, err error) {
	sink := ""
	for _, c := range p.Counts {
		if len(examples) == n || c.Sink == sink {
			continue // the counts of another state of the same sink
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

// Expect returns ErrMore if the plan includes more than n deliveries. A plan that is made again
// with another one's PlannedAt may include more: those committed since by transactions that had
// begun before.
func (p *Plan) Expect(n int64) error { return expect(p.Total(), n) }

func expect(total, n int64) error {
	if total > n {
		return fmt.Errorf("%w: %d instead of %d", ErrMore, total, n)
	}
	return nil
}

// Progress is called with an action and what it has done so far: once it is recorded, before it
// changes anything, and after each batch.
type Progress func(store.Action)

func (p Progress) report(a store.Action) {
	if p != nil {
		p(a)
	}
}

// Run does what was planned, in batches, each one transaction, and records the action. After an
// error, or the end of ctx, what was done stays, and the returned action says how much. It
// fails with store.ErrActionCancelled if a person cancelled the action meanwhile. progress may
// be nil.
func (p *Plan) Run(ctx context.Context, progress Progress) (store.Action, error) {
	action, err := p.admin.begin(ctx, p.name, p.filter, p.Total())
	if err != nil {
		return action, err
	}
	p.Left = 0
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

// runSink acts on a sink's counted deliveries. A transaction that began before the count and
// committed after it adds deliveries with an earlier time, which the filter cannot exclude: so
// the number of changes is limited to the count.
func (p *Plan) runSink(ctx context.Context, sink string, count int64, action *store.Action, progress Progress) error {
	b := store.ParkedBatch{Action: action.ID, Filter: p.parsed}
	b.Filter.Sink = sink
	for rest := count; rest > 0; {
		b.Limit = int(min(rest, int64(p.rows)))
		left := p.Left
		result, err := p.batch(ctx, b)
		if err != nil {
			return err
		}
		action.Count += int64(result.Changed)
		rest -= int64(result.Changed) + p.Left - left
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
