package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/driverrows"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// startSpan is how many offsets one search for a time covers.
const startSpan = 100_000

// Beginning returns the base after the delta that a reader would begin with at the oldest row, or a
// place inside that delta. So rows of transactions that are still running are late, as for every
// cursor, and restored rows are skipped by their offsets.
//
// The probe comes before the transaction that writes the position, which its snapshot would list as
// running. That transaction must be in the same life of the server: then its commit makes everything
// durable that the position refers to.
func (d *dialect) Beginning(ctx context.Context, since time.Time) (at tables.Beginning, err error) {
	if err := d.raiseWatermarkHere(ctx); err != nil {
		return at, err
	}
	t, err := d.runProbe(ctx, d.db, d.sql.probe)
	if err != nil {
		return at, err
	}
	all, err := d.everything(ctx, t)
	if err != nil {
		return at, err
	}
	pos, passed := position{history: t.history, base: &all.Until}, all
	if !since.IsZero() {
		first, err := d.firstSince(ctx, &all, since)
		if err != nil {
			return at, err
		}
		if first > 0 {
			pos = position{history: t.history, delta: &all, offset: first - 1}
			passed.Last = first - 1
		}
	}
	if at.Position, err = pos.MarshalJSON(); err != nil {
		return at, err
	}
	if at.Passed, err = d.within(&passed).count(ctx, store.PendingLimit); err != nil {
		return at, err
	}
	at.Holds = func(ctx context.Context, q tables.Querier) error { return d.answers(ctx, q, t.server) }
	return at, nil
}

// raiseWatermarkHere makes an empty transaction the newest watermark. Otherwise a cursor that begins
// after a large log would have no bound, and its first delta would search all of it.
func (s *Store) raiseWatermarkHere(ctx context.Context) error {
	if _, err := s.probeLog(ctx); err != nil {
		return err
	}
	seen := s.lastSeen.Load()
	ctx, cancel := context.WithTimeout(ctx, driverrows.StatementTime)
	defer cancel()
	var id, server string
	if err := s.db.QueryRowContext(ctx, `SELECT pg_current_xact_id()::text, `+s.sql.server).Scan(&id, &server); err != nil {
		return err
	}
	return s.raiseWatermark(id, server, seen)
}

// within returns a reader of all rows of a delta, before the first one.
func (s *Store) within(d *delta) *reader {
	everything := store.Filter{Slots: store.SlotRange{First: 0, Last: store.Slots - 1}, Types: notification.AllTypes}
	return &reader{store: s, filter: everything, pos: position{delta: d}}
}

// count counts what is left of the reader's delta, up to a limit.
func (r *reader) count(ctx context.Context, limit int) (int, error) {
	d := r.pos.delta
	q := statement{args: []any{r.pos.offset, d.Last}}
	q.WriteString(`SELECT count(*) FROM (SELECT FROM ` + r.store.names.Log() + r.store.sql.between)
	r.where(&q, d)
	q.WriteString(` LIMIT ` + q.arg(limit) + `) pending` + r.store.sql.whole)
	var n int
	err := r.store.db.QueryRowContext(ctx, q.String(), q.args...).Scan(&n)
	return n, err
}

// firstSince returns the offset of the first row of a delta that occurred at a time or later, or 0.
// It searches in steps that fit into a statement timeout, and skips gaps.
func (s *Store) firstSince(ctx context.Context, d *delta, since time.Time) (int64, error) {
	for above := int64(0); ; above += startSpan {
		next, err := s.firstIn(ctx, []any{above, d.Last}, ``)
		if err != nil || next == 0 {
			return 0, err
		}
		above = next - 1
		where := &statement{args: []any{above, min(d.Last, above+startSpan)}}
		s.within(d).where(where, d)
		where.WriteString(` AND occurred_on >= ` + where.arg(since))
		first, err := s.firstIn(ctx, where.args, where.String())
		if err != nil || first > 0 {
			return first, err
		}
	}
}

// firstIn returns the lowest offset of a range, given by the first two arguments, that meets a
// further condition, or 0.
func (s *Store) firstIn(ctx context.Context, args []any, and string) (offset int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, driverrows.StatementTime)
	defer cancel()
	err = s.db.QueryRowContext(ctx, `SELECT coalesce(min("offset"), 0) FROM `+s.names.Log()+s.sql.between+and+s.sql.whole, args...).Scan(&offset)
	return offset, err
}

// answers returns store.ErrServerChanged if another server answers, or the same in another life.
func (s *Store) answers(ctx context.Context, q tables.Querier, server string) error {
	var same bool
	err := q.QueryRowContext(ctx, `SELECT `+s.sql.server+` = $1`, server).Scan(&same)
	if err == nil && !same {
		err = store.ErrServerChanged
	}
	if err != nil {
		return fmt.Errorf("identify the server: %w", err)
	}
	return nil
}
