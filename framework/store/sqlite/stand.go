package sqlite

import (
	"context"
	"database/sql"

	"github.com/waybill-go/waybill/framework/store"
)

// stand is where a sink stands with the one lane that has rows.
type stand struct {
	lane    store.Lane
	owner   string
	paused  bool
	pos     position
	settled []store.OffsetRange // ahead of the position
}

// stands reads the cursors of a sink, or of all with "", that have the rows.
func (s *Store) stands(ctx context.Context, q querier, sink string) (all []stand, err error) {
	rows, err := q.QueryContext(ctx,
		`SELECT sink, lane, lanes, CASE WHEN lease_until > `+now+` THEN coalesce(owner, '') ELSE '' END, paused, position, settled
		FROM `+s.prefix+`_cursors WHERE sink <> ?1 AND (sink = ?2 OR ?2 = '') AND lane = 0 ORDER BY sink`, store.SinkPruner, sink)
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

// settles says whether the sink has settled a row.
func (st *stand) settles(offset int64) bool {
	return offset <= int64(st.pos) || store.ContainsOffset(st.settled, offset)
}

// settledCondition is the condition that a row of the log is settled.
func (st *stand) settledCondition() (condition, error) {
	ahead, err := jsonArray(st.settled)
	return condition{`("offset" <= ? OR EXISTS (SELECT 1 FROM json_each(?)
		WHERE "offset" BETWEEN json_extract(value, '$.First') AND json_extract(value, '$.Last')))`, []any{int64(st.pos), ahead}}, err
}
