package tables

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// A group with open or closed members has a row in {collections}: how many open members it has, when they are due, and
// which closed collection is being delivered. Its members are parked. Lanes of several forwarders add
// members to one group, so whoever changes a group locks its row first, and rows in the order of their groups.

// openGroup is what a checkpoint adds to a group.
type openGroup struct{ slot, members int }

// collect adds members to the open collections of their groups, and ends closed collections.
func (t *Tables) collect(ctx context.Context, tx *sql.Tx, sink string, c *store.Checkpoint) error {
	if len(c.Collect) == 0 && len(c.Collected) == 0 {
		return nil
	}
	groups := make(map[string]openGroup)
	for _, ended := range c.Collected {
		groups[ended.Group] = openGroup{} // locks its row in its turn
	}
	for i := range c.Collect {
		p := &c.Collect[i]
		groups[p.Group] = openGroup{p.Envelope.Slot, groups[p.Group].members + 1}
	}
	if err := t.lockGroups(ctx, tx, sink, groups, c.CollectTerms); err != nil {
		return err
	}
	if err := t.insertParked(ctx, tx, sink, c.Collect, t.run.Dialect.OnConflict(parkedKey, nil, Condition{})); err != nil {
		return err
	}
	return t.run.EndCollections(ctx, tx, sink, c.Collected)
}

// lockGroups locks the rows of groups, and counts their new members.
func (t *Tables) lockGroups(ctx context.Context, tx *sql.Tx, sink string, groups map[string]openGroup, terms store.CollectTerms) error {
	now := time.Now()
	due, by := now.Add(min(terms.Wait, terms.MaxWait)), now.Add(terms.MaxWait)
	size := cmp.Or(terms.Size, 1<<31-1)
	d := t.run.Dialect
	merge := d.Merge("collections", []string{"sink", "collect_group"}, SQL(`due_at = CASE WHEN new.members = 0 THEN old.due_at WHEN old.members + new.members >= ? THEN ?
			WHEN old.members > 0 AND old.due_by < new.due_at THEN old.due_by ELSE new.due_at END,
		due_by = CASE WHEN new.members > 0 AND old.members = 0 THEN new.due_by ELSE old.due_by END,
		members = old.members + new.members`, size, d.BindTime(now)))
	for chunk := range store.Chunks(slices.Sorted(maps.Keys(groups)), chunkRows, d.Limits().Bytes, groupSize) {
		values := make([]Expr, len(chunk))
		for i, name := range chunk {
			g, dueAt := groups[name], due
			if g.members >= size {
				dueAt = now
			}
			values[i] = list(sink, name, g.slot, g.members, d.BindTime(dueAt), d.BindTime(by))
		}
		if _, err := t.run.Exec(ctx, tx, `INSERT INTO {collections} (sink, collect_group, slot, members, due_at, due_by) VALUES ? ?`, Join(", ", values), merge); err != nil {
			return err
		}
	}
	return nil
}

func groupSize(name *string) int { return len(*name) + rowBytes }

// EndCollections ends closed collections. Their groups can go on, and those without members are gone.
func (r *Runner) EndCollections(ctx context.Context, tx *sql.Tx, sink string, ended []store.CollectionRef) error {
	for chunk := range store.Chunks(ended, chunkRows, r.Dialect.Limits().Bytes, collectionSize) {
		refs := make([]Expr, len(chunk))
		groups := make([]any, len(chunk))
		for i, c := range chunk {
			refs[i], groups[i] = list(c.Group, c.Number), c.Group
		}
		if _, err := r.Exec(ctx, tx, `UPDATE {collections} SET closed = '' WHERE sink = ? AND (collect_group, closed) IN (?)`, sink, Join(", ", refs)); err != nil {
			return err
		}
		if _, err := r.Exec(ctx, tx, `DELETE FROM {collections} WHERE sink = ? AND members = 0 AND closed = '' AND collect_group IN ?`, sink, list(groups...)); err != nil {
			return err
		}
	}
	return nil
}

func collectionSize(c *store.CollectionRef) int { return len(c.Group) + len(c.Number) + rowBytes }

// closing is a group whose collection is due.
type closing struct {
	group   string
	members []store.Ref // the first ones, up to one more than the size
}

// CloseCollections closes collections that are due; see store.Deliveries. What another transaction has
// locked is left to it.
func (t *Tables) CloseCollections(ctx context.Context, q store.CloseQuery) (closed store.Closed, err error) {
	lane := q.Lease.Lane
	defer t.run.Tried(&err, "close collections of %s/%d", lane.Sink, lane.Number)
	due, err := Column[string](ctx, t.run, t.run.Own(), dueGroups+` LIMIT 1 {whole collections}`, lane.Sink, lane.Slots.First, lane.Slots.Last, t.run.Dialect.BindTime(q.Now))
	if err == nil && len(due) > 0 {
		closed, err = t.closeDue(ctx, q)
	}
	if err != nil {
		return closed, err
	}
	err = t.run.Row(ctx, t.run.Own(), `SELECT min(due_at) FROM {collections} WHERE sink = ? AND closed = '' AND members > 0 {whole collections}`, lane.Sink).Scan(t.run.Into(&closed.Next))
	return closed, err
}

const dueGroups = `SELECT collect_group FROM {collections} WHERE sink = ? AND closed = '' AND members > 0 AND slot BETWEEN ? AND ? AND due_at <= ? ORDER BY due_at`

