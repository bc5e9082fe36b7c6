package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// probe is one look at how far the log reaches: a snapshot and the highest
// offset that was handed out before it.
type probe struct {
	snapshot  snapshot
	last      int64
	history   history
	server    string    // which life of which server has answered
	watermark watermark // the newest that had ended before the probe
	floors    map[xid]int64
	brought   *brought // nil: nothing

	// For a standby: all that had ended in the snapshot is in the write-ahead log before wal.
	wal      lsn
	timeline int64
	database int64
	asked    time.Time // before the statement
}

// Last is the highest offset handed out when the probe was made.
func (p *probe) Last() int64 { return p.last }

// watermark ties transaction ids to offsets: every transaction with an id > id takes
// offsets > bound only, because the sequence stood at bound before id was
// handed out, and a transaction has its id before it takes an offset.
//
// The transactions of our own leases and checkpoints serve as watermarks; the zero watermark,
// before the first, promises nothing.
type watermark struct {
	id      xid
	bound   int64
	history history // in which bound was read
	server  string  // that has confirmed the commit
}

// holds says whether the watermark is of the log that p has met: not of one that was
// truncated since, or of another cluster, or from before a crash, which takes ids
// back.
func (w *watermark) holds(p *probe) bool {
	return w.server == p.server && w.history == p.history && w.id < p.snapshot.xmax && w.bound <= p.last
}

// sight is where a probe saw the sequence.
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

// probeLog takes a snapshot and reads the sequence, in one statement: the snapshot
// comes first, so no row that is visible in it has a higher offset than last.
func (s *Store) probeLog(ctx context.Context) (store.Target, error) {
	p, err := s.runProbe(ctx, s.db, s.sql.probe)
	if err != nil {
		return nil, fmt.Errorf("probe the log: %w", advise(err))
	}
	s.note(ctx, p)
	return p, nil
}

// note remembers where a probe that has ended saw the sequence, and may look for floors.
func (s *Store) note(ctx context.Context, p *probe) {
	s.raiseFloors(ctx, p)
	s.lastSeen.Store(&sight{last: p.last, history: p.history, server: p.server})
}

// seen is where the latest probe saw the sequence; it makes the first one.
func (s *Store) seen(ctx context.Context) (*sight, error) {
	if seen := s.lastSeen.Load(); seen != nil {
		return seen, nil
	}
	_, err := s.probeLog(ctx)
	return s.lastSeen.Load(), err
}

// raiseWatermark makes a transaction that a server has committed the newest watermark. seen
// must be from before the transaction got its id.
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
