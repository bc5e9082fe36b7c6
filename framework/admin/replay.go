package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// ReplayRequest asks for rows of the log to be delivered again to one sink.
type ReplayRequest struct {
	// Sink is required.
	Sink string `json:"sink"`
	// Type is a type (order.placed), a prefix of types (order.*), or *; "" means *. Like a route, *
	// does not select types that begin with "_": a sink that publishes such types for what it gets
	// would deliver both.
	Type string `json:"type,omitempty"`
	// Since and Until select rows that occurred at Since or later, and before Until. The zero
	// value means no bound.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// From names a record of a source, such as orders/3@1042: its partition is replayed from
	// there, and no other partition is.
	From string `json:"from,omitempty"`
	// Routed are the types that the sink's routes send to it; no others are delivered to it.
	Routed notification.TypeFilter `json:"routed"`
	// Rate is how many deliveries per second become due at most; 0 means no limit.
	Rate int `json:"rate,omitempty"`
	// UpTo is the last offset to replay. 0, or an offset after the end of the log, means the
	// last one when the replay is planned. With the UpTo of an earlier plan, the new plan
	// includes no later rows.
	UpTo int64 `json:"up_to"`
}

func (r ReplayRequest) query() (store.ReplayQuery, error) {
	var problems []error
	problem := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("%w: "+format, append([]any{ErrFilter}, args...)...))
	}
	types, err := parseType(r.Type)
	if err != nil {
		problems = append(problems, err)
	}
	selected := []notification.TypeFilter{r.Routed, types}
	if types.None() || types.All() {
		own := notification.TypeFilter{Prefixes: []string{notification.ReservedPrefix}, Except: true}
		selected = []notification.TypeFilter{r.Routed, notification.AllTypes, own}
	}
	if r.Sink == "" {
		problem("name the sink to replay to")
	}
	if r.Sink == store.SinkUnrouted {
		problem("nothing can be delivered to %s: add a route, and replay to its sink", store.SinkUnrouted)
	}
	if r.From != "" && !r.Since.IsZero() {
		problem("set the beginning of the replay by a time or by a record, not both")
	}
	if !isDate(r.Since) || !isDate(r.Until) {
		problem("since or until is outside of the years 0 to 9999")
	}
	if !r.Until.IsZero() && !r.Since.Before(r.Until) {
		problem("since %s is not before until %s", r.Since.Format(time.RFC3339), r.Until.Format(time.RFC3339))
	}
	if r.Rate < 0 {
		problem("the rate is %d: use 0 for no limit, or a positive number", r.Rate)
	}
	return store.ReplayQuery{
		Sink: r.Sink, Types: selected, Since: r.Since, Until: r.Until, From: r.From, UpTo: r.UpTo,
	}, errors.Join(problems...)
}

// ReplayPlan is a replay that was counted, and not run yet or not to its end. The count is a
// ceiling: rows with lower offsets that the sink settles after the count take the place of
// counted ones; they do not increase the number.
type ReplayPlan struct {
	ReplayRequest
	// Count is what is still to be done. Done is how much was done before, in a replay that is
	// continued.
	Count store.ReplayCount
	Done  int64

	admin  *Admin
	query  store.ReplayQuery
	action store.Action // the action to continue; the zero value for a new one
}

// Replay plans to deliver again to a sink what it has settled, in log order and in order for
// each key. Run makes them parked deliveries that are due, with the sink's retries. While the
// destination is unavailable they spend no attempts. The receiver sees ids that it has seen
// before: if it deduplicates by them, it ignores the repeats.
//
// Deliveries parked for the sink stay as they are, and rows that it has not settled yet are
// delivered as usual. Rows that retention has removed cannot be replayed: see ReplayPlan.Gone.
func (a *Admin) Replay(ctx context.Context, r ReplayRequest) (*ReplayPlan, error) {
	target, err := a.store.Probe(ctx)
	if err != nil {
		return nil, err
	}
	if r.UpTo < 0 {
		return nil, fmt.Errorf("%w: up_to is %d", ErrFilter, r.UpTo)
	}
	r.Since, r.Until = r.Since.UTC(), r.Until.UTC() // databases do not know all zones
	if store.SourceOf(a.store) != nil {
		r.Rate = 0 // cursors go back at once
	}
	if last := target.Last(); r.UpTo == 0 || r.UpTo > last {
		r.UpTo = last
	}
	p := &ReplayPlan{ReplayRequest: r, admin: a}
	return p, p.count(ctx)
}

