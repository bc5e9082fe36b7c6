package tables

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// operate runs one batch of an action on a sink, in one short transaction that has
// the sink's cursors first. It raises the revision of the lanes if something was
// changed, unless the action has done that less than revisionPause ago; then a
// later batch does it, or the end of the action.
func (t *Tables) operate(ctx context.Context, action, sink string, do func(tx *sql.Tx) (changed int, err error)) error {
	changed, raise := 0, false
	err := t.inTxOf(ctx, sink, func(tx *sql.Tx) (err error) {
		if changed, err = do(tx); err != nil || changed == 0 {
			return err
		}
		if raise = t.raised.due(action); raise {
			err = t.raiseRevision(ctx, tx, sink)
		}
		return err
	})
	if err == nil && changed > 0 {
		t.raised.note(action, sink, raise)
	}
	return err
}

// raiseRevision has forwarders notice that a person has changed what is parked.
func (t *Tables) raiseRevision(ctx context.Context, tx *sql.Tx, sink string) error {
	_, err := t.run.Exec(ctx, tx, `?`, t.dialect.Announce(SQL(`UPDATE {cursors} SET revision = revision + 1 WHERE sink = ?`, sink)))
	return err
}

// revisionPause is how long an action waits before it raises the revision of lanes
// once more: their forwarders then compare all their keys with the table.
const revisionPause = time.Second

// revisions are the actions under way in this process.
type revisions struct {
	mutex   sync.Mutex
	actions map[string]raising
}

// raising is what an action has told forwarders, and has still to tell.
type raising struct {
	at   time.Time
	sink string // changed since then; "": none
}

// due reports whether an action is to raise the revision.
func (r *revisions) due(action string) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return time.Since(r.actions[action].at) >= revisionPause
}

// note records a batch that has changed something, and whether it raised the
// revision.
func (r *revisions) note(action, sink string, raised bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.actions == nil {
		r.actions = make(map[string]raising)
	}
	if raised {
		r.actions[action] = raising{at: time.Now()}
		return
	}
	r.actions[action] = raising{at: r.actions[action].at, sink: sink}
}

// pending is the sink whose revision is still to be raised for an action, or "".
func (r *revisions) pending(action string) string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.actions[action].sink
}

// forget ends an action.
func (r *revisions) forget(action string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.actions, action)
}

// chosen is a parked delivery that a batch is about.
type chosen struct {
	store.Ref
	key    string
	dead   bool
	behind bool // an earlier one of its key is retrying or blocked
}

// batch selects what a batch is about, has it changed, and counts that.
func (t *Tables) batch(ctx context.Context, b store.ParkedBatch, change func(tx *sql.Tx, batch []chosen) error) (store.ParkedBatchResult, error) {
	result := store.ParkedBatchResult{Last: b.After}
	err := t.operate(ctx, b.Action, b.Filter.Sink, func(tx *sql.Tx) (int, error) {
		batch, err := t.choose(ctx, tx, b)
		if err != nil {
			return 0, err
		}
		result.Changed, result.Done = len(batch), len(batch) < b.Limit
		if len(batch) > 0 {
			result.Last = batch[len(batch)-1].Ref
			if err := change(tx, batch); err != nil {
				return 0, err
			}
		}
		return len(batch), t.count(ctx, tx, b.Action, len(batch))
	})
	return result, err
}

func (t *Tables) choose(ctx context.Context, tx *sql.Tx, b store.ParkedBatch) (batch []chosen, err error) {
	where := t.matches(b.Filter)
	where.and(`("offset", id) > (?, ?)`, b.After.Offset, b.After.ID)
	err = t.run.Each(ctx, tx, func(rows *sql.Rows) error {
		var c chosen
		err := rows.Scan(&c.Offset, &c.ID, &c.key, &c.dead, &c.behind)
		batch = append(batch, c)
		return err
	}, `SELECT "offset", id, "key", state = 'dead', "key" <> '' AND EXISTS (
			SELECT 1 FROM {parked} b WHERE b.sink = p.sink AND b."key" = p."key" AND b."key" <> '' AND b."offset" < p."offset" AND `+holds("b.", false)+`)
		FROM {parked} p WHERE ? ORDER BY "offset", id LIMIT ? {whole parked}`, where, b.Limit)
	return batch, err
}

// Requeue makes deliveries due; see store.Operator.
func (t *Tables) Requeue(ctx context.Context, b store.ParkedBatch) (store.ParkedBatchResult, error) {
	b.Filter.States = store.Requeueable(b.Filter.States)
	result, err := t.batch(ctx, b, func(tx *sql.Tx, batch []chosen) error {
		due, wait := inOrder(batch)
		if err := t.setState(ctx, tx, b.Filter.Sink, wait, store.StateBlocked, SQL(`NULL`)); err != nil {
			return err
		}
		return t.setState(ctx, tx, b.Filter.Sink, due, store.StateRetrying, SQL(onceNow))
	})
	if err != nil {
		return result, t.failed(err, "requeue parked deliveries of %s", b.Filter.Sink)
	}
	return result, nil
}

// onceNow is the clock, read once in a statement: what becomes due together keeps
// the order of the log.
const onceNow = `(SELECT {now})`

// inOrder tells those of a batch that are due from those that wait: a dead one with
// an earlier one of its key before it, in the batch or not, comes behind that.
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

func (t *Tables) setState(ctx context.Context, tx *sql.Tx, sink string, refs []store.Ref, state store.State, dueAt Expr) error {
	if len(refs) == 0 {
		return nil
	}
	_, err := t.run.Exec(ctx, tx, `UPDATE {parked} SET state = ?, due_at = ?, attempt = 0, updated_at = {now} WHERE sink = ? AND ("offset", id) IN (?)`,
		string(state), dueAt, sink, t.dialect.Refs(refs))
	return err
}

// Discard deletes deliveries; see store.Operator.
func (t *Tables) Discard(ctx context.Context, b store.ParkedBatch) (store.ParkedBatchResult, error) {
	result, err := t.batch(ctx, b, func(tx *sql.Tx, batch []chosen) error {
		refs := make([]store.Ref, len(batch))
		for i, c := range batch {
			refs[i] = c.Ref
		}
		return t.unpark(ctx, tx, b.Filter.Sink, refs)
	})
	if err != nil {
		return result, t.failed(err, "discard parked deliveries of %s", b.Filter.Sink)
	}
	return result, nil
}

// Pause stops deliveries to a sink, or lets them go on; see store.Operator.
func (t *Tables) Pause(ctx context.Context, action, sink string, paused bool) (changed bool, err error) {
	err = t.inTxOf(ctx, sink, func(tx *sql.Tx) error {
		var cursors, others int
		if err := t.run.Row(ctx, tx, `SELECT count(*), count(CASE WHEN paused <> ? THEN 1 END) FROM {cursors} WHERE sink = ? AND sink <> ?`,
			paused, sink, store.SinkPruner).Scan(&cursors, &others); err != nil {
			return err
		}
		if cursors == 0 {
			return t.unknownSink(ctx, tx, sink)
		}
		if changed = others > 0; !changed {
			return nil
		}
		if _, err := t.run.Exec(ctx, tx, `?`, t.dialect.Announce(SQL(`UPDATE {cursors} SET paused = ? WHERE sink = ?`, paused, sink))); err != nil {
			return err
		}
		return t.count(ctx, tx, action, 1)
	})
	if err != nil {
		return false, t.failed(err, "pause or resume sink %s", sink)
	}
	return changed, nil
}
