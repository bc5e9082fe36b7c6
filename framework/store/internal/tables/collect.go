package tables

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// A group with open or closed members has a row in {collections}: how many open members it has, when they are due, and
// which closed collection is being delivered. Its members are parked. Lanes of several forwarders add members to one
// group, so whatever changes a group locks its row first, before any parked one, and rows in the order of their groups.
// Only closing takes them in the order of their times, and leaves out what is locked.
//
// The number of open members is never too small, so no member is left behind. It may be too large: a person has
// discarded some, or they were read from the log once more. Closing looks at the members.

// openGroup is what a checkpoint adds to a group.
type openGroup struct{ slot, members int }

// lockGroups locks the groups to which a checkpoint adds members, and those whose collections end, and counts the new
// members.
func (t *Tables) lockGroups(ctx context.Context, tx *sql.Tx, c *store.Checkpoint) error {
	groups := make(map[string]openGroup)
	for _, ended := range c.Collected {
		groups[ended.Group] = openGroup{}
	}
	for i := range c.Collect {
		p := &c.Collect[i]
		groups[p.Group] = openGroup{p.Envelope.Slot, groups[p.Group].members + 1}
	}
	if len(groups) == 0 {
		return nil
	}
	now, terms := time.Now(), c.CollectTerms
	due, by := now.Add(min(terms.Wait, terms.MaxWait)), now.Add(terms.MaxWait)
	size := cmp.Or(terms.Size, 1<<31-1)
	d := t.run.Dialect
	// MySQL assigns in this order, each time with what is assigned already.
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
			values[i] = list(c.Lease.Lane.Sink, name, g.slot, g.members, d.BindTime(dueAt), d.BindTime(by))
		}
		if _, err := t.run.Exec(ctx, tx, `INSERT INTO {collections} (sink, collect_group, slot, members, due_at, due_by) VALUES ? ?`, Join(", ", values), merge); err != nil {
			return err
		}
	}
	return nil
}

func groupSize(name *string) int { return len(*name) + rowBytes }

// collect parks new members, and ends closed collections, after lockGroups.
func (t *Tables) collect(ctx context.Context, tx *sql.Tx, sink string, c *store.Checkpoint) error {
	if err := t.insertParked(ctx, tx, sink, c.Collect, t.run.Dialect.OnConflict(parkedKey, nil, Condition{})); err != nil {
		return err
	}
	return t.run.EndCollections(ctx, tx, sink, c.Collected)
}

// EndCollections ends closed collections. Their groups can go on, and those without members are gone. No condition is
// one for the index of closed: MySQL would wait there for groups that others have locked.
func (r *Runner) EndCollections(ctx context.Context, tx *sql.Tx, sink string, ended []store.CollectionRef) error {
	for number, groups := range byNumber(ended) {
		if _, err := r.Exec(ctx, tx, `UPDATE {collections} SET closed = '' WHERE sink = ? AND collect_group IN ? AND coalesce(closed, '') = ?`, sink, list(groups...), number); err != nil {
			return err
		}
		if _, err := r.Exec(ctx, tx, `DELETE FROM {collections} WHERE sink = ? AND collect_group IN ? AND members = 0 AND coalesce(closed, '') = ''`, sink, list(groups...)); err != nil {
			return err
		}
	}
	return nil
}

// BeginCollections makes the first members of closed collections due, unless a member is, and returns collections that
// have no members.
func (r *Runner) BeginCollections(ctx context.Context, tx *sql.Tx, sink string, collections []store.CollectionRef) (empty []store.CollectionRef, err error) {
	for number, groups := range byNumber(collections) {
		found := make(map[string]bool)
		var first []any // offsets
		err := r.Each(ctx, tx, func(rows *sql.Rows) error {
			var group string
			var offset int64
			var due int
			if err := rows.Scan(&group, &offset, &due); err != nil {
				return err
			}
			found[group] = true
			if due == 0 {
				first = append(first, offset)
			}
			return nil
		}, `SELECT collect_group, min("offset"), count(due_at) FROM {parked} WHERE ? AND state = 'collecting' GROUP BY collect_group {whole parked}`, InCollections(sink, number, groups))
		if err != nil {
			return nil, err
		}
		for _, group := range groups {
			if name := group.(string); !found[name] {
				empty = append(empty, store.CollectionRef{Group: name, Number: number})
			}
		}
		if len(first) == 0 {
			continue
		}
		if _, err := r.Exec(ctx, tx, `UPDATE {parked} SET due_at = (SELECT {now}), updated_at = {now} WHERE ? AND state = 'collecting' AND "offset" IN ?`,
			InCollections(sink, number, groups), list(first...)); err != nil {
			return nil, err
		}
	}
	return empty, nil
}

