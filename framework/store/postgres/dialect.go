package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/postgres/internal/catalog"
)

// dialect is PostgreSQL's part of the tables shared by all databases.
type dialect struct {
	tables.Standard
	*Store
}

var _ tables.Dialect = (*dialect)(nil)

// Whole checks the catalog within the statement itself.
func (*dialect) Whole(tables []string) string { return whole(tables...) }

// Now returns a clock that goes on within a transaction and after a wait for a lock.
func (*dialect) Now() string { return `clock_timestamp()` }

// NowPlus has microseconds, like the clock.
func (*dialect) NowPlus(d time.Duration) tables.Expr {
	return tables.SQL(`clock_timestamp() + ? * interval '1 microsecond'`, d.Microseconds())
}

// Elapsed returns the difference of two times in seconds.
func (*dialect) Elapsed(since string) string {
	return `(extract(epoch FROM clock_timestamp() - ` + since + `) * 1000000)::bigint`
}

// Position returns strpos.
func (*dialect) Position() string { return `strpos` }

// MetadataIs compares text, for which jsonb has an operator.
func (*dialect) MetadataIs(name, value string) tables.Expr {
	return tables.SQL(`p.metadata ->> ?::text = ?`, name, value)
}

// MetadataHas searches the text.
func (*dialect) MetadataHas(name, part string) tables.Expr {
	return tables.SQL(`strpos(p.metadata ->> ?::text, ?) > 0`, name, part)
}

// Selected returns columns with times in their binary form.
func (*dialect) Selected() string { return selected }

// Slot returns the hash of the key or the id.
func (*dialect) Slot() string { return slotOf }

// KeySlot returns the same hash.
func (*dialect) KeySlot() string { return slotOf }

// EachParked bypasses database/sql, which is slow.
func (d *dialect) EachParked(ctx context.Context, db *sql.DB, query string, args []any, each func(*store.ParkedDelivery) (bool, error)) error {
	envelopes := format.Scanner(0)
	return stream(ctx, db, query, args, func(row []driver.Value) (bool, error) {
		rest, err := envelopes.Scan(row)
		if err != nil {
			return false, err
		}
		p := store.Parked{
			Envelope: envelopes.Last(), State: store.State(rest.Text()), Attempt: int(rest.Integer()), DueAt: rest.Time(),
			LastError: rest.Text(), Attempts: store.DecodePastAttempts(rest.Text()), Receipt: notification.Receipt(rest.Text()), HookError: rest.Text(), HookFailures: int(rest.Integer()),
			FirstParkedAt: rest.Time(), Group: rest.Text(), Collection: rest.Text(),
		}
		delivery := &store.ParkedDelivery{Parked: p, Sink: rest.Text(), UpdatedAt: rest.Time()}
		if rest.Err() != nil {
			return false, rest.Err()
		}
		return each(delivery)
	})
}

// PayloadSize counts the bytes of an uncompressed payload.
func (d *dialect) PayloadSize() string {
	if d.BinaryPayload() {
		return `octet_length(payload)`
	}
	return `octet_length(payload::text)`
}

// Refs passes two arrays.
func (*dialect) Refs(refs []store.Ref) tables.Expr {
	offsets, ids := make([]int64, len(refs)), make([]string, len(refs)) // not nil, which would be NULL
	for i, r := range refs {
		offsets[i], ids[i] = r.Offset, r.ID
	}
	return tables.SQL(`SELECT * FROM unnest(?::bigint[], ?::text[])`, pq.Array(offsets), pq.Array(ids))
}

// Ranges passes two arrays.
func (*dialect) Ranges(ranges []store.OffsetRange) tables.Expr {
	first, last := make([]int64, len(ranges)), make([]int64, len(ranges))
	for i, r := range ranges {
		first[i], last[i] = r.First, r.Last
	}
	return tables.SQL(`EXISTS (SELECT FROM unnest(?::bigint[], ?::bigint[]) AS ahead (first, last) WHERE "offset" BETWEEN first AND last)`,
		pq.Array(first), pq.Array(last))
}

