package tables

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// chunkRows keeps a statement with many rows far below the limit of parameters.
const chunkRows = 1000

func parkedSize(p *store.Parked) int {
	size := store.Size(&p.Envelope) + len(p.LastError) + len(p.Receipt) + len(p.HookError) + len(p.Group)
	for _, a := range p.Attempts {
		size += 2*len(a.Error) + len(a.Forwarder) + rowBytes
	}
	return size
}

func receiptSize(r *store.Receipt) int { return len(r.ID) + len(r.Receipt) + rowBytes }

func refSize(r *store.Ref) int { return len(r.ID) + rowBytes }

// rowBytes is more than the numbers and times of a small row take, and what is around them.
const rowBytes = 256

// Refs returns the lists of Dialect.Refs for all refs.
func (r *Runner) Refs(refs []store.Ref) iter.Seq[Expr] {
	return func(yield func(Expr) bool) {
		limits := r.Dialect.Limits()
		for chunk := range store.Chunks(refs, limits.Refs, limits.Bytes, refSize) {
			if !yield(r.Dialect.Refs(chunk)) {
				return
			}
		}
	}
}

// Checkpoint writes what was settled; see store.Deliveries. If only the cursor moves, which is the
// usual case, it is one statement.
func (t *Tables) Checkpoint(ctx context.Context, c store.Checkpoint) error {
	if err := t.checkpoint(ctx, &c); err != nil {
		return t.run.Failed(err, "checkpoint %s/%d", c.Lease.Lane.Sink, c.Lease.Lane.Number)
	}
	if t.run.Source != nil && c.Position != nil {
		t.run.Source.Settled(c.Lease.Lane, c.Position)
	}
	return nil
}

// OldVersions returns how many versions of cursors cannot be removed; see store.Deliveries.
func (t *Tables) OldVersions() int { return t.run.Dialect.OldVersions() }

func (t *Tables) checkpoint(ctx context.Context, c *store.Checkpoint) error {
	u, err := t.cursorUpdate(c)
	if err != nil {
		return err
	}
	if !t.receipts {
		c.Receipts = nil
	}
	step := stepOf(c)
	if step == failpoint.Checkpoint && len(c.Receipts) == 0 || step == failpoint.Renewal {
		var committed func() error
		err := step.Do(func() (err error) {
			committed, err = t.run.Dialect.MoveCursor(ctx, t.run.Own(), c, u)
			return err
		})
		if err != nil || committed == nil {
			return err
		}
		return committed()
	}
	isolation := t.run.Dialect.Isolation()
	if len(c.Collect)+len(c.Collected) > 0 && c.InTx == nil {
		isolation = sql.LevelReadCommitted // other lanes write the rows of the same groups meanwhile
	}
	tx, err := t.run.Own().BeginTx(ctx, &sql.TxOptions{Isolation: isolation})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after the commit
	committed, err := t.run.Dialect.MoveCursor(ctx, tx, c, u)
	if err != nil || committed == nil {
		return err
	}
	if err := t.settle(ctx, tx, c); err != nil {
		return err
	}
	if err := step.Do(tx.Commit); err != nil {
		return err
	}
	return committed()
}

// stepOf returns the name of the most that a checkpoint writes.
func stepOf(c *store.Checkpoint) failpoint.Step {
	switch {
	case c.InTx != nil || len(c.Hooked) > 0:
		return failpoint.Hook
	case len(c.Park) > 0 || len(c.Collect) > 0:
		return failpoint.Park
	case len(c.Unpark) > 0 || len(c.Collected) > 0:
		return failpoint.Resume
	case c.Position != nil || len(c.Receipts) > 0:
		return failpoint.Checkpoint
	}
	return failpoint.Renewal
}

