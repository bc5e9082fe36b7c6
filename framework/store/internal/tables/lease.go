package tables

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/store"
)

// Update is an UPDATE of one cursor.
type Update struct{ Set, Where Expr }

// LeaseColumns are the columns of its cursor that a lease returns.
const LeaseColumns = `epoch, position, settled, revision, checkpoint, types`

// LeaseRow holds LeaseColumns.
type LeaseRow struct {
	Epoch    int64
	Position []byte
	Settled  string
	Revision int64
	// Checkpoint is the number of the last checkpoint.
	Checkpoint int64
	Types      sql.NullString
	// Server is the life of the server that gave the lease; "" if the database has none.
	Server string
}

// Acquire leases a lane; see store.Leases. Each Checkpoint renews the lease.
func (t *Tables) Acquire(ctx context.Context, lane store.Lane, owner string, ttl time.Duration) (store.Lease, error) {
	row := LeaseRow{}
	update := Update{
		Set: SQL(`owner = ?, epoch = epoch + 1, lease_until = ?, updated_at = {now}`, owner, t.run.Dialect.NowPlus(ttl)),
		Where: SQL(`sink = ? AND lane = ? AND lanes = ? AND (owner IS NULL OR owner = ? OR lease_until <= {now})`,
			lane.Sink, lane.Number, lane.Of, owner),
	}
	err := failpoint.Lease.Do(func() error { return t.run.Dialect.WriteLease(ctx, t.run.Own(), update, &row) })
	lease := store.Lease{Lane: lane, Owner: owner, Epoch: row.Epoch, Server: row.Server, Revision: row.Revision, Checkpoint: row.Checkpoint}
	switch {
	case errors.Is(err, sql.ErrNoRows):
		err = t.whyNoLease(ctx, lane)
	case err != nil && t.run.Dialect.Collides(err):
		err = store.ErrLeaseHeld
	case err == nil:
		if lease.Settled, err = store.DecodeOffsets(row.Settled); err == nil {
			lease.Types, err = DecodeTypes(row.Types)
		}
	}
	if err != nil {
		return store.Lease{}, t.run.Failed(err, "lease %s/%d", lane.Sink, lane.Number)
	}
	if len(row.Position) > 0 {
		lease.Position = json.RawMessage(row.Position)
	}
	return lease, nil
}

// WriteLease is Dialect.WriteLease for databases with UPDATE … RETURNING.
func WriteLease(ctx context.Context, r *Runner, db *sql.DB, u Update, row *LeaseRow) error {
	return r.Row(ctx, db, `UPDATE {cursors} SET ? WHERE ? RETURNING `+LeaseColumns, u.Set, u.Where).
		Scan(&row.Epoch, &row.Position, &row.Settled, &row.Revision, &row.Checkpoint, &row.Types)
}

// WriteLeaseInTwo is Dialect.WriteLease for other databases.
func WriteLeaseInTwo(ctx context.Context, r *Runner, db Beginner, u Update, row *LeaseRow) error {
	return inTx(ctx, db, failpoint.Lease, func(tx *sql.Tx) error {
		// The write comes first: it waits for the row and locks it.
		written, err := r.Exec(ctx, tx, `UPDATE {cursors} SET ? WHERE ?`, u.Set, u.Where)
		if err == nil && written == 0 {
			err = sql.ErrNoRows
		}
		if err != nil {
			return err
		}
		return r.Row(ctx, tx, `SELECT `+LeaseColumns+` FROM {cursors} WHERE ?`, u.Where).
			Scan(&row.Epoch, &row.Position, &row.Settled, &row.Revision, &row.Checkpoint, &row.Types)
	})
}

// whyNoLease distinguishes a leased lane from one that does not exist.
func (t *Tables) whyNoLease(ctx context.Context, lane store.Lane) error {
	var exists bool
	err := t.run.Row(ctx, t.run.Own(), `SELECT EXISTS (SELECT 1 FROM {cursors} WHERE sink = ? AND lane = ? AND lanes = ?) {whole cursors}`,
		lane.Sink, lane.Number, lane.Of).Scan(&exists)
	switch {
	case err != nil:
		return err
	case exists:
		return store.ErrLeaseHeld
	}
	return store.ErrLanes
}

// Release ends a lease; see store.Leases.
func (t *Tables) Release(ctx context.Context, lease store.Lease) (err error) {
	defer t.run.Tried(&err, "release %s/%d", lease.Lane.Sink, lease.Lane.Number)
	_, err = t.run.Write(ctx, failpoint.Release, `?`, t.run.Dialect.Announce(SQL(
		`UPDATE {cursors} SET owner = NULL, lease_until = NULL, updated_at = {now} WHERE ?`, holder(lease))))
	return err
}

// holder is the condition that a cursor still has this lease.
func holder(lease store.Lease) Expr {
	return SQL(`sink = ? AND lane = ? AND owner = ? AND epoch = ?`, lease.Lane.Sink, lease.Lane.Number, lease.Owner, lease.Epoch)
}
