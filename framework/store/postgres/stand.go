package postgres

import (
	"context"
	"database/sql"
	"strings"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/store"
)

// stand is where a sink stands with one of its lanes.
type stand struct {
	lane    store.Lane
	owner   string
	paused  bool
	pos     position
	settled []store.OffsetRange // ahead of the position
}

// stands reads the cursors of a sink, or of all with "".
func (s *Store) stands(ctx context.Context, q rowsQuerier, sink string) (all []stand, err error) {
	rows, err := q.QueryContext(ctx,
		`SELECT sink, lane, lanes, CASE WHEN lease_until > clock_timestamp() THEN coalesce(owner, '') ELSE '' END, paused, position::text, settled
		FROM `+s.sql.prefix+`_cursors WHERE sink <> $1 AND (sink = $2 OR $2 = '') ORDER BY sink, lane`, store.SinkPruner, sink)
	if err != nil {
		return nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var st stand
		var of, number int
		var name, settled string
		var raw sql.NullString
		if err := rows.Scan(&name, &number, &of, &st.owner, &st.paused, &raw, &settled); err != nil {
			return nil, err
		}
		st.lane = store.NewLane(name, number, of)
		if st.pos, err = parsePosition([]byte(raw.String)); err != nil {
			return nil, err
		}
		if st.settled, err = store.DecodeOffsets(settled); err != nil {
			return nil, err
		}
		all = append(all, st)
	}
	return all, rows.Err()
}

// rowsQuerier is a database or a transaction.
type rowsQuerier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// conflict says why the cursor is not of the log that was seen at t; "" if it is.
func (st *stand) conflict(t *probe) string {
	return (&reader{pos: st.pos, durable: st.pos.goal().Last}).conflict(t)
}

// settledSQL is the condition that a row of the log is settled in its lane.
func (st *stand) settledSQL(q *statement) string {
	condition := `"offset" <= ` + q.arg(st.pos.settled()) + ` OR ` + st.pos.settledSQL(q)
	if len(st.settled) > 0 {
		condition += ` OR EXISTS (SELECT FROM unnest(` + q.arg(firsts(st.settled)) + `::bigint[], ` + q.arg(lasts(st.settled)) +
			`::bigint[]) AS ahead (first, last) WHERE "offset" BETWEEN first AND last)`
	}
	condition = `(` + condition + `)`
	if !st.lane.Slots.All() {
		condition = `slot BETWEEN ` + q.arg(st.lane.Slots.First) + ` AND ` + q.arg(st.lane.Slots.Last) + ` AND ` + condition
	}
	return condition
}

// settledByAll is the condition that a row is settled in its lane, whichever that is.
func settledByAll(q *statement, all []stand) string {
	conditions := make([]string, len(all))
	for i := range all {
		conditions[i] = all[i].settledSQL(q)
	}
	return `(` + strings.Join(conditions, ` OR `) + `)`
}

func firsts(ranges []store.OffsetRange) any {
	offsets := make([]int64, len(ranges))
	for i, r := range ranges {
		offsets[i] = r.First
	}
	return pq.Array(offsets)
}

func lasts(ranges []store.OffsetRange) any {
	offsets := make([]int64, len(ranges))
	for i, r := range ranges {
		offsets[i] = r.Last
	}
	return pq.Array(offsets)
}
