package acts

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/store/internal/tables"

	"github.com/waybill-go/waybill/framework/store"
)

// operate runs one batch of an action on some sinks, in one short transaction that first locks the
// sinks' cursors. It raises the revision of the lanes of the changed sinks, unless the action has
// done that less than revisionPause ago; then a later batch does it, or the end of the action.
func (t *Acts) operate(ctx context.Context, step failpoint.Step, action string, sinks []string, do func(tx *sql.Tx) (changed []string, err error)) error {
	var changed, raise []string
	err := t.run.InTxOf(ctx, step, sinks, func(tx *sql.Tx) (err error) {
		if changed, err = do(tx); err != nil {
			return err
		}
		raise = t.raised.due(action, changed)
		return t.raiseRevisions(ctx, tx, raise)
	})
	if err == nil {
		t.raised.note(action, changed, raise)
	}
	return err
}

// raiseRevisions makes forwarders notice that a person has changed parked deliveries.
func (t *Acts) raiseRevisions(ctx context.Context, tx *sql.Tx, sinks []string) error {
	for _, sink := range sinks {
		_, err := t.run.Exec(ctx, tx, `?`, t.run.Dialect.Announce(tables.SQL(`UPDATE {cursors} SET revision = revision + 1 WHERE sink = ?`, sink)))
		if err != nil {
			return err
		}
	}
	return nil
}

// revisionPause is how long an action waits before it raises the revision of a sink's lanes again:
// each time, their forwarders compare all their keys with the table.
const revisionPause = time.Second

// revisions are the running actions of this process.
type revisions struct {
	mu      sync.Mutex
	actions map[string]map[string]raising // by action and sink
}

// raising is when an action last raised the revision of a sink's lanes, and whether it still has to.
type raising struct {
	at   time.Time // when the revision was raised last
	owed bool      // something was changed since
}

// due returns the sinks whose revision an action must raise now.
func (r *revisions) due(action string, sinks []string) (due []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, sink := range sinks {
		if time.Since(r.actions[action][sink].at) >= revisionPause {
			due = append(due, sink)
		}
	}
	return due
}

// note records which sinks a batch has changed, and for which of them it raised the revision.
func (r *revisions) note(action string, changed, raised []string) {
	if len(changed) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.actions == nil {
		r.actions = make(map[string]map[string]raising)
	}
	if r.actions[action] == nil {
		r.actions[action] = make(map[string]raising)
	}
	sinks := r.actions[action]
	for _, sink := range changed {
		if slices.Contains(raised, sink) {
			sinks[sink] = raising{at: time.Now()}
		} else {
			sinks[sink] = raising{at: sinks[sink].at, owed: true}
		}
	}
}

// owed returns the sinks whose revision must still be raised for an action.
func (r *revisions) owed(action string) (sinks []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for sink, raising := range r.actions[action] {
		if raising.owed {
			sinks = append(sinks, sink)
		}
	}
	return sinks
}

// forget removes an action.
func (r *revisions) forget(action string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.actions, action)
}

// chosen is a parked delivery of a batch.
type chosen struct {
	store.Ref
	key    string
	dead   bool
	behind bool // an earlier one of its key is retrying or blocked

	collection store.CollectionRef // its closed collection, if it is in one
}

// batch selects the deliveries of a batch, lets change change them, and counts them.
func (t *Acts) batch(ctx context.Context, step failpoint.Step, b store.ParkedBatch, change func(tx *sql.Tx, batch []chosen) error) (store.ParkedBatchResult, error) {
	result := store.ParkedBatchResult{Last: b.After}
	sinks := []string{b.Filter.Sink}
	err := t.operate(ctx, step, b.Action, sinks, func(tx *sql.Tx) (changed []string, err error) {
		batch, err := t.choose(ctx, tx, b)
		if err != nil {
			return nil, err
		}
		result.Changed, result.Done = len(batch), len(batch) < b.Limit
		if len(batch) > 0 {
			result.Last, changed = batch[len(batch)-1].Ref, sinks
			if err := change(tx, batch); err != nil {
				return nil, err
			}
		}
		return changed, t.run.Count(ctx, tx, b.Action, len(batch))
	})
	return result, err
}

func (t *Acts) choose(ctx context.Context, tx *sql.Tx, b store.ParkedBatch) ([]chosen, error) {
	where := t.run.Matches(b.Filter)
	where.And(`("offset", id) > (?, ?)`, b.After.Offset, b.After.ID)
	return tables.List(ctx, t.run, tx, func(rows *sql.Rows, c *chosen) error {
		return rows.Scan(&c.Offset, &c.ID, &c.key, &c.dead, &c.behind, &c.collection.Group, &c.collection.Number)
	}, `SELECT "offset", id, "key", state = 'dead', "key" <> '' AND EXISTS (
			SELECT 1 FROM {parked} b WHERE b.sink = p.sink AND b."key" = p."key" AND b."key" <> '' AND b."offset" < p."offset" AND `+tables.Holds("b.", false)+`), collect_group, CASE WHEN state IN ('dead', 'collecting') THEN collection ELSE '' END
		FROM {parked} p WHERE ? ORDER BY "offset", id {limit} ? {whole parked collections}`, where, b.Limit)
}

