package postgres

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/driverrows"
)

// probe is the result of a look at how far the log reaches: a snapshot and the highest offset
// assigned before it.
type probe struct {
	snapshot  snapshot
	last      int64
	history   history
	server    string    // the server that has answered, and its life
	watermark watermark // the newest one that had ended before the probe
	floors    map[xid]int64
	brought   *brought // nil: none
}

// Last returns the highest offset assigned when the probe was made.
func (p *probe) Last() int64 { return p.last }

// watermark connects transaction ids with offsets: every transaction with an id > id takes only
// offsets > bound, because bound was the last offset of the sequence before id was assigned, and a
// transaction has its id before it takes an offset.
//
// The transactions of leases and checkpoints serve as watermarks. The zero watermark, before the
// first one, bounds nothing.
type watermark struct {
	id      xid
	bound   int64
	history history // in which bound was read
	server  string  // that has confirmed the commit
}

// holds reports whether the watermark belongs to the log that p has seen: not if the log was
// truncated since, belongs to another cluster, or if the server has crashed since, which undoes
// ids.
func (w *watermark) holds(p *probe) bool {
	return w.server == p.server && w.history == p.history && w.id < p.snapshot.xmax && w.bound <= p.last
}

// sight is a position of the sequence that a probe saw.
type sight struct {
	last    int64
	history history
	server  string
}

// ProbeLog looks how far the log reaches; see store.Log.
func (d *dialect) ProbeLog(ctx context.Context) (store.Target, error) { return d.probeLog(ctx) }

// probeLog takes a snapshot and reads the sequence in one statement. The snapshot comes first, so no
// row that is visible in it has a higher offset than last.
func (s *Store) probeLog(ctx context.Context) (store.Target, error) {
	p, err := s.runProbe(ctx, s.db, s.sql.probe)
	if err != nil {
		return nil, fmt.Errorf("probe the log: %w", advise(err))
	}
	s.note(ctx, p)
	return p, nil
}

// note remembers the sequence as seen by a probe that has ended, and may raise the floors.
func (s *Store) note(ctx context.Context, p *probe) {
	s.raiseFloors(ctx, p)
	s.lastSeen.Store(&sight{last: p.last, history: p.history, server: p.server})
}

// seen returns what the latest probe saw of the sequence; it makes the first probe.
func (s *Store) seen(ctx context.Context) (*sight, error) {
	if seen := s.lastSeen.Load(); seen != nil {
		return seen, nil
	}
	_, err := s.probeLog(ctx)
	return s.lastSeen.Load(), err
}

// raiseWatermark makes a committed transaction the newest watermark. seen must be from before the
// transaction got its id.
func (s *Store) raiseWatermark(text, server string, seen *sight) error {
	id, err := parseXID(text)
	if err != nil || seen.server != server {
		return err
	}
	w := &watermark{id: id, bound: seen.last, history: seen.history, server: seen.server}
	for {
		current := s.watermark.Load()
		if current != nil && current.server == w.server && current.history == w.history && current.id >= id {
			return nil
		}
		if s.watermark.CompareAndSwap(current, w) {
			return nil
		}
	}
}

// probeSQL reads the snapshot, the sequence, and the history and life of both. A sequence that has
// assigned nothing is before its last_value.
//
// A standby's snapshot lists no running transactions, so those open on the primary would seem to
// have ended without rows in the log. So on a standby the statement fails like a write, because
// it takes a transaction id.
func probeSQL(n names, server string) string {
	return `SELECT CASE WHEN pg_is_in_recovery() THEN pg_current_xact_id()::text ELSE pg_current_snapshot()::text END, CASE WHEN is_called THEN last_value ELSE last_value - 1 END,
		pg_relation_filenode(tableoid), ` + n.Literal("") + `::regclass::oid, ` + server + ` FROM ` + n.Table("offset_seq")
}

// runProbe runs a probe's statement; its additional columns go to rest.
func (s *Store) runProbe(ctx context.Context, q store.RowQuerier, query string, rest ...any) (*probe, error) {
	ctx, cancel := context.WithTimeout(ctx, driverrows.StatementTime)
	defer cancel()
	p := &probe{}
	known := s.known()
	var text string
	var sequence sql.NullInt64
	to := append([]any{&text, &p.last, &sequence, &p.history.Log, &p.server}, rest...)
	if err := q.QueryRowContext(ctx, query).Scan(to...); err != nil {
		return nil, err
	}
	p.history.Sequence = sequence.Int64
	return p, s.complete(ctx, q, p, text, known)
}

// bounds are what is known before a probe about where rows can be.
type bounds struct {
	watermark *watermark
	floors    *floors
}

func (s *Store) known() bounds { return bounds{s.watermark.Load(), s.floors.Load()} }

// complete sets the fields of a probe from its columns, and from what was known before its
// statement began, as far as that still applies.
func (s *Store) complete(ctx context.Context, q store.RowQuerier, p *probe, snapshot string, known bounds) (err error) {
	if p.snapshot, err = parseSnapshot(snapshot); err != nil {
		return err
	}
	found, err := s.identify(ctx, q, p.server)
	if err != nil {
		return err
	}
	p.history.System = found.id
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
