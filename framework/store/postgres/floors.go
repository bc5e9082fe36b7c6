package postgres

import (
	"context"
	"strings"
	"time"
)

// A transaction that stays open keeps its floor at the offset at which its id was assigned. When
// it ends, a reader would search everything since then for rows that it may have written. Most
// such transactions have not touched the log, and the server's locks show which: a transaction
// that inserts locks the table first, and keeps the lock until its end. So a transaction without
// a lock at the time of a look takes its offsets, if any, after that. An offset taken earlier
// without a lock belongs to no row, since producers cannot choose offsets.

const (
	// defaultFloorLag is how many offsets floors may lag behind before the locks are read.
	defaultFloorLag = 1000
	// floorRest is the pause before the locks are read again, as a multiple of how long reading
	// them took. Reading them delays transactions that lock.
	floorRest = 20
)

// floors are offsets above which running transactions take theirs, as the locks show.
type floors struct {
	of      map[xid]int64
	last    int64 // last offset of the sequence when the locks were read, or would have been
	xmax    xid   // of the probe at that time
	history history
	server  string
	rest    time.Time // until when the locks are not read
}

// holds reports whether the floors belong to the log that p has seen.
func (f *floors) holds(p *probe) bool {
	return f.server == p.server && f.history == p.history && f.xmax <= p.snapshot.xmax && f.last <= p.last
}

// raiseFloors reads the locks if a transaction has been open since before they were last read, or
// would have been. p must have ended.
func (s *Store) raiseFloors(ctx context.Context, p *probe) {
	if !s.raising.TryLock() {
		return
	}
	defer s.raising.Unlock()
	known := s.floors.Load()
	f := &floors{last: p.last, xmax: p.snapshot.xmax, history: p.history, server: p.server}
	switch {
	case known == nil || !known.holds(p):
	case p.last-known.last < s.floorLag || time.Now().Before(known.rest):
		return
	case p.snapshot.xmin < known.xmax:
		began := time.Now()
		f.of = s.unlocked(ctx, p, known)
		f.rest = time.Now().Add(floorRest * time.Since(began))
	}
	s.floors.Store(f)
	p.floors = f.of
}

// unlocked returns floors: the probe's last offset for running transactions without a lock on the
// log, and the known floor for the others. If it fails, floors stay low, which costs time but
// loses no row.
func (s *Store) unlocked(ctx context.Context, p *probe, known *floors) map[xid]int64 {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var list, server string
	free := make(map[uint32]bool)
	if err := s.db.QueryRowContext(ctx, s.sql.unlocked).Scan(&list, &server); err == nil && server == p.server && list != "" {
		for id := range strings.SplitSeq(list, ",") {
			if x, err := parseXID(id); err == nil {
				free[uint32(x)] = true
			}
		}
	}
	running := s.stillRunning(ctx, p)
	of := make(map[xid]int64)
	for _, x := range p.snapshot.running {
		if free[uint32(x)] && running[x] { // locks show ids without their epoch
			of[x] = p.last
		} else if floor, ok := known.of[x]; ok {
			of[x] = floor
		}
	}
	return of
}

// stillRunning returns the transactions that a later snapshot than a probe's shows as running. A transaction that
// ends leaves the snapshots first and then releases its locks, one by one: the one on the log may be gone while that
// on its id is still held, although it has published.
func (s *Store) stillRunning(ctx context.Context, p *probe) map[xid]bool {
	running := make(map[xid]bool)
	var text, server string
	if err := s.db.QueryRowContext(ctx, s.sql.snapshot).Scan(&text, &server); err != nil || server != p.server {
		return running
	}
	now, err := parseSnapshot(text)
	if err != nil {
		return running
	}
	for _, x := range now.running {
		running[x] = true
	}
	return running
}

// unlockedSQL lists the running transactions that have no lock on the log or its partitions other
// than that of a query. A prepared transaction has another virtual id than its session, and gets the
// session's locks one by one: while one holds the log, no transaction is listed. A prepared
// transaction itself is never listed.
func unlockedSQL(n names, server string) string {
	return `WITH locks AS MATERIALIZED (
			SELECT locktype, relation, mode, granted, transactionid, virtualtransaction, pid FROM pg_locks WHERE locktype IN ('relation', 'transactionid')),
		holders AS MATERIALIZED (
			SELECT virtualtransaction, pid FROM locks WHERE locktype = 'relation' AND mode NOT IN ('AccessShareLock', 'SIReadLock')
			AND (relation = ` + n.Literal("") + `::regclass OR relation IN (SELECT relid FROM pg_partition_tree(` + n.Literal("") + `))))
		SELECT coalesce(string_agg(x.transactionid::text, ','), ''), ` + server + ` FROM locks x
		WHERE x.locktype = 'transactionid' AND x.mode = 'ExclusiveLock' AND x.granted AND x.pid IS NOT NULL
		AND NOT EXISTS (SELECT FROM holders h WHERE h.virtualtransaction = x.virtualtransaction OR h.pid IS NULL)`
}