// Asked passes an array.
func (*dialect) Asked(keys []string) tables.Expr {
	return tables.SQL(`unnest(?::text[]) WITH ORDINALITY`, pq.Array(keys))
}

// Types is the same condition as in a page's query.
func (*dialect) Types(f notification.TypeFilter) tables.Expr {
	return expression(func(q *statement) string {
		typesSQL(q, f)
		return strings.TrimPrefix(q.String(), ` AND `)
	})
}

// expression returns the expression that write writes. Its arguments are in the order in which
// write adds them.
func expression(write func(q *statement) string) tables.Expr {
	q := &statement{}
	text := write(q)
	return tables.SQL(placeholder.ReplaceAllString(text, `?`), q.args...)
}

var placeholder = regexp.MustCompile(`\$\d+`)

// TakeCursors also makes the server end the transaction if its client does not go on: a client
// that is stopped or gone would hold up all checkpoints of the sink.
func (*dialect) TakeCursors(sink string) tables.Expr {
	return tables.SQL(`SELECT lane, set_config('idle_in_transaction_session_timeout', ?, true) FROM {cursors} WHERE sink = ? ORDER BY lane {whole cursors} FOR UPDATE`,
		strconv.FormatInt(catalog.TakenTime.Milliseconds(), 10), sink)
}

// Brief also sets the transaction's own timeout, in what it returns.
func (*dialect) Brief(update tables.Expr) tables.Expr {
	return tables.SQL(`? RETURNING set_config('idle_in_transaction_session_timeout', ?, true)`,
		update, strconv.FormatInt(catalog.TakenTime.Milliseconds(), 10))
}

// Together makes one round trip.
func (*dialect) Together(first, second tables.Expr) []tables.Expr {
	return []tables.Expr{tables.SQL(`WITH first AS (?) ?`, first, second)}
}

// Announce notifies when the write commits.
func (d *dialect) Announce(write tables.Expr) tables.Expr {
	return tables.SQL(`WITH written AS (? RETURNING 1) SELECT pg_notify(?, ?) FROM (SELECT FROM written LIMIT 1) AS any_row`,
		write, d.listening.channel, lanesNews)
}

// Committable checks the constraints that would otherwise be checked at the commit.
func (*dialect) Committable() string { return `SET CONSTRAINTS ALL IMMEDIATE` }

// Collides applies where transactions are repeatable reads by default.
func (*dialect) Collides(err error) bool { return catalog.Refused(err, "40001") } // serialization_failure

// Missing checks the error code, for any driver. A trigger of the application may lack one of its
// own tables: that error names a function.
func (*dialect) Missing(_ context.Context, _ store.Execer, _ string, err error) bool {
	if !catalog.Refused(err, undefinedTable) {
		return false
	}
	var ours *pq.Error
	return !errors.As(err, &ours) || ours.Where == ""
}

// Advise adds a hint by the error's code.
func (*dialect) Advise(err error) error { return advise(err) }

// WriteLease also makes the lease's transaction a watermark. Otherwise the first delta of a
// cursor would have no bound, and the second one would search the whole log.
func (d *dialect) WriteLease(ctx context.Context, db *sql.DB, u tables.Update, row *tables.LeaseRow) error {
	seen, err := d.seen(ctx)
	if err != nil {
		return err
	}
	var id string
	err = d.run.Row(ctx, db, `UPDATE {cursors} SET ? WHERE ? RETURNING `+tables.LeaseColumns+`, pg_current_xact_id()::text, `+d.sql.server,
		u.Set, u.Where).Scan(&row.Epoch, &row.Position, &row.Settled, &row.Revision, &row.Checkpoint, &row.Types, &id, &row.Server)
	if err != nil {
		return err
	}
	return d.raiseWatermark(id, row.Server, seen)
}