// ReopenCollections makes dead collections due as they were, and tries others again at once.
func (r *Runner) ReopenCollections(ctx context.Context, tx *sql.Tx, sink string, collections []store.CollectionRef) error {
	for number, groups := range byNumber(collections) {
		_, err := r.Exec(ctx, tx, `UPDATE {parked} SET state = 'collecting', due_at = NULL, attempt = 0, hook_error = '', hook_failures = 0, updated_at = {now}
			WHERE ? AND state IN ('dead', 'collecting')`, InCollections(sink, number, groups))
		if err != nil {
			return err
		}
	}
	_, err := r.BeginCollections(ctx, tx, sink, collections)
	return err
}

// InCollections is the condition that parked deliveries are in closed collections with one number, which is that of
// all that were closed together.
func InCollections(sink, number string, groups []any) Expr {
	return SQL(`sink = ? AND collect_group <> '' AND collect_group IN ? AND collection = ?`, sink, list(groups...), number)
}

// byNumber returns the groups of collections by their numbers, as many together as a statement takes.
func byNumber(collections []store.CollectionRef) iter.Seq2[string, []any] {
	groups := make(map[string][]any)
	for _, c := range collections {
		groups[c.Number] = append(groups[c.Number], c.Group)
	}
	return func(yield func(string, []any) bool) {
		for _, number := range slices.Sorted(maps.Keys(groups)) {
			for chunk := range slices.Chunk(groups[number], chunkRows) {
				if !yield(number, chunk) {
					return
				}
			}
		}
	}
}

const (
	// closeMembers is how many members are closed in a statement, and how many a collection can have.
	closeMembers = 10_000
	// closeNewest is how many members of a group are superseded at once.
	closeNewest = 1000
)

// closing is a group whose collection is due.
type closing struct {
	group   string
	members []store.Ref
	rest    bool // it has more members
	large   bool // since their payloads are large
}

// CloseCollections closes collections that are due; see store.Deliveries. What another transaction has locked is left
// for the next time.
func (t *Tables) CloseCollections(ctx context.Context, q store.CloseQuery) (closed store.Closed, err error) {
	lane := q.Lease.Lane
	defer t.run.Tried(&err, "close collections of %s/%d", lane.Sink, lane.Number)
	q.Size = min(cmp.Or(q.Size, closeMembers), closeMembers)
	if q.Newest {
		q.Size = min(q.Size, closeNewest)
	}
	query := t.run.DueGroupsQuery(lane, q.Now, 1)
	due, err := Column[string](ctx, t.run, t.run.Own(), query.Text, query.Args...)
	if err == nil && len(due) > 0 {
		closed, err = t.closeDue(ctx, q)
	}
	if err != nil {
		return store.Closed{}, err
	}
	query = t.run.NextGroupQuery(lane, q.Now)
	err = t.run.Row(ctx, t.run.Own(), query.Text, query.Args...).Scan(t.run.Into(&closed.Next))
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return closed, err
}

// DueGroupsQuery finds groups of a lane with a collection that can be closed.
func (r *Runner) DueGroupsQuery(lane store.Lane, now time.Time, limit int) Expr {
	return SQL(`SELECT collect_group FROM {collections} WHERE sink = ? AND closed = '' AND members > 0 AND slot BETWEEN ? AND ? AND due_at <= ?
		ORDER BY due_at {limit} ? {whole collections}`, lane.Sink, lane.Slots.First, lane.Slots.Last, r.Dialect.BindTime(now), limit)
}

// NextGroupQuery finds the time of the next collection: what is due in other lanes is left to these.
func (r *Runner) NextGroupQuery(lane store.Lane, now time.Time) Expr {
	return SQL(`SELECT due_at FROM {collections} WHERE sink = ? AND closed = '' AND members > 0 AND (due_at > ? OR slot BETWEEN ? AND ?)
		ORDER BY due_at LIMIT 1 {whole collections}`, lane.Sink, r.Dialect.BindTime(now), lane.Slots.First, lane.Slots.Last)
}

