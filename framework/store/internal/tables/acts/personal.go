package acts

import (
	"context"
	"database/sql"
	"slices"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// searchedRows is how many rows of the log one batch looks at, and personalRows how many ids or parked
// deliveries one statement or batch changes.
const (
	searchedRows = 5000
	personalRows = 500
)

// change is what is done with what a filter selects: how the statement on a table begins, and what becomes of
// parked deliveries. What is left out stays.
type change struct {
	step    failpoint.Step
	removes bool // parked deliveries, which forwarders have to notice
	tables  map[string]tables.Expr
	parked  func(ctx context.Context, tx *sql.Tx, sink string, refs []store.Ref) (int, error)
}

// PurgePersonal deletes notifications; see store.Personal. A cancellation stays as long as a delivery is parked
// that it has cancelled. A purge counts in its filter, and names nothing there.
func (t *Acts) PurgePersonal(ctx context.Context, b store.PersonalBatch) (result store.PersonalResult, err error) {
	defer t.run.Tried(&err, "purge notifications")
	return t.changePersonal(ctx, b, change{failpoint.Purge, true, map[string]tables.Expr{
		"log":      tables.SQL(`DELETE FROM {log} WHERE`),
		"receipts": tables.SQL(`DELETE FROM {receipts} WHERE`),
		"inbox":    tables.SQL(`DELETE FROM {inbox} WHERE`),
		"cancelled": tables.SQL(`DELETE FROM {cancelled} WHERE NOT EXISTS (
			SELECT 1 FROM {parked} p WHERE p.id = {cancelled}.id AND p."offset" = {cancelled}."offset") AND`),
		"attempts": tables.SQL(`DELETE FROM {attempts} WHERE`),
		"unique":   tables.SQL(`DELETE FROM {unique} WHERE`),
		"actions":  tables.SQL(`UPDATE {actions} SET filter = CASE action WHEN 'purge' THEN filter ELSE ? END, reason = '' WHERE`, `{}`),
	}, t.purgeParked})
}

// CutPersonal removes texts; see store.Personal. What says which notification has superseded another stays.
func (t *Acts) CutPersonal(ctx context.Context, b store.PersonalBatch) (result store.PersonalResult, err error) {
	defer t.run.Tried(&err, "remove texts about notifications")
	return t.changePersonal(ctx, b, change{failpoint.CutTexts, false, map[string]tables.Expr{
		"receipts": tables.SQL(`UPDATE {receipts} SET receipt = ? WHERE receipt NOT IN ('', ?) AND receipt NOT LIKE ? AND`,
			store.ErasedText, store.ErasedText, string(notification.SupersededBy("%"))),
		"attempts": tables.SQL(`UPDATE {attempts} SET error = CASE error WHEN '' THEN '' ELSE ? END, request = ?, answer = ?
			WHERE (error NOT IN ('', ?) OR request <> ? OR answer <> ?) AND`, store.ErasedText, `{}`, `{}`, store.ErasedText, `{}`, `{}`),
	}, t.cutParked})
}

// changePersonal does one batch.
func (t *Acts) changePersonal(ctx context.Context, b store.PersonalBatch, c change) (result store.PersonalResult, err error) {
	b.Filter, result.Next = given(b.Filter), b.After
	switch b.After.Table {
	case "":
		result.Next.Table = "parked"
		if t.run.Source == nil {
			result.Next.Table = "log"
			result.Next.UpTo, err = t.run.LastOffset(ctx)
		}
	case "log":
		err = t.changeLog(ctx, b, c, &result)
	case "parked":
		err = t.changeParked(ctx, b, c, &result)
	default:
		err = t.changeKnown(ctx, b, c, &result)
	}
	return result, err
}

// changeLog changes what it selects among the next rows of the log, and what became of it.
func (t *Acts) changeLog(ctx context.Context, b store.PersonalBatch, c change, result *store.PersonalResult) error {
	rows, through, err := t.selectedRows(ctx, b.Filter, b.After.After.Offset, b.After.UpTo, tables.SQL(`false`))
	if err != nil {
		return err
	}
	if result.Next.After.Offset = through; through >= b.After.UpTo {
		result.Next = store.PersonalPlace{Table: "parked"}
	}
	return t.inBatch(ctx, b, c, nil, result, func(tx *sql.Tx) (n int, err error) { return t.changeRows(ctx, tx, c, rows) })
}

// changeParked changes what it selects among the next parked deliveries, and what became of it.
func (t *Acts) changeParked(ctx context.Context, b store.PersonalBatch, c change, result *store.PersonalResult) error {
	rows, last, err := t.selectedParked(ctx, b.Filter, b.After.After)
	if result.Next.After = last; last == (store.ParkedPlace{}) {
		result.Next.Table = "actions"
	}
	if err != nil || len(rows) == 0 {
		return err
	}
	sink := rows[0].Sink
	return t.inBatch(ctx, b, c, []string{sink}, result, func(tx *sql.Tx) (n int, err error) {
		if n, err = c.parked(ctx, tx, sink, placesOf(rows)); err != nil {
			return n, err
		}
		ended, err := t.changeEnds(ctx, tx, c, idsOf(rows))
		return n + ended, err
	})
}

// changeKnown changes what is known by the ids and keys of the filter.
func (t *Acts) changeKnown(ctx context.Context, b store.PersonalBatch, c change, result *store.PersonalResult) error {
	result.Done = true
	ids, err := t.knownIDs(ctx, b.Filter)
	if err != nil {
		return err
	}
	return t.inBatch(ctx, b, c, nil, result, func(tx *sql.Tx) (n int, err error) {
		if n, err = t.changeEnds(ctx, tx, c, ids); err != nil {
			return n, err
		}
		actions, err := t.actionsNaming(ctx, tx, b.Filter)
		if err == nil {
			err = t.changeTable(ctx, tx, c, "actions", anyOf(`id`, actions), &n)
		}
		if err == nil {
			err = t.changeTable(ctx, tx, c, "unique", anyOf(`"key"`, b.Filter.Keys), &n)
		}
		return n, err
	})
}

// inBatch runs and counts a batch. It repeats it if the pruner or a checkpoint is in the way, which take rows in
// another order.
func (t *Acts) inBatch(ctx context.Context, b store.PersonalBatch, c change, sinks []string, result *store.PersonalResult, do func(tx *sql.Tx) (int, error)) error {
	const deadlock = "40P01"
	for tries := 1; ; tries++ {
		err := t.operate(ctx, c.step, b.Action, sinks, func(tx *sql.Tx) (changed []string, err error) {
			if result.Changed, err = do(tx); err != nil {
				return nil, err
			}
			if c.removes && result.Changed > 0 {
				changed = sinks
			}
			return changed, t.run.Count(ctx, tx, b.Action, result.Changed)
		})
		if d := t.run.Dialect; err == nil || tries == 5 || !d.Collides(err) && d.SQLState(err) != deadlock {
			return err
		}
	}
}

// changeRows changes rows of the log, and what became of them.
func (t *Acts) changeRows(ctx context.Context, tx *sql.Tx, c change, rows []selected) (n int, err error) {
	for chunk := range slices.Chunk(rows, personalRows) {
		first, last := chunk[0].Offset, chunk[len(chunk)-1].Offset
		where := tables.SQL(`"offset" >= ? AND "offset" <= ? AND ("offset", id) IN (?)`, first, last, t.run.Dialect.Refs(placesOf(chunk)))
		if err := t.changeTable(ctx, tx, c, "log", where, &n); err != nil {
			return n, err
		}
		ended, err := t.changeEnds(ctx, tx, c, idsOf(chunk))
		if n += ended; err != nil {
			return n, err
		}
	}
	return n, nil
}

// changeEnds changes what became of notifications.
func (t *Acts) changeEnds(ctx context.Context, tx *sql.Tx, c change, ids []string) (n int, err error) {
	for chunk := range slices.Chunk(ids, personalRows) {
		for _, e := range ends {
			where, err := t.endsOf(ctx, tx, e, chunk)
			if err == nil {
				err = t.changeTable(ctx, tx, c, e.table, where, &n)
			}
			if err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// changeTable changes rows of one table, and counts them.
func (t *Acts) changeTable(ctx context.Context, tx *sql.Tx, c change, table string, where tables.Expr, n *int) error {
	statement, changes := c.tables[table]
	if !changes {
		return nil
	}
	changed, err := t.run.Exec(ctx, tx, `? ?`, statement, where)
	*n += int(changed)
	return err
}

// purgeParked removes deliveries as Discard does, and groups of collections that have no members any more.
func (t *Acts) purgeParked(ctx context.Context, tx *sql.Tx, sink string, refs []store.Ref) (int, error) {
	batch, err := tables.List(ctx, t.run, tx, func(rows *sql.Rows, c *chosen) error {
		return rows.Scan(&c.Offset, &c.ID, &c.collection.Group, &c.collection.Number)
	}, `SELECT "offset", id, collect_group, CASE WHEN state IN ('dead', 'collecting') THEN collection ELSE '' END
		FROM {parked} WHERE sink = ? AND ("offset", id) IN (?) {whole parked collections}`, sink, t.run.Dialect.Refs(refs))
	if err != nil {
		return 0, err
	}
	if err := t.remove(ctx, tx, sink, batch); err != nil {
		return 0, err
	}
	var groups []string
	for _, c := range batch {
		if c.collection.Group != "" && !slices.Contains(groups, c.collection.Group) {
			groups = append(groups, c.collection.Group)
		}
	}
	_, err = t.run.Exec(ctx, tx, `DELETE FROM {collections} WHERE sink = ? AND ? AND NOT EXISTS (
		SELECT 1 FROM {parked} p WHERE p.sink = {collections}.sink AND p.collect_group = {collections}.collect_group AND p.collect_group <> '')`,
		sink, anyOf(`collect_group`, groups))
	return len(batch), err
}

// cutParked removes texts from deliveries.
func (t *Acts) cutParked(ctx context.Context, tx *sql.Tx, sink string, refs []store.Ref) (int, error) {
	var set, uncut []tables.Expr
	for _, column := range []string{"last_error", "hook_error", "receipt"} {
		set = append(set, tables.SQL(column+` = CASE `+column+` WHEN '' THEN '' ELSE ? END`, store.ErasedText))
		uncut = append(uncut, tables.SQL(column+` NOT IN ('', ?)`, store.ErasedText))
	}
	changed, err := t.run.Exec(ctx, tx, `UPDATE {parked} SET ?, attempts = '' WHERE sink = ? AND ("offset", id) IN (?) AND (attempts <> '' OR ?)`,
		tables.Join(`, `, set), sink, t.run.Dialect.Refs(refs), tables.Join(` OR `, uncut))
	return int(changed), err
}