// MoveCursor checks the life of the server in the same statement, so a checkpoint that only moves
// the cursor is one round trip. It also makes the server end the transaction if its client does
// not go on for the time of the lease: a client that is gone would hold the cursor's row for
// hours, and no forwarder could have the lane. And it fails if row-level security hides parked
// deliveries, which would stay. A checkpoint that was written becomes a watermark. Now and then one
// also asks for OldVersions.
func (d *dialect) MoveCursor(ctx context.Context, q tables.Querier, c *store.Checkpoint, u tables.Update) (committed func() error, err error) {
	seen, err := d.seen(ctx) // before the transaction has its id: see watermark
	if err != nil {
		return nil, err
	}
	var id string
	var old sql.NullInt64
	err = d.run.Row(ctx, q, `UPDATE {cursors} SET ? WHERE ? AND `+d.sql.server+` = ? AND `+nothingHidden(d.names.Table("parked"))+` = 0
		RETURNING pg_current_xact_id()::text || left(set_config('idle_in_transaction_session_timeout', ?, true), 0), `+d.sql.oldVersions,
		u.Set, u.Where, c.Lease.Server, strconv.FormatInt(c.TTL.Milliseconds(), 10), d.oldVersions.due()).Scan(&id, &old)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, d.whyUnmoved(ctx, q, c.Lease)
	}
	if old.Valid {
		d.oldVersions.count.Store(old.Int64)
	}
	return func() error { return d.raiseWatermark(id, c.Lease.Server, seen) }, err
}

// whyUnmoved distinguishes a checkpoint that is already written, which is not an error, from a
// lost lease and a changed server.
func (d *dialect) whyUnmoved(ctx context.Context, q tables.Querier, lease store.Lease) error {
	if err := d.run.Holds(ctx, q, lease); err != nil {
		return err
	}
	var same bool
	err := d.run.Row(ctx, q, `SELECT `+d.sql.server+` = ?`, lease.Server).Scan(&same)
	if err == nil && !same {
		err = store.ErrServerChanged
	}
	return err
}

// Level compares snapshots.
func (*dialect) Level(positions []json.RawMessage) (json.RawMessage, error) {
	at, err := level(positions)
	if err != nil {
		return nil, err
	}
	return at.MarshalJSON()
}

// level returns the common position of all cursors. Bounds, floors and reach are facts about the
// log, so those of any cursor apply to all.
func level(positions []json.RawMessage) (position, error) {
	var at position
	for lane, raw := range positions {
		p, err := parsePosition(raw)
		switch {
		case err != nil:
			return at, err
		case p.base == nil:
			return at, fmt.Errorf("%w: lane %d is inside a delta", store.ErrNotLevel, lane)
		case lane == 0:
			at = p
		case p.base.Snapshot.text != at.base.Snapshot.text || p.history != at.history:
			return at, fmt.Errorf("%w: lane 0 is at %s, lane %d at %s", store.ErrNotLevel,
				at.base.Snapshot.text, lane, p.base.Snapshot.text)
		}
	}
	return at, nil
}

// Places probes the log after the positions were read: an earlier probe would not include them,
// and would seem to belong to another log.
func (d *dialect) Places(ctx context.Context, q tables.Querier, positions []json.RawMessage) ([]tables.Place, error) {
	now, err := d.runProbe(ctx, q, d.sql.probe)
	if err != nil {
		return nil, err
	}
	places := make([]tables.Place, len(positions))
	for i, raw := range positions {
		pos, err := parsePosition(raw)
		if err != nil {
			return nil, err
		}
		places[i] = tables.Place{Conflict: pos.conflict(now, pos.goal().Last), Through: pos.settled(), Settled: expression(pos.settledSQL)}
	}
	return places, nil
}

// Replay parks the next rows; see store.Operator.
func (s *Store) Replay(ctx context.Context, b store.ReplayBatch) (store.ReplayResult, error) {
	if err := s.meet(ctx); err != nil {
		return store.ReplayResult{}, err
	}
	return s.acted.Replay(ctx, b)
}

// Reroute moves the next deliveries; see store.Operator.
func (s *Store) Reroute(ctx context.Context, b store.RerouteBatch) (store.RerouteResult, error) {
	if err := s.meet(ctx); err != nil {
		return store.RerouteResult{}, err
	}
	return s.acted.Reroute(ctx, b)
}

// meet reads the server's identity before a transaction does: if it is refused, it would end the
// transaction.
func (s *Store) meet(ctx context.Context) error {
	if s.system.Load() != nil {
		return nil
	}
	_, err := s.probeLog(ctx)
	return err
}