// settle writes everything but the cursor's move.
func (t *Tables) settle(ctx context.Context, tx *sql.Tx, c *store.Checkpoint) error {
	sink := c.Lease.Lane.Sink
	if err := t.lockGroups(ctx, tx, c); err != nil {
		return fmt.Errorf("lock groups: %w", err)
	}
	if err := t.run.Unpark(ctx, tx, sink, c.Unpark); err != nil {
		return fmt.Errorf("unpark: %w", err)
	}
	if err := t.park(ctx, tx, sink, c.Park); err != nil {
		return fmt.Errorf("park: %w", err)
	}
	for chunk := range t.run.Refs(c.Released) {
		if _, err := t.run.Exec(ctx, tx, `UPDATE {parked} SET slot = `+t.run.Dialect.KeySlot()+` WHERE sink = ? AND ("offset", id) IN (?)`, sink, chunk); err != nil {
			return fmt.Errorf("release: %w", err)
		}
	}
	if err := t.collect(ctx, tx, sink, c); err != nil {
		return fmt.Errorf("collect: %w", err)
	}
	if err := t.hooked(ctx, tx, sink, c.Hooked); err != nil {
		return fmt.Errorf("write the results of hooks: %w", err)
	}
	if err := t.archive(ctx, tx, sink, c.Receipts); err != nil {
		return fmt.Errorf("archive receipts: %w", err)
	}
	if c.InTx == nil {
		return nil
	}
	if err := c.InTx(ctx, tx); err != nil {
		return err
	}
	if _, err := t.run.Exec(ctx, tx, t.run.Dialect.Committable()); err != nil {
		return t.spoiled(err)
	}
	return nil
}

