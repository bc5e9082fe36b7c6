package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/driverrows"
)

// extent is what a search of the log shows about rows that the sequence and the transaction ids
// do not cover.
type extent struct {
	// highest is the highest offset of a committed row if the sequence is below it, otherwise 0.
	highest int64
	// restored is the highest offset of a row that is committed although its transaction id is
	// not visible: the id comes from another cluster. All rows up to it were restored. 0 if there
	// is none.
	restored int64
}

// restoreScan probes the log and searches it for its extent.
func (s *Store) restoreScan(ctx context.Context) (*probe, extent, error) {
	var e extent
	var lowest int64
	p, err := s.runProbe(ctx, s.db, s.sql.restoreScan, &lowest, &e.highest)
	if err == nil {
		e.restored, err = s.lastRestored(ctx, lowest-1, e.highest)
	}
	if err != nil {
		return nil, e, fmt.Errorf("look through the log: %w", advise(err))
	}
	if e.highest <= p.last {
		e.highest = 0
	}
	s.restoreScanned.Store(&restoreScanned{sight: sight{last: p.last, history: p.history, server: p.server}, extent: e})
	return p, e, nil
}

// lastRestored searches downwards from upTo to above for a row that a statement sees although its
// transaction id is not visible in the same statement. In a restored log it finds one soon; a log
// that was not restored is read completely, in steps that fit into a statement timeout.
func (s *Store) lastRestored(ctx context.Context, above, upTo int64) (offset int64, err error) {
	const least = 10_000
	step, most := int64(least), int64(driverrows.MaxWindow)
	for upTo > above {
		from := max(above, upTo-step)
		err := s.restoredIn(ctx, from, upTo, &offset)
		switch {
		case err != nil && step > least && ctx.Err() == nil:
			most = max(least, step/4)
			step = most
			continue
		case err != nil || offset > 0:
			return offset, err
		}
		upTo = from
		step = min(2*step, most)
	}
	return 0, nil
}

func (s *Store) restoredIn(ctx context.Context, above, upTo int64, offset *int64) error {
	ctx, cancel := context.WithTimeout(ctx, driverrows.StatementTime)
	defer cancel()
	return s.db.QueryRowContext(ctx, s.sql.restored, above, upTo).Scan(offset)
}

// restoreScanned is the result of the latest restore scan.
type restoreScanned struct {
	sight
	extent extent
}

// everything returns the delta of a new cursor. It scans the log once for all of them: restored
// rows stay restored, unless the sequence was set back since.
func (s *Store) everything(ctx context.Context, t *probe) (delta, error) {
	s.scanningRestored.Lock()
	defer s.scanningRestored.Unlock()
	if known := s.restoreScanned.Load(); known != nil && known.history == t.history && known.last <= t.last {
		return rebase(t, known.extent, 0), nil
	}
	found, e, err := s.restoreScan(ctx)
	if err == nil && found.server != t.server {
		err = store.ErrServerChanged
	}
	return rebase(t, e, 0), err
}

// rebase makes everything in the log one delta up to t, whatever a cursor has settled. known is
// the highest offset that a cursor of this log knows.
//
// Rows up to the restored offset are delivered whatever their ids are, and only in this delta: the
// sequence was restored with them, so this cluster's transactions take higher offsets, and the
// restored offset becomes the bound and all floors. If the sequence is below restored rows, it was
// not restored, and nothing bounds the rows.
func rebase(t *probe, e extent, known int64) delta {
	d := delta{From: origin, Last: max(t.last, e.highest), Restored: e.restored}
	from := base{Reach: max(d.Last, known)}
	if e.restored <= t.last {
		from.Bound = e.restored
	}
	d.Until = from.next(t)
	return d
}

// restoreScanSQL is a probe with the lowest and the highest offset of a row. Because it is one
// statement, a row above the sequence cannot have been added later.
func restoreScanSQL(n names, probe string) string {
	return strings.Replace(probe, ` FROM `, `,
		coalesce((SELECT min("offset") FROM `+n.Log()+`), 1), coalesce((SELECT max("offset") FROM `+n.Log()+`), 0) FROM `, 1) + whole(n.Log())
}

// restoredSQL finds the last row of a range that the statement sees although its transaction id
// is not visible; 0 if there is none.
func restoredSQL(n names) string {
	return `SELECT coalesce((SELECT "offset" FROM ` + n.Log() + ` WHERE "offset" > $1 AND "offset" <= $2
		AND NOT pg_visible_in_snapshot(transaction_id, (SELECT pg_current_snapshot()))
		ORDER BY "offset" DESC LIMIT 1), 0)` + whole(n.Log())
}