func (t *Tables) closeDue(ctx context.Context, q store.CloseQuery) (closed store.Closed, err error) {
	renewal := store.Checkpoint{Lease: q.Lease, TTL: q.TTL}
	u, err := t.cursorUpdate(&renewal)
	if err != nil {
		return closed, err
	}
	var renewed func() error
	err = inTx(ctx, t.run.Own(), failpoint.Collect, func(tx *sql.Tx) (err error) {
		if renewed, err = t.run.Dialect.MoveCursor(ctx, tx, &renewal, u); err != nil || renewed == nil {
			return err
		}
		groups, err := Column[string](ctx, t.run, tx, `?`+t.run.Dialect.Locking(), t.run.DueGroupsQuery(q.Lease.Lane, q.Now, q.Limit))
		if err != nil {
			return err
		}
		number := uuid.Must(uuid.NewV7()).String()
		for part := range slices.Chunk(groups, max(1, closeMembers/q.Size)) {
			due, err := t.openMembers(ctx, tx, q, part)
			if err != nil {
				return err
			}
			c, err := t.close(ctx, tx, q, number, due)
			if err != nil {
				return err
			}
			closed.Collections, closed.Superseded = closed.Collections+c.Collections, closed.Superseded+c.Superseded
		}
		return nil
	})
	if err != nil || renewed == nil {
		return store.Closed{}, err
	}
	return closed, renewed()
}

// openMembers returns the first open members of groups, as many as one collection takes.
func (t *Tables) openMembers(ctx context.Context, tx *sql.Tx, q store.CloseQuery, groups []string) ([]closing, error) {
	due, bytes := make([]closing, len(groups)), make([]int, len(groups))
	for i, group := range groups {
		due[i].group = group
	}
	statement := t.run.keysAtOnce(len(groups))
	for first := 0; first < len(groups); first += statement {
		query := t.run.OpenMembersQuery(q.Lease.Lane.Sink, groups[first:min(first+statement, len(groups))], q.Size+1)
		err := t.run.Each(ctx, tx, func(rows *sql.Rows) error {
			var place, size int
			var ref store.Ref
			if err := rows.Scan(&place, &ref.Offset, &ref.ID, &size); err != nil {
				return err
			}
			g := &due[first+place]
			tooLarge := !q.Newest && len(g.members) > 0 && bytes[first+place]+size > PageBytes
			g.large = g.large || tooLarge && !g.rest
			if g.rest = g.rest || tooLarge || len(g.members) == q.Size; !g.rest {
				g.members = append(g.members, ref)
				bytes[first+place] += size
			}
			return nil
		}, query.Text, query.Args...)
		if err != nil {
			return nil, err
		}
	}
	return due, nil
}

// keysAtOnce returns how many of some keys a statement with Dialect.Asked takes.
func (r *Runner) keysAtOnce(keys int) int {
	if r.Dialect.Asked(nil).Text == "" {
		return 1
	}
	return max(1, keys)
}

// OpenMembersQuery finds the first open members of groups, with the index of the group in the list and the size of
// the payload. Only databases that can list groups take several.
func (r *Runner) OpenMembersQuery(sink string, groups []string, limit int) Expr {
	const open = `sink = ? AND collect_group = ? AND collect_group <> '' AND collection = '' AND state = 'collecting' ORDER BY "offset", id {limit} ?`
	size := r.Dialect.PayloadSize()
	asked := r.Dialect.Asked(groups)
	if asked.Text == "" {
		return SQL(`SELECT 0, "offset", id, `+size+` FROM {parked} WHERE `+open+` {whole parked}`, sink, groups[0], limit)
	}
	return SQL(`SELECT place - 1, "offset", id, size FROM ? AS asked (name, place)
		CROSS JOIN LATERAL (SELECT "offset", id, `+size+` AS size FROM {parked} WHERE `+open+`) p ORDER BY place, "offset", id {whole parked}`,
		asked, sink, SQL(`asked.name`), limit)
}

