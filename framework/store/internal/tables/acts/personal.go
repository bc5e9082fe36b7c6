package acts

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

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
	step   failpoint.Step
	tables map[string]tables.Expr
	parked func(ctx context.Context, tx *sql.Tx, sink string, refs []store.Ref) (n int, raise bool, err error)
}

// PurgePersonal deletes notifications; see store.Personal. A cancellation stays as long as a delivery is parked
// that it has cancelled. A purge counts in its filter, and names nothing there.
func (t *Acts) PurgePersonal(ctx context.Context, b store.PersonalBatch) (result store.PersonalResult, err error) {
	defer t.run.Tried(&err, "purge notifications")
	return t.changePersonal(ctx, b, change{failpoint.Purge, map[string]tables.Expr{
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
	return t.changePersonal(ctx, b, change{failpoint.CutTexts, map[string]tables.Expr{
		"receipts": tables.SQL(`UPDATE {receipts} SET receipt = ? WHERE receipt NOT IN ('', ?) AND receipt NOT LIKE ? AND`,
			store.ErasedText, store.ErasedText, string(notification.SupersededBy("%"))),
		"attempts": tables.SQL(`UPDATE {attempts} SET error = CASE error WHEN '' THEN '' ELSE ? END, request = ?, answer = ?
			WHERE (error NOT IN ('', ?) OR request <> ? OR answer <> ?) AND`, store.ErasedText, `{}`, `{}`, store.ErasedText, `{}`, `{}`),
	}, t.cutParked})
}

// changePersonal does one batch.
func (t *Acts) changePersonal(ctx context.Context, b store.PersonalBatch, c change) (result store.PersonalResult, err error) {
	f, at := given(b.Filter), b.After
	result.Next = at
	switch at.Table {
	case "":
		result.Next = store.PersonalPlace{Table: "parked"}
		if t.run.Source == nil {
			result.Next.Table = "log"
			result.Next.UpTo, err = t.run.LastOffset(ctx)
		}
		return result, err
	case "log":
		var rows []selected
		if rows, result.Next.After.Offset, err = t.selectedRows(ctx, f, at.After.Offset, at.UpTo, tables.SQL(`false`)); err != nil {
			return result, err
		}
		if result.Next.After.Offset >= at.UpTo {
			result.Next = store.PersonalPlace{Table: "parked"}
		}
		return result, t.operateAgain(ctx, c.step, b.Action, nil, func(tx *sql.Tx) ([]string, error) {
			if result.Changed, err = t.changeRows(ctx, tx, c, rows); err != nil {
				return nil, err
			}
			return nil, t.run.Count(ctx, tx, b.Action, result.Changed)
		})
	case "parked":
		rows, last, err := t.selectedParked(ctx, f, at.After)
		if result.Next.After = last; last == (store.ParkedPlace{}) {
			result.Next.Table = "actions"
		}
		if err != nil || len(rows) == 0 {
			return result, err
		}
		sink := []string{rows[0].Sink}
		return result, t.operateAgain(ctx, c.step, b.Action, sink, func(tx *sql.Tx) (changed []string, err error) {
			n, raise, err := c.parked(ctx, tx, sink[0], placesOf(rows))
			if err != nil {
				return nil, err
			}
			if raise {
				changed = sink
			}
			if result.Changed, err = t.changeEnds(ctx, tx, c, idsOf(rows)); err != nil {
				return nil, err
			}
			result.Changed += n
			return changed, t.run.Count(ctx, tx, b.Action, result.Changed)
		})
	}
	result.Done = true
	ids, err := t.knownIDs(ctx, f)
	if err != nil {
		return result, err
	}
	return result, t.operateAgain(ctx, c.step, b.Action, nil, func(tx *sql.Tx) ([]string, error) {
		if result.Changed, err = t.changeEnds(ctx, tx, c, ids); err != nil {
			return nil, err
		}
		actions, err := t.actionsNaming(ctx, tx, f)
		if err != nil {
			return nil, err
		}
		for table, where := range map[string]tables.Expr{"unique": anyOf(`"key"`, f.Keys), "actions": anyOf(`id`, actions)} {
			if err := t.changeTable(ctx, tx, c, table, where, &result.Changed); err != nil {
				return nil, err
			}
		}
		return nil, t.run.Count(ctx, tx, b.Action, result.Changed)
	})
}

// operateAgain is operate, repeated if the pruner or a publisher is in the way, which take rows in another order.
func (t *Acts) operateAgain(ctx context.Context, step failpoint.Step, action string, sinks []string, do func(tx *sql.Tx) ([]string, error)) error {
	const deadlock = "40P01"
	for tries := 1; ; tries++ {
		err := t.operate(ctx, step, action, sinks, do)
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
func (t *Acts) purgeParked(ctx context.Context, tx *sql.Tx, sink string, refs []store.Ref) (n int, raise bool, err error) {
	batch, err := tables.List(ctx, t.run, tx, func(rows *sql.Rows, c *chosen) error {
		return rows.Scan(&c.Offset, &c.ID, &c.collection.Group, &c.collection.Number)
	}, `SELECT "offset", id, collect_group, CASE WHEN state IN ('dead', 'collecting') THEN collection ELSE '' END
		FROM {parked} WHERE sink = ? AND ("offset", id) IN (?) {whole parked collections}`, sink, t.run.Dialect.Refs(refs))
	if err != nil {
		return 0, false, err
	}
	if err := t.remove(ctx, tx, sink, batch); err != nil {
		return 0, false, err
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
	return len(batch), len(batch) > 0, err
}

// cutParked removes texts from deliveries.
func (t *Acts) cutParked(ctx context.Context, tx *sql.Tx, sink string, refs []store.Ref) (n int, raise bool, err error) {
	var set, uncut []tables.Expr
	for _, column := range []string{"last_error", "hook_error", "receipt"} {
		set = append(set, tables.SQL(column+` = CASE `+column+` WHEN '' THEN '' ELSE ? END`, store.ErasedText))
		uncut = append(uncut, tables.SQL(column+` NOT IN ('', ?)`, store.ErasedText))
	}
	changed, err := t.run.Exec(ctx, tx, `UPDATE {parked} SET ?, attempts = '' WHERE sink = ? AND ("offset", id) IN (?) AND (attempts <> '' OR ?)`,
		tables.Join(`, `, set), sink, t.run.Dialect.Refs(refs), tables.Join(` OR `, uncut))
	return int(changed), false, err
}

// given returns a filter without empty texts, which would select what has no key.
func given(f store.PersonalFilter) store.PersonalFilter {
	for _, texts := range []*[]string{&f.IDs, &f.Keys, &f.PrivateKeys} {
		*texts = slices.DeleteFunc(slices.Clone(*texts), func(text string) bool { return text == "" })
	}
	return f
}

// anyOf is tables.AnyOf for any number of values.
func anyOf(column string, values []string) tables.Expr {
	if len(values) == 0 {
		return tables.SQL(`false`)
	}
	return tables.AnyOf(column, values)
}

// selected is a row of the log or a parked delivery that a filter selects.
type selected struct {
	store.ParkedPlace // without a sink in the log
	key, typ          string
	private           bool // by a private key
	undelivered       bool
	at                time.Time
}

func placesOf(rows []selected) []store.Ref {
	refs := make([]store.Ref, len(rows))
	for i := range rows {
		refs[i] = rows[i].Ref
	}
	return refs
}

func idsOf(rows []selected) []string {
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// selects is the condition on a row of the log or a parked delivery, called p, and private the part of it about
// private keys. It also holds for some rows that do not belong to the filter: see belongs.
func (t *Acts) selects(f store.PersonalFilter) (where, private tables.Expr) {
	d := t.run.Dialect
	private = tables.SQL(`false`)
	for _, key := range f.PrivateKeys {
		private = tables.SQL(`? OR ?`, private, d.MetadataHas(notification.MetadataPrivateKeys, key))
	}
	derived := tables.SQL(`false`)
	for _, id := range f.IDs {
		derived = tables.SQL(`? OR `+d.Position()+`(p.id, ?) = 1`, derived, id+"_")
	}
	for _, key := range f.Keys {
		derived = tables.SQL(`? OR `+d.Position()+`(p."key", ?) > 0`, derived, "/"+key)
	}
	published := t.run.OfTypes(notification.TypeFilter{Prefixes: []string{notification.ReservedPrefix}})
	return tables.SQL(`(? OR ? OR ? OR ? AND (?))`, anyOf(`p.id`, f.IDs), anyOf(`p."key"`, f.Keys), private, published, derived), private
}

// belongs reports whether a row is one of the filter. What a sink has published to deliver a notification has
// its id before _, and its key after /.
func (s *selected) belongs(f store.PersonalFilter) bool {
	return s.private || slices.Contains(f.IDs, s.ID) || slices.Contains(f.Keys, s.key) || notification.IsReserved(s.typ) &&
		(slices.ContainsFunc(f.IDs, func(id string) bool { return strings.HasPrefix(s.ID, id+"_") }) ||
			slices.ContainsFunc(f.Keys, func(key string) bool { return strings.HasSuffix(s.key, "/"+key) }))
}

// selectedRows searches the next rows of the log, and returns the offset up to which it has searched.
func (t *Acts) selectedRows(ctx context.Context, f store.PersonalFilter, after, upTo int64, settled tables.Expr) (found []selected, through int64, err error) {
	var looked int
	err = t.run.Row(ctx, t.run.DB, `SELECT count(*), coalesce(max("offset"), ?)
		FROM (SELECT "offset" FROM {log} WHERE "offset" > ? AND "offset" <= ? ORDER BY "offset" {limit} ?) looked {whole log}`,
		upTo, after, upTo, searchedRows).Scan(&looked, &through)
	if err != nil || looked == 0 {
		return nil, upTo, err
	}
	if looked < searchedRows {
		through = upTo
	}
	where, private := t.selects(f)
	found, err = tables.List(ctx, t.run, t.run.DB, func(rows *sql.Rows, s *selected) error {
		return rows.Scan(&s.Offset, &s.ID, &s.key, &s.typ, &s.private, t.run.Into(&s.at), &s.undelivered)
	}, `SELECT "offset", id, "key", type, CASE WHEN ? THEN 1 ELSE 0 END, occurred_on, CASE WHEN ? THEN 0 ELSE 1 END
		FROM {log} p WHERE "offset" > ? AND "offset" <= ? AND ? ORDER BY "offset" {whole log}`, private, settled, after, through, where)
	return slices.DeleteFunc(found, func(s selected) bool { return !s.belongs(f) }), through, err
}

// selectedParked returns the next parked deliveries, all of one sink, and the place after which to go on; the
// zero value at the end.
func (t *Acts) selectedParked(ctx context.Context, f store.PersonalFilter, after store.ParkedPlace) (found []selected, last store.ParkedPlace, err error) {
	where, private := t.selects(f)
	found, err = tables.List(ctx, t.run, t.run.DB, func(rows *sql.Rows, s *selected) error {
		return rows.Scan(&s.Sink, &s.Offset, &s.ID, &s.key, &s.typ, &s.private, t.run.Into(&s.at))
	}, `SELECT sink, "offset", id, "key", type, CASE WHEN ? THEN 1 ELSE 0 END, first_parked_at FROM {parked} p
		WHERE sink >= ? AND (sink, "offset", id) > (?, ?, ?) AND ? ORDER BY sink, "offset", id {limit} ? {whole parked}`,
		private, after.Sink, after.Sink, after.Offset, after.ID, where, personalRows)
	if len(found) == 0 {
		return nil, last, err
	}
	if other := slices.IndexFunc(found, func(s selected) bool { return s.Sink != found[0].Sink }); other > 0 {
		found = found[:other]
	}
	last = found[len(found)-1].ParkedPlace
	return slices.DeleteFunc(found, func(s selected) bool { return !s.belongs(f) }), last, err
}

// end is a table that has what became of notifications, with the column of their ids and that of its time.
type end struct{ table, id, at string }

var ends = []end{
	{"receipts", "id", "delivered_at"},
	{"inbox", "id", "seen_at"},
	{"cancelled", "id", "cancelled_at"},
	{"attempts", "delivery", "at"},
}

// endsOf is the condition that a row of a table is about one of the ids. The key of an inbox begins with the
// consumer.
func (t *Acts) endsOf(ctx context.Context, q tables.Querier, e end, ids []string) (tables.Expr, error) {
	where := tables.AnyOf(e.id, ids)
	if e.table != "inbox" {
		return where, nil
	}
	var consumers []string
	for consumer := ""; ; consumers = append(consumers, consumer) {
		var next sql.NullString
		if err := t.run.Row(ctx, q, `SELECT min(consumer) FROM {inbox} WHERE consumer > ? {whole inbox}`, consumer).Scan(&next); err != nil {
			return where, err
		}
		if !next.Valid {
			return tables.SQL(`? AND ?`, anyOf(`consumer`, consumers), where), nil
		}
		consumer = next.String
	}
}

// knownIDs returns the ids of a filter, and of deliveries to customers' endpoints of which there are attempts.
func (t *Acts) knownIDs(ctx context.Context, f store.PersonalFilter) ([]string, error) {
	deliveries, err := tables.Column[string](ctx, t.run, t.run.DB, `SELECT DISTINCT delivery FROM {attempts} WHERE ? {whole receipts inbox cancelled attempts unique}`,
		anyOf(`notification`, f.IDs))
	return slices.Concat(f.IDs, deliveries), err
}

// CountPersonal counts by table; see store.Personal. Each id is counted once in the tables of ends, although it
// may be in the log and parked for several sinks.
func (t *Acts) CountPersonal(ctx context.Context, f store.PersonalFilter) (counts []store.PersonalCount, err error) {
	defer t.run.Tried(&err, "count notifications")
	f = given(f)
	c := counting{acts: t, seen: make(map[string]bool), of: make(map[string]*store.PersonalCount)}
	ids, err := t.knownIDs(ctx, f)
	if err == nil {
		err = c.addEnds(ctx, ids)
	}
	for _, id := range ids {
		c.seen[id] = true
	}
	var found []selected
	for last := (store.ParkedPlace{}); err == nil; {
		if found, last, err = t.selectedParked(ctx, f, last); last == (store.ParkedPlace{}) {
			break
		}
		if err == nil {
			err = c.addRows(ctx, "parked", found)
		}
	}
	if err == nil && t.run.Source == nil {
		err = c.addLog(ctx, f)
	}
	if err == nil {
		err = c.add(ctx, "unique", `NULL`, anyOf(`"key"`, f.Keys))
	}
	if err != nil {
		return nil, err
	}
	actions, err := t.actionsNaming(ctx, t.run.DB, f)
	c.count("actions").Rows += int64(len(actions))
	for _, table := range []string{"log", "parked", "receipts", "inbox", "cancelled", "attempts", "unique", "actions"} {
		if count := c.count(table); count.Rows > 0 {
			counts = append(counts, *count)
		}
	}
	return counts, err
}

// counting counts what a filter selects.
type counting struct {
	acts *Acts
	seen map[string]bool // ids that are counted already: not those that are in the log only, of which there are many
	of   map[string]*store.PersonalCount
}

func (c *counting) count(table string) *store.PersonalCount {
	if c.of[table] == nil {
		c.of[table] = &store.PersonalCount{Table: table}
	}
	return c.of[table]
}

func (c *counting) addLog(ctx context.Context, f store.PersonalFilter) error {
	upTo, err := c.acts.run.LastOffset(ctx)
	if err != nil {
		return err
	}
	settled, err := c.acts.run.SettledByAll(ctx)
	for after := int64(0); err == nil && after < upTo; {
		var found []selected
		if found, after, err = c.acts.selectedRows(ctx, f, after, upTo, settled); err == nil {
			err = c.addRows(ctx, "log", found)
		}
	}
	return err
}

// addRows adds rows of the log or parked deliveries, and what became of them.
func (c *counting) addRows(ctx context.Context, table string, rows []selected) error {
	count := c.count(table)
	for i := range rows {
		widen(count, rows[i].at, rows[i].at)
		count.Rows++
		if rows[i].undelivered {
			count.Undelivered++
		}
	}
	ids := slices.DeleteFunc(idsOf(rows), func(id string) bool { return c.seen[id] })
	if table == "parked" {
		for _, id := range ids {
			c.seen[id] = true
		}
	}
	return c.addEnds(ctx, ids)
}

func (c *counting) addEnds(ctx context.Context, ids []string) error {
	for chunk := range slices.Chunk(ids, personalRows) {
		for _, e := range ends {
			where, err := c.acts.endsOf(ctx, c.acts.run.DB, e, chunk)
			if err == nil {
				err = c.add(ctx, e.table, e.at, where)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *counting) add(ctx context.Context, table, at string, where tables.Expr) error {
	var rows int64
	var oldest, newest time.Time
	run := c.acts.run
	err := run.Row(ctx, run.DB, `SELECT count(*), min(`+at+`), max(`+at+`) FROM {`+table+`} WHERE ? {whole `+table+`}`, where).Scan(&rows, run.Into(&oldest), run.Into(&newest))
	count := c.count(table)
	count.Rows += rows
	widen(count, oldest, newest)
	return err
}

// widen makes a count include two times, unless they are zero.
func widen(c *store.PersonalCount, oldest, newest time.Time) {
	if !oldest.IsZero() && (c.Oldest.IsZero() || oldest.Before(c.Oldest)) {
		c.Oldest = oldest
	}
	if newest.After(c.Newest) {
		c.Newest = newest
	}
}