// spoiled returns store.ErrSpoiled if InTx is the cause of an error: it has ended the transaction, or
// the server refuses to commit it. An error of a server or a network that fails is returned as it
// is: see PostgreSQL's manual, appendix A, for the classes of SQLSTATE.
func (t *Tables) spoiled(err error) error {
	state := t.run.Dialect.SQLState(err)
	switch state[:min(2, len(state))] {
	case "08", "40", "53", "57", "58", "XX":
		return err
	case "25":
		if state == "25P03" || state == "25P04" { // the server has ended a transaction that took too long
			return err
		}
	case "":
		if !errors.Is(err, sql.ErrTxDone) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", store.ErrSpoiled, err)
}

// MoveCursor is Dialect.MoveCursor for databases in which commits have no further effect.
func MoveCursor(ctx context.Context, r *Runner, q Querier, c *store.Checkpoint, u Update) (committed func() error, err error) {
	written, err := r.Exec(ctx, q, `UPDATE {cursors} SET ? WHERE ?`, u.Set, u.Where)
	if err == nil && written == 0 {
		return nil, r.Holds(ctx, q, c.Lease)
	}
	return func() error { return nil }, err
}

// cursorUpdate moves the cursor and renews the lease if the epoch still holds.
func (t *Tables) cursorUpdate(c *store.Checkpoint) (Update, error) {
	u := Update{
		Set:   SQL(`lease_until = ?, updated_at = {now}`, t.run.Dialect.NowPlus(c.TTL)),
		Where: holder(c.Lease),
	}
	if c.Position != nil {
		position, err := c.Position.MarshalJSON()
		if err != nil {
			return u, err
		}
		u.Set = SQL(`position = ?, settled = ?, ?`, string(position), store.EncodeOffsets(c.Settled), u.Set)
	}
	if c.Number > 0 {
		u.Set = SQL(`checkpoint = ?, ?`, c.Number, u.Set)
		u.Where.And(`checkpoint < ?`, c.Number)
	}
	return u, nil
}

// Holds returns store.ErrLeaseLost if the lane has another lease.
func (r *Runner) Holds(ctx context.Context, q Querier, lease store.Lease) error {
	var epoch int64
	err := r.Row(ctx, q, `SELECT epoch FROM {cursors} WHERE ? {whole cursors}`, holder(lease)).Scan(&epoch)
	if errors.Is(err, sql.ErrNoRows) {
		return store.ErrLeaseLost
	}
	return err
}

func (r *Runner) Unpark(ctx context.Context, tx *sql.Tx, sink string, refs []store.Ref) error {
	for chunk := range r.Refs(refs) {
		if _, err := r.Exec(ctx, tx, `DELETE FROM {parked} WHERE sink = ? AND ("offset", id) IN (?)`, sink, chunk); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tables) park(ctx context.Context, tx *sql.Tx, sink string, parked []store.Parked) error {
	return t.insertParked(ctx, tx, sink, parked, t.run.Dialect.OnConflict(parkedKey,
		[]string{"state", "attempt", "due_at", "last_error", "attempts", "receipt", "hook_error", "hook_failures", "updated_at"}, Condition{"state", string(store.StateBlocked)}))
}

func (t *Tables) insertParked(ctx context.Context, tx *sql.Tx, sink string, parked []store.Parked, onConflict string) error {
	for chunk := range store.Chunks(parked, chunkRows, t.run.Dialect.Limits().Bytes, parkedSize) {
		values := make([]Expr, len(chunk))
		for i := range chunk {
			var err error
			if values[i], err = t.parkedValues(sink, &chunk[i]); err != nil {
				return err
			}
		}
		_, err := t.run.Exec(ctx, tx, `INSERT INTO {parked} (sink, {envelope}, state, attempt, due_at, last_error, attempts, receipt, hook_error, hook_failures, first_parked_at, collect_group, collection, updated_at) VALUES ?`+
			onConflict, Join(", ", values))
		if err != nil {
			return err
		}
	}
	return nil
}

// hooked writes the results of hooks that were called again, for all deliveries with the same result
// together.
func (t *Tables) hooked(ctx context.Context, tx *sql.Tx, sink string, parked []store.Parked) error {
	for len(parked) > 0 {
		p := &parked[0]
		var refs []store.Ref
		for _, other := range parked {
			if other.State != p.State || !other.DueAt.Equal(p.DueAt) || other.HookError != p.HookError || other.HookFailures != p.HookFailures {
				break
			}
			refs = append(refs, store.RefOf(&other.Envelope))
		}
		for chunk := range t.run.Refs(refs) {
			_, err := t.run.Exec(ctx, tx, `UPDATE {parked} SET due_at = ?, hook_error = ?, hook_failures = ?, updated_at = {now}
				WHERE sink = ? AND state = ? AND ("offset", id) IN (?)`,
				t.run.Dialect.BindTime(p.DueAt), p.HookError, p.HookFailures, sink, string(p.State), chunk)
			if err != nil {
				return err
			}
		}
		parked = parked[len(refs):]
	}
	return nil
}

// parkedKey is the primary key of the tables parked and receipts.
var parkedKey = []string{"sink", `"offset"`, "id"}

func (t *Tables) parkedValues(sink string, p *store.Parked) (Expr, error) {
	e := &p.Envelope
	metadata, err := store.EncodeMetadata(e.Metadata)
	if err != nil {
		return Expr{}, err
	}
	first := p.FirstParkedAt
	if first.IsZero() {
		first = time.Now()
	}
	d := t.run.Dialect
	return list(sink, e.Offset, e.Slot, e.ID, e.Type, e.Version, e.Key, d.BindTime(notification.ClampTime(e.OccurredOn)), d.BindTime(e.DeliverAt), metadata, d.BindPayload(e.Payload),
		string(p.State), p.Attempt, d.BindTime(p.DueAt), p.LastError, store.EncodePastAttempts(p.Attempts), string(p.Receipt), p.HookError, p.HookFailures, d.BindTime(first), p.Group, p.Collection, SQL(`{now}`)), nil
}

func (t *Tables) archive(ctx context.Context, tx *sql.Tx, sink string, receipts []store.Receipt) error {
	for chunk := range store.Chunks(receipts, chunkRows, t.run.Dialect.Limits().Bytes, receiptSize) {
		values := make([]Expr, len(chunk))
		for i, r := range chunk {
			values[i] = list(sink, r.Offset, r.ID, string(r.Receipt), r.Attempt, t.run.Dialect.BindTime(r.DeliveredAt))
		}
		// A repeat after a crash keeps the first receipt.
		_, err := t.run.Exec(ctx, tx, `INSERT INTO {receipts} (sink, "offset", id, receipt, attempt, delivered_at) VALUES ?`+
			t.run.Dialect.OnConflict(parkedKey, nil, Condition{}), Join(", ", values))
		if err != nil {
			return err
		}
	}
	return nil
}