// close closes the collections of groups, which are locked.
func (t *Tables) close(ctx context.Context, tx *sql.Tx, q store.CloseQuery, number string, due []closing) (closed store.Closed, err error) {
	d, sink := t.run.Dialect, q.Lease.Lane.Sink
	now := d.BindTime(q.Now)
	var members, heads, superseded []store.Ref
	var receipts []store.Receipt
	var whole, full, part, newer, gone []any // groups
	for _, g := range due {
		refs := g.members
		if len(refs) == 0 { // a person has discarded them
			gone = append(gone, g.group)
			continue
		}
		if q.Newest {
			last := len(refs) - 1
			for _, r := range refs[:last] {
				superseded = append(superseded, r)
				receipts = append(receipts, store.Receipt{Offset: r.Offset, ID: r.ID, Receipt: notification.SupersededBy(refs[last].ID), DeliveredAt: q.Now})
			}
			if g.rest { // a later one is the newest
				newer = append(newer, g.group)
				continue
			}
			refs = refs[last:]
		}
		members, heads = append(members, refs...), append(heads, refs[0])
		switch {
		case g.large:
			part = append(part, g.group)
		case g.rest:
			full = append(full, g.group)
		default:
			whole = append(whole, g.group)
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
	}{{members, SQL(`collection = ?`, number)}, {heads, SQL(`due_at = ?`, now)}} {
		for chunk := range t.run.Refs(change.refs) {
			if _, err := t.run.Exec(ctx, tx, `UPDATE {parked} SET ?, updated_at = {now} WHERE sink = ? AND ("offset", id) IN (?)`, change.set, sink, chunk); err != nil {
				return closed, err
			}
		}
	}
	// What is left of a full collection opens the next one, and what is left of a large one is due at once, also
	// after more members have come.
	for _, change := range []struct {
		groups []any
		do     Expr
	}{
		{whole, SQL(`UPDATE {collections} SET closed = ?, members = 0`, number)},
		{full, SQL(`UPDATE {collections} SET closed = ?, due_at = ?, due_by = ?, members = CASE WHEN members > ? THEN members - ? ELSE 1 END`,
			number, d.BindTime(q.Now.Add(min(q.Wait, q.MaxWait))), d.BindTime(q.Now.Add(q.MaxWait)), q.Size, q.Size)},
		{part, SQL(`UPDATE {collections} SET closed = ?, members = 1, due_at = ?, due_by = ?`, number, now, now)},
		{newer, SQL(`UPDATE {collections} SET members = 1, due_at = ?, due_by = ?`, now, now)},
		{gone, SQL(`DELETE FROM {collections}`)},
	} {
		for groups := range slices.Chunk(change.groups, chunkRows) {
			if _, err := t.run.Exec(ctx, tx, `? WHERE sink = ? AND collect_group IN ?`, change.do, sink, list(groups...)); err != nil {
				return closed, err
			}
		}
	}
	for groups := range slices.Chunk(full, chunkRows) {
		if _, err := t.run.Exec(ctx, tx, `UPDATE {collections} SET due_at = ? WHERE sink = ? AND collect_group IN ? AND members >= ?`, now, sink, list(groups...), q.Size); err != nil {
			return closed, err
		}
	}
	return closed, nil
}

// membersAtOnce is of how many collections the members are read together: the database sorts them.
const membersAtOnce = 100

// Members returns the members of closed collections; see store.Deliveries.
func (t *Tables) Members(ctx context.Context, sink string, collections []store.CollectionRef) (members []store.Parked, answered int, err error) {
	defer t.run.Tried(&err, "members of collections of %s", sink)
	size, statement := 0, t.run.keysAtOnce(membersAtOnce)
	for answered < len(collections) && (answered == 0 || size < PageBytes) {
		number := collections[answered].Number // those closed together have the same
		var groups []string
		for _, c := range collections[answered:min(answered+statement, len(collections))] {
			if c.Number != number {
				break
			}
			groups = append(groups, c.Group)
		}
		done := len(groups)
		query, args := t.run.Render(t.run.MembersQuery(sink, number, groups))
		place := 0
		err := t.run.Dialect.EachParked(ctx, t.run.Own(), query, args, func(d *store.ParkedDelivery) (bool, error) {
			for ; groups[place] != d.Group; place++ {
				if size >= PageBytes {
					done = place + 1
					return false, nil
				}
			}
			members = append(members, d.Parked)
			size += store.Size(&d.Envelope)
			return true, nil
		})
		if err != nil {
			return nil, 0, err
		}
		answered += done
	}
	return members, answered, nil
}

// MembersQuery finds the members of closed collections with one number, in the order of their groups. Only databases
// that can list groups take several.
func (r *Runner) MembersQuery(sink, number string, groups []string) Expr {
	const closed = `sink = ? AND collect_group = ? AND collect_group <> '' AND collection = ? AND state = 'collecting' ORDER BY "offset", id`
	asked := r.Dialect.Asked(groups)
	if asked.Text == "" {
		return ParkedQuery(SQL(closed, sink, groups[0], number))
	}
	return SQL(`SELECT `+ParkedColumns+` FROM ? AS asked (name, place)
		CROSS JOIN LATERAL (SELECT * FROM {parked} WHERE `+closed+` {limit} ?) p ORDER BY place, "offset", id {whole parked}`,
		asked, sink, SQL(`asked.name`), number, closeMembers)
}
