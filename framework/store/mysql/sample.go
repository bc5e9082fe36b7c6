package mysql

import (
	"context"
	"database/sql"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// Waiting counts the rows after the positions of lanes. Lanes at the same place, as most lanes of a sink
// are, are counted together.
func (d *dialect) Waiting(lanes []tables.WaitingLane, t store.Target, types notification.TypeFilter) (found []tables.WaitingSpan, err error) {
	next := make(map[string]*waitingSpan)
	var order []*waitingSpan
	for i, l := range lanes {
		at := string(l.Position)
		if next[at] == nil {
			pos, err := parsePosition(l.Position)
			if err != nil {
				return nil, err
			}
			if pos.goal().top > t.Last() && t.(*target).complete() {
				pos = position{} // the position belongs to an earlier log: the forwarder will read from the oldest row
			}
			next[at] = &waitingSpan{dialect: d, types: types, pos: pos, of: l.Lane.Of, place: make(map[int]int)}
			order = append(order, next[at])
		}
		next[at].place[l.Lane.Number] = i
	}
	for _, s := range order {
		found = append(found, tables.WaitingSpan{After: s.pos.through(), Last: t.Last(), Count: s.count})
	}
	return found, nil
}

// waitingSpan is a place in the log with the lanes of one sink that are there.
type waitingSpan struct {
	dialect *dialect
	types   notification.TypeFilter
	pos     position
	of      int         // the number of the sink's lanes
	place   map[int]int // the index of each lane in the query's argument
}

func (s *waitingSpan) count(ctx context.Context, after, last int64, limit int, found func(lane int, w tables.Waiting)) error {
	// The number of the lane that has the row's slot, as in store.NewLane.
	lane := tables.SQL(`((slot + 1) * ? - 1) DIV ?`, s.of, store.Slots)
	here := tables.SQL(`true`)
	if len(s.place) < s.of { // others are elsewhere
		var numbers []tables.Expr
		for number := range s.place {
			numbers = append(numbers, tables.SQL(`?`, number))
		}
		here = tables.SQL(`? IN (?)`, lane, tables.Join(`, `, numbers))
	}
	types := tables.SQL(`true`)
	if !s.types.All() {
		types = s.dialect.Types(s.types)
	}
	return s.dialect.run.Each(ctx, s.dialect.db, func(rows *sql.Rows) error {
		var number int
		var w tables.Waiting
		if err := rows.Scan(&number, &w.Rows, s.dialect.run.Into(&w.Oldest), &w.Through); err != nil {
			return err
		}
		found(s.place[number], w)
		return nil
	}, `SELECT lane, count(*), min(occurred_on), max("offset") FROM (SELECT ? AS lane, occurred_on, "offset" FROM {log} o WHERE "offset" > ? AND "offset" <= ?
		AND ? AND NOT ? AND ? AND `+tables.NotCancelled+` AND type <> '`+VoidType+`' ORDER BY "offset" LIMIT ?) waiting GROUP BY lane`,
		lane, after, last, here, s.pos.settled(), types, limit)
}

// Extent reads the size of the log from the catalog, and asks the tracker since when the lowest offset
// is undecided: a transaction that has taken it is open, or was a moment ago.
func (d *dialect) Extent(ctx context.Context) (bytes int64, held time.Duration, err error) {
	_, err = d.on(ctx, d.db, "", func(c *sql.Conn) error {
		if _, err := d.nextOffset(ctx, c); err != nil { // makes the catalog return current figures
			return err
		}
		return c.QueryRowContext(ctx, `SELECT coalesce(DATA_LENGTH + INDEX_LENGTH, 0) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?`,
			string(d.names)).Scan(&bytes)
	})
	if err != nil {
		return 0, 0, err
	}
	held, err = d.tracker.held(ctx)
	return bytes, held, err
}
