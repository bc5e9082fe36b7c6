package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// history identifies what gives transaction ids and offsets their meaning: ids are comparable
// within one cluster, offsets within one sequence. A position with another history belongs to a
// log that is gone, or was restored.
//
// Each part may be unknown; unknown parts match everything.
type history struct {
	// System is the cluster's system_identifier, which initdb creates. A physical standby and a
	// restored base backup have the same. "" if the server does not show it.
	System string `json:"system,omitempty"`
	// Sequence is the file of the offsets' sequence: TRUNCATE … RESTART IDENTITY and ALTER
	// SEQUENCE … RESTART change it, setval does not. 0 is unknown.
	Sequence int64 `json:"sequence,omitempty"`
	// Log is the oid of the log's table, which distinguishes it from a later one with the same
	// name.
	Log int64 `json:"log,omitempty"`
}

// differs says why now is another history; "" if it may be the same.
func (h history) differs(now history) string {
	switch {
	case h.System != "" && now.System != "" && h.System != now.System:
		return fmt.Sprintf("the cursor is of the cluster %s and this one is %s: the database was restored into another cluster, or upgraded in place",
			h.System, now.System)
	case h.Sequence != 0 && now.Sequence != 0 && h.Sequence != now.Sequence:
		return "the sequence of the offsets is another one: the log was truncated or recreated"
	case h.Log != 0 && now.Log != 0 && h.Log != now.Log:
		return "the log is another table: it was dropped and recreated, or renamed"
	}
	return ""
}

// merge returns h with the parts that only now knows.
func (h history) merge(now history) history {
	if now.System != "" {
		h.System = now.System
	}
	if now.Sequence != 0 {
		h.Sequence = now.Sequence
	}
	if now.Log != 0 {
		h.Log = now.Log
	}
	return h
}

// system identifies the cluster of a server. A server that writes stays on one timeline during
// its life.
type system struct {
	server   string
	id       string
	timeline int64 // 0 without a standby; database is unset too
	database int64
}

// identify returns the identity of the cluster that a probe has seen. It reads it again only if
// another server answers: a pool may connect to a restored database, or to a standby, unnoticed.
func (s *Store) identify(ctx context.Context, q querier, server string) (*system, error) {
	if known := s.system.Load(); known != nil && known.server == server {
		return known, nil
	}
	found := &system{}
	err := q.QueryRowContext(ctx, s.sql.identity).Scan(&found.id, &found.server, &found.timeline, &found.database)
	switch {
	case hidden(err):
		found = &system{server: server}
	case err != nil:
		return nil, fmt.Errorf("identify the cluster: %w", err)
	case found.server != server:
		return nil, fmt.Errorf("identify the cluster: %w", store.ErrServerChanged) // the next look sees the new server
	}
	s.system.Store(found)
	return found, nil
}

// identitySQL also reads what is compared with a standby. The name of a WAL file begins with the
// server's timeline in hexadecimal digits.
func identitySQL(server string, standby bool) string {
	compared := `0, 0`
	if standby {
		compared = `('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int, (SELECT oid::bigint FROM pg_database WHERE datname = current_database())`
	}
	return `SELECT system_identifier::text, ` + server + `, ` + compared + ` FROM pg_control_system()`
}

// hidden reports whether the server refuses to show its identity: no permission, or no such
// function in a server that only speaks PostgreSQL's protocol.
func hidden(err error) bool {
	return refused(err, deniedPrivilege, "42883")
}

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
	step, most := int64(least), int64(maxWindow)
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
	ctx, cancel := context.WithTimeout(ctx, statementTime)
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

// serverSQL identifies one life of a server. A postmaster that goes on after the crash of one of
// its processes keeps its start time, but not its statistics. Before PostgreSQL 15 those are too
// slow to read, and such a crash is not noticed. Times are in binary form: as text they would
// depend on the session's time zone, and binary is the least work for the planner, which sees
// this in each statement.
func serverSQL(version int) string {
	life := `timestamptz_send(pg_postmaster_start_time())`
	if version >= 150000 {
		life += ` || coalesce(timestamptz_send(pg_stat_get_bgwriter_stat_reset_time()), '')`
	}
	return `encode(` + life + `, 'hex')`
}

// probeSQL reads the snapshot, the sequence, and the history and life of both. A sequence that has
// assigned nothing is before its last_value.
//
// A standby's snapshot lists no running transactions, so those open on the primary would seem to
// have ended without rows in the log. So on a standby the statement fails like a write, because
// it takes a transaction id.
//
// For reading from a standby it also reads the position in the write-ahead log. A statement takes
// its snapshot before it calls a function, and a transaction writes its commit before it leaves
// the list of running ones. So the commit of each transaction that had ended is before that
// position. The flushed position would not do: a commit that does not wait for the disk is visible
// before it is flushed.
func probeSQL(n names, server string, standby bool) string {
	wal := `''`
	if standby {
		wal = `pg_current_wal_insert_lsn()::text`
	}
	return `SELECT CASE WHEN pg_is_in_recovery() THEN pg_current_xact_id()::text ELSE pg_current_snapshot()::text END, CASE WHEN is_called THEN last_value ELSE last_value - 1 END,
		pg_relation_filenode(tableoid), ` + n.Literal("") + `::regclass::oid, ` + server + `, ` + wal + ` FROM ` + n.Table("offset_seq")
}

// runProbe runs a probe's statement; its additional columns go to rest.
func (s *Store) runProbe(ctx context.Context, q querier, query string, rest ...any) (*probe, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	p := &probe{asked: time.Now()}
	known := s.known()
	var text, wal string
	var sequence sql.NullInt64
	to := append([]any{&text, &p.last, &sequence, &p.history.Log, &p.server, &wal}, rest...)
	if err := q.QueryRowContext(ctx, query).Scan(to...); err != nil {
		return nil, err
	}
	p.history.Sequence = sequence.Int64
	return p, s.complete(ctx, q, p, text, wal, known)
}

// bounds are what is known before a probe about where rows can be.
type bounds struct {
	watermark *watermark
	floors    *floors
}

func (s *Store) known() bounds { return bounds{s.watermark.Load(), s.floors.Load()} }

// complete sets the fields of a probe from its columns, and from what was known before its
// statement began, as far as that still applies.
func (s *Store) complete(ctx context.Context, q querier, p *probe, snapshot, wal string, known bounds) (err error) {
	if p.snapshot, err = parseSnapshot(snapshot); err != nil {
		return err
	}
	if wal != "" {
		if p.wal, err = parseLSN(wal); err != nil {
			return err
		}
	}
	found, err := s.identify(ctx, q, p.server)
	if err != nil {
		return err
	}
	p.history.System, p.timeline, p.database = found.id, found.timeline, found.database
	if w := known.watermark; w != nil {
		if w.holds(p) {
			p.watermark = *w
		} else {
			s.watermark.CompareAndSwap(w, nil) // otherwise it would seem valid again after the new log has grown
		}
	}
	if f := known.floors; f != nil && f.holds(p) {
		p.floors = f.of
	}
	return nil
}
