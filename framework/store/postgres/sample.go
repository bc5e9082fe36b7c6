package postgres

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// Waiting returns the deltas that readers of the lanes would read. Lanes in the same delta, as those
// of one sink usually are, are counted together.
func (d *dialect) Waiting(lanes []tables.WaitingLane, target store.Target, types notification.TypeFilter) (spans []tables.WaitingSpan, err error) {
	t := target.(*probe)
	together := make(map[string]*waitingSpan)
	filter := store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: types}
	add := func(i int, pos position) error {
		text, err := json.Marshal(pos.delta)
		if err != nil {
			return err
		}
		name := strconv.Itoa(lanes[i].Lane.Of) + string(text)
		if together[name] == nil {
			together[name] = newWaitingSpan(&reader{store: d.Store, filter: filter, pos: pos}, lanes[i].Lane.Of)
		}
		together[name].join(i, lanes[i].Lane.Number, pos.offset)
		return nil
	}
	for i, l := range lanes {
		pos, err := parsePosition(l.Position)
		if err != nil {
			return nil, err
		}
		if pos.history.differs(t.history) != "" {
			pos = position{base: &origin} // the forwarder will read it from the oldest row
		}
		if pos.delta != nil {
			if err := add(i, pos); err != nil {
				return nil, err
			}
			pos = position{base: &pos.delta.Until}
		}
		if r := (&reader{pos: pos}); r.begin(t) {
			if err := add(i, r.pos); err != nil {
				return nil, err
			}
		}
	}
	for _, s := range together {
		spans = append(spans, tables.WaitingSpan{After: s.after, Last: s.reader.pos.delta.Last, Count: s.count})
	}
	return spans, nil
}

// waitingSpan is a delta, and the lanes of one sink that still have rows of it to read.
type waitingSpan struct {
	reader *reader
	after  int64   // the lowest of the offsets in behind
	behind []int64 // for each lane of the sink, the offset after which it is in the delta
	place  []int   // for each lane of the sink, its index among the requested lanes
}

func newWaitingSpan(r *reader, of int) *waitingSpan {
	s := &waitingSpan{reader: r, after: math.MaxInt64, behind: make([]int64, of), place: make([]int, of)}
	for i := range s.behind {
		s.behind[i] = math.MaxInt64 // not in the delta
	}
	return s
}

func (s *waitingSpan) join(place, number int, behind int64) {
	s.behind[number], s.place[number], s.after = behind, place, min(s.after, behind)
}

// statement counts the first rows of a part of the delta.
func (s *waitingSpan) statement(after, last int64, limit int) *statement {
	q := &statement{args: []any{after, last}}
	sql := s.reader.store.sql
	// The number of the lane whose slots, as of store.NewLane, include the row's.
	lane := `((` + slotOf + ` + 1) * ` + q.arg(len(s.behind)) + `::integer - 1) / ` + strconv.Itoa(store.Slots)
	q.WriteString(`SELECT lane, count(*), min(occurred_on), max("offset") FROM (SELECT ` + lane + ` AS lane, occurred_on, "offset" FROM ` + s.reader.store.names.Log() + sql.between)
	s.reader.where(q, s.reader.pos.delta)
	q.WriteString(` AND "offset" > (` + q.arg(pq.Array(s.behind)) + `::bigint[])[1 + ` + lane + `]`)
	q.WriteString(` ORDER BY "offset" LIMIT ` + q.arg(limit) + `) waiting GROUP BY lane` + sql.whole)
	return q
}

func (s *waitingSpan) count(ctx context.Context, after, last int64, limit int, found func(lane int, w tables.Waiting)) (err error) {
	q := s.statement(after, last, limit)
	rows, err := s.reader.store.db.QueryContext(ctx, q.String(), q.args...)
	if err != nil {
		return err
	}
	defer func() { tables.CloseRows(rows, &err) }()
	for rows.Next() {
		var number int
		var w tables.Waiting
		if err := rows.Scan(&number, &w.Rows, &w.Oldest, &w.Through); err != nil {
			return err
		}
		found(s.place[number], w)
	}
	return rows.Err()
}

// Extent returns the size of the log with its partitions. A transaction that has written to the log
// keeps a lock on it until its end. Roles without pg_read_all_stats cannot see when other roles'
// transactions began.
func (d *dialect) Extent(ctx context.Context) (bytes int64, held time.Duration, err error) {
	log := d.names.Literal("")
	var microseconds int64
	err = d.db.QueryRowContext(ctx, `WITH parts AS MATERIALIZED (
			SELECT `+log+`::regclass::oid AS relid UNION SELECT relid::oid FROM pg_partition_tree(`+log+`))
		SELECT (SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint FROM parts),
			coalesce((SELECT (extract(epoch FROM max(clock_timestamp() - a.xact_start)) * 1000000)::bigint
				FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
				WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.relation IN (SELECT relid FROM parts)
				AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())), 0)`).Scan(&bytes, &microseconds)
	return bytes, time.Duration(microseconds) * time.Microsecond, err
}