// Requeue makes deliveries due; see store.Operator. A collection comes back as a whole: it has its number still, under
// which its sink may know the members. Those that are not in the batch are not counted.
func (t *Acts) Requeue(ctx context.Context, b store.ParkedBatch) (store.ParkedBatchResult, error) {
	b.Filter.States = requeueable(b.Filter.States)
	b.Filter.Firsts = true
	result, err := t.batch(ctx, failpoint.Requeue, b, func(tx *sql.Tx, batch []chosen) error {
		batch, collections := apart(batch)
		if err := t.run.ReopenCollections(ctx, tx, b.Filter.Sink, collections); err != nil {
			return err
		}
		due, wait := inOrder(batch)
		if err := t.setState(ctx, tx, b.Filter.Sink, wait, store.StateBlocked, tables.SQL(`NULL`)); err != nil {
			return err
		}
		return t.setState(ctx, tx, b.Filter.Sink, due, store.StateRetrying, tables.SQL(onceNow))
	})
	if err != nil {
		return result, t.run.Failed(err, "requeue parked deliveries of %s", b.Filter.Sink)
	}
	return result, nil
}

// apart returns the closed collections of a batch, and the other deliveries.
func apart(batch []chosen) (others []chosen, collections []store.CollectionRef) {
	known := make(map[store.CollectionRef]bool)
	for _, c := range batch {
		switch {
		case c.collection.Number == "":
			others = append(others, c)
		case !known[c.collection]:
			known[c.collection] = true
			collections = append(collections, c.collection)
		}
	}
	return others, collections
}

// requeueable returns the states of a filter that Requeue accepts.
func requeueable(states []store.State) []store.State {
	accepted := []store.State{store.StateDead, store.StateRetrying, store.StateQuiet, store.StateCollecting}
	if len(states) == 0 {
		return accepted
	}
	var left []store.State
	for _, s := range states {
		if slices.Contains(accepted, s) {
			left = append(left, s)
		}
	}
	if len(left) == 0 {
		left = []store.State{""} // no delivery has it
	}
	return left
}

// onceNow is the clock, read once in a statement, so that deliveries that become due together keep
// log order.
const onceNow = `(SELECT {now})`

// inOrder splits a batch into deliveries that become due and those that wait: a dead one is blocked
// behind an earlier one of its key, in the batch or not.
func inOrder(batch []chosen) (due, wait []store.Ref) {
	first := make(map[string]int64) // of a key in the batch
	for _, c := range batch {
		offset, known := first[c.key]
		if !known {
			first[c.key] = c.Offset
		}
		if c.dead && c.key != "" && (c.behind || known && offset < c.Offset) {
			wait = append(wait, c.Ref)
		} else {
			due = append(due, c.Ref)
		}
	}
	return due, wait
}

func (t *Acts) setState(ctx context.Context, tx *sql.Tx, sink string, refs []store.Ref, state store.State, dueAt tables.Expr) error {
	for chunk := range t.run.Refs(refs) {
		_, err := t.run.Exec(ctx, tx, `UPDATE {parked} SET state = ?, due_at = ?, attempt = 0, hook_error = '', hook_failures = 0, updated_at = {now} WHERE sink = ? AND ("offset", id) IN (?)`,
			string(state), dueAt, sink, chunk)
		if err != nil {
			return err
		}
	}
	return nil
}

// Discard deletes deliveries; see store.Operator.
func (t *Acts) Discard(ctx context.Context, b store.ParkedBatch) (store.ParkedBatchResult, error) {
	result, err := t.batch(ctx, failpoint.Discard, b, func(tx *sql.Tx, batch []chosen) error { return t.remove(ctx, tx, b.Filter.Sink, batch) })
	if err != nil {
		return result, t.run.Failed(err, "discard parked deliveries of %s", b.Filter.Sink)
	}
	return result, nil
}

// remove deletes deliveries of one sink. Collections go on without their members, and end if they have none.
func (t *Acts) remove(ctx context.Context, tx *sql.Tx, sink string, batch []chosen) error {
	refs := make([]store.Ref, len(batch))
	for i, c := range batch {
		refs[i] = c.Ref
	}
	if err := t.run.Unpark(ctx, tx, sink, refs); err != nil {
		return err
	}
	_, collections := apart(batch)
	empty, err := t.run.BeginCollections(ctx, tx, sink, collections)
	if err != nil {
		return err
	}
	return t.run.EndCollections(ctx, tx, sink, empty)
}

// Pause stops or resumes deliveries to a sink; see store.Operator.
func (t *Acts) Pause(ctx context.Context, action, sink string, paused bool) (changed bool, err error) {
	defer t.run.Tried(&err, "pause or resume sink %s", sink)
	err = t.run.InTxOf(ctx, failpoint.Pause, []string{sink}, func(tx *sql.Tx) error {
		var cursors, others int
		if err := t.run.Row(ctx, tx, `SELECT count(*), count(CASE WHEN paused <> ? THEN 1 END) FROM {cursors} WHERE sink = ? AND sink <> ?`,
			paused, sink, store.SinkPruner).Scan(&cursors, &others); err != nil {
			return err
		}
		if cursors == 0 {
			return t.run.UnknownSink(ctx, tx, sink)
		}
		if changed = others > 0; !changed {
			return nil
		}
		// A lane that no one works on is free from now on. MySQL assigns in this order.
		const free = `lease_until <= {now} OR lease_until IS NULL`
		if _, err := t.run.Exec(ctx, tx, `?`, t.run.Dialect.Announce(tables.SQL(`UPDATE {cursors} SET paused = ?, owner = CASE WHEN `+free+` THEN NULL ELSE owner END,
			updated_at = CASE WHEN `+free+` THEN {now} ELSE updated_at END, lease_until = CASE WHEN `+free+` THEN NULL ELSE lease_until END WHERE sink = ?`, paused, sink))); err != nil {
			return err
		}
		return t.run.Count(ctx, tx, action, 1)
	})
	return changed, err
}
