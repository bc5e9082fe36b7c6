package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/store"
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

	// For a standby: the commits of all transactions that had ended are before wal.
	wal      lsn
	timeline int64
	database int64
	asked    time.Time // before the statement
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

// Probe looks how far the log reaches; see store.Log.
func (s *Store) Probe(ctx context.Context) (store.Target, error) {
	if source := s.Source(); source != nil {
		return source.Probe(ctx)
	}
	return s.probeLog(ctx)
}

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