// ContinueReplay plans to continue an interrupted replay, by the id of its action, up to what
// was first planned. It fails with store.ErrActionEnded if the replay has ended, and with
// store.ErrActionCancelled if a person cancelled it.
func (a *Admin) ContinueReplay(ctx context.Context, id string) (*ReplayPlan, error) {
	action, err := a.store.Action(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case action.Name != replayAction:
		return nil, fmt.Errorf("%w: action %s is not a replay: %s", ErrFilter, id, action.Name)
	case !action.CancelledAt.IsZero():
		return nil, fmt.Errorf("%w: action %s", store.ErrActionCancelled, id)
	case !action.EndedAt.IsZero():
		return nil, fmt.Errorf("%w: action %s", store.ErrActionEnded, id)
	}
	p := &ReplayPlan{Done: action.Count, admin: a, action: action}
	if err := json.Unmarshal(action.Filter, &p.ReplayRequest); err != nil {
		return nil, fmt.Errorf("filter of action %s: %w", id, err)
	}
	if err := p.count(ctx); err != nil {
		return p, err
	}
	p.Count.Rows = min(p.Count.Rows, max(0, action.Planned-action.Count))
	return p, nil
}

const replayAction = "replay"

func (p *ReplayPlan) count(ctx context.Context) error {
	var err error
	if p.query, err = p.ReplayRequest.query(); err != nil {
		return err
	}
	p.query.After = p.action.Through
	p.Count, err = p.admin.store.CountReplay(ctx, p.query)
	return err
}

// Takes reports whether the plan includes rows of a type.
func (p *ReplayPlan) Takes(typ string) bool {
	for _, types := range p.query.Types {
		if !types.Matches(typ) {
			return false
		}
	}
	return true
}

// Total returns how many rows the plan included when it was made.
func (p *ReplayPlan) Total() int64 { return p.Count.Rows }

// Expect returns ErrMore if the plan includes more than n rows. A replay that is planned again
// up to the same offset may include more, because the sink has settled more since.
func (p *ReplayPlan) Expect(n int64) error { return expect(p.Total(), n) }

// Gone reports whether retention may have removed rows that were asked for: those before
// Count.Oldest, or all if that is nil.
func (p *ReplayPlan) Gone() bool {
	oldest := p.Count.Oldest
	switch {
	case oldest == nil:
		return p.UpTo > 0
	case oldest.Offset == 1:
		return false
	}
	return p.Since.Before(oldest.OccurredOn)
}

const (
	// replayRows is the number of deliveries in one transaction of a replay.
	replayRows = 200
	// replayTurns is the number of batches in a second, if there is a rate.
	replayTurns = 10
)

// Run replays in batches, each one transaction, at the rate, and records the action; see
// Plan.Run. Any process can continue an interrupted replay, but only one at a time: the others
// get store.ErrActionMoved.
func (p *ReplayPlan) Run(ctx context.Context, progress Progress) (store.Action, error) {
	action := p.action
	if action.ID == "" {
		var err error
		if action, err = p.admin.begin(ctx, replayAction, p.ReplayRequest, p.Total()); err != nil {
			return action, err
		}
	}
	progress.report(action)
	began := time.Now()
	b := store.ReplayBatch{ReplayQuery: p.query, Action: action.ID}
	for b.After < b.UpTo && action.Count-p.Done < p.Total() {
		b.Limit = int(min(int64(p.batchRows()), p.Total()-(action.Count-p.Done)))
		result, err := p.admin.store.Replay(ctx, b)
		if err != nil {
			return p.admin.stopped(ctx, action, err)
		}
		action.Count += int64(result.Changed)
		action.Through, b.After = result.Through, result.Through
		progress.report(action)
		if err := p.pace(ctx, began, action.Count-p.Done); err != nil {
			return action, err
		}
	}
	return action, p.admin.end(ctx, &action)
}

func (p *ReplayPlan) batchRows() int {
	if p.Rate == 0 {
		return replayRows
	}
	return max(1, min(replayRows, p.Rate/replayTurns))
}

// pace waits until the rate allows the next batch.
func (p *ReplayPlan) pace(ctx context.Context, began time.Time, done int64) error {
	if p.Rate == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(time.Until(began.Add(time.Duration(float64(done) / float64(p.Rate) * float64(time.Second)))))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Again delivers one row of the log to a sink once more, as Replay does, and reports whether the sink had settled
// it: a row that it has not settled is delivered anyway.
func (a *Admin) Again(ctx context.Context, sink string, row store.Ref) (settled bool, err error) {
	about := map[string]any{"sink": sink, "offset": row.Offset, "id": row.ID}
	action, err := a.beginAfter(ctx, replayAction, about, 1, row.Offset-1)
	if err != nil {
		return false, err
	}
	done, err := a.store.Replay(ctx, store.ReplayBatch{Action: action.ID, Limit: 1, ReplayQuery: store.ReplayQuery{
		Sink: sink, Types: []notification.TypeFilter{notification.AllTypes}, After: row.Offset - 1, UpTo: row.Offset,
	}})
	if err != nil {
		return false, err
	}
	return done.Changed > 0, a.end(ctx, &action)
}