func (t *Tables) closeDue(ctx context.Context, q store.CloseQuery) (closed store.Closed, err error) {
	lane := q.Lease.Lane
	renewal := store.Checkpoint{Lease: q.Lease, TTL: q.TTL}
	u, err := t.cursorUpdate(&renewal)
	if err != nil {
		return closed, err
	}
	var renewed func() error
	err = inTx(ctx, t.run.Own(), failpoint.Collect, func(tx *sql.Tx) (err error) {
		if renewed, err = t.run.Dialect.MoveCursor(ctx, tx, &renewal, u); err != nil {
			return err
		}
		groups, err := Column[string](ctx, t.run, tx, dueGroups+` LIMIT ? {whole collections}`+t.run.Dialect.Locking(),
			lane.Sink, lane.Slots.First, lane.Slots.Last, t.run.Dialect.BindTime(q.Now), q.Limit)
		if err != nil || len(groups) == 0 {
			return err
		}
		due, err := t.openMembers(ctx, tx, lane.Sink, groups, q.Size+1)
		if err != nil {
			return err
		}
		closed, err = t.close(ctx, tx, q, due)
		return err
	})
	if err != nil {
		return store.Closed{}, err
	}
	return closed, renewed()
}

// openMembers returns the first open members of groups, up to limit of each.
func (t *Tables) openMembers(ctx context.Context, tx *sql.Tx, sink string, groups []string, limit int) ([]closing, error) {
	due := make([]closing, len(groups))
	for i, group := range groups {
		refs, err := List(ctx, t.run, tx, func(rows *sql.Rows, r *store.Ref) error { return rows.Scan(&r.Offset, &r.ID) },
			`SELECT "offset", id FROM {parked} WHERE sink = ? AND collect_group = ? AND collect_group <> '' AND collection = '' AND state = 'collecting'
			ORDER BY "offset", id {limit} ? {whole parked}`, sink, group, limit)
		if err != nil {
			return nil, err
		}
		due[i] = closing{group, refs}
	}
	return due, nil
}

// close closes the collections of groups.
func (t *Tables) close(ctx context.Context, tx *sql.Tx, q store.CloseQuery, due []closing) (closed store.Closed, err error) {
	sink := q.Lease.Lane.Sink
	number := uuid.Must(uuid.NewV7()).String()
	var members, heads, superseded []store.Ref
	var receipts []store.Receipt
	var delivered, partly, more, gone []any // groups
	for _, g := range due {
		rest := len(g.members) > q.Size
		refs := g.members[:min(len(g.members), q.Size)]
		if len(refs) == 0 { // a person has discarded them
			gone = append(gone, g.group)
			continue
		}
		if q.Newest {
			last := refs[len(refs)-1]
			for _, r := range refs[:len(refs)-1] {
				superseded = append(superseded, r)
				receipts = append(receipts, store.Receipt{Offset: r.Offset, ID: r.ID, Receipt: notification.SupersededBy(last.ID), DeliveredAt: q.Now})
			}
			if rest { // a later one is the newest
				partly = append(partly, g.group)
				continue
			}
			refs = refs[len(refs)-1:]
		}
		members, heads = append(members, refs...), append(heads, refs[0])
		if rest {
			more = append(more, g.group)
		} else {
			delivered = append(delivered, g.group)
		}
	}
	closed.Collections, closed.Superseded = len(heads), len(superseded)
	if err := t.run.Unpark(ctx, tx, sink, superseded); err != nil {
		return closed, err
	}
	if t.receipts {
		if err := t.archive(ctx, tx, sink, receipts); err != nil {
			return closed, err
		}
	}
	for _, change := range []struct {
		refs []store.Ref
		set  Expr
	}{{members, SQL(`collection = ?`, number)}, {heads, SQL(`due_at = ?`, t.run.Dialect.BindTime(q.Now))}} {
		for chunk := range t.run.Refs(change.refs) {
			if _, err := t.run.Exec(ctx, tx, `UPDATE {parked} SET ?, updated_at = {now} WHERE sink = ? AND ("offset", id) IN (?)`, change.set, sink, chunk); err != nil {
				return closed, err
			}
		}
	}
	for _, change := range []struct {
		groups []any
		do     Expr
	}{
		{delivered, SQL(`UPDATE {collections} SET closed = ?, members = 0`, number)},
		{more, SQL(`UPDATE {collections} SET closed = ?, members = 1`, number)},
		{gone, SQL(`DELETE FROM {collections}`)},
	} {
		for groups := range slices.Chunk(change.groups, chunkRows) {
			if _, err := t.run.Exec(ctx, tx, `? WHERE sink = ? AND collect_group IN ?`, change.do, sink, list(groups...)); err != nil {
				return closed, err
			}
		}
	}
	return closed, nil
}

// Members returns the members of closed collections; see store.Deliveries.
func (t *Tables) Members(ctx context.Context, sink string, collections []store.CollectionRef) (members []store.Parked, answered int, err error) {
	defer t.run.Tried(&err, "members of collections of %s", sink)
	size := 0
	for _, c := range collections {
		query, args := t.run.Render(ParkedQuery(SQL(`sink = ? AND collect_group = ? AND collect_group <> '' AND collection = ? AND state = 'collecting'
			ORDER BY "offset", id`, sink, c.Group, c.Number)))
		err := t.run.Dialect.EachParked(ctx, t.run.Own(), query, args, func(d *store.ParkedDelivery) (bool, error) {
			members = append(members, d.Parked)
			size += store.Size(&d.Envelope)
			return true, nil
		})
		if err != nil {
			return nil, 0, err
		}
		answered++
		if size >= PageBytes {
			break
		}
	}
	return members, answered, nil
}
