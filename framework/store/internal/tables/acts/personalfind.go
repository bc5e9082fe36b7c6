package acts

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

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
