package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/spans"
)

// tracker finds out which offsets are decided, once for all readers of a process. It takes no locks and
// writes nothing except void rows.
//
//  1. The visible rows above the top move the top to the last one; missing offsets in between become
//     holes.
//  2. Later statements read all holes, from high offsets to low. Holes with a visible row are decided. So
//     if a row is in the snapshot, so are the rows of each transaction for whose lock on a key its
//     publisher had to wait: that transaction left the list of active transactions before it released
//     its locks. MariaDB's read views are not atomic: a single statement may see a row and miss one that
//     was committed before it.
//  3. A read of uncommitted rows: a hole with an uncommitted row stays. If its uncommitted row has gone,
//     it was rolled back. A hole that never had one is dead if no running statement can have taken its
//     offset: see sweeps.
//
// docs/internals/reading.md explains why this loses nothing.
type tracker struct {
	store *Store
	busy  chan struct{} // of capacity 1: holds a value during a probe

	life   string
	at     snapshot
	seeded bool
	sweeps
	seen    spans.Set // holes in which an uncommitted row was seen
	dead    spans.Set // holes that were recently found dead: readers need not read them
	lookAt  time.Time // when to read all holes again
	marks   []mark
	deadNow sync.RWMutex // guards dead for readers

	learning sync.Mutex
	lessons  []snapshot // from positions of cursors, which may know more than the tracker
}

// mark is the top of the log at a time.
type mark struct {
	top int64
	at  time.Time
}

const (
	// maxProbe is how many rows a probe reads.
	maxProbe = 1 << 16
	// lookPause is the minimum time between reads of all holes for uncommitted rows; it is longer if
	// such a read takes long.
	lookPause = 50 * time.Millisecond
	// maxDead limits how many ranges of dead offsets are kept.
	maxDead = 100_000
	// markPause is the time between two marks.
	markPause = time.Second
)

func newTracker(s *Store) *tracker { return &tracker{store: s, busy: make(chan struct{}, 1)} }

// learn adds the snapshot of a cursor, so that the next probe does not read the whole log.
func (t *tracker) learn(s snapshot) {
	if s.top == 0 {
		return
	}
	t.learning.Lock()
	defer t.learning.Unlock()
	t.lessons = append(t.lessons, s)
}

func (t *tracker) lock(ctx context.Context) error {
	select {
	case t.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *tracker) unlock() { <-t.busy }

// probe returns the newest snapshot, with the new rows for the reader r if it is not nil.
func (t *tracker) probe(ctx context.Context, r *reader) (*target, error) {
	if err := t.lock(ctx); err != nil {
		return nil, err
	}
	defer t.unlock()
	found, err := t.look(ctx, r)
	if errors.Is(err, store.ErrServerChanged) {
		t.forget("")
		found, err = t.look(ctx, r)
	}
	return found, err
}

// forget discards everything that is known, at the start of a life of the server.
func (t *tracker) forget(life string) {
	t.life, t.at, t.seeded, t.sweeps, t.seen, t.marks = life, snapshot{}, false, sweeps{}, nil, nil
	t.lookAt = time.Time{}
	t.deadNow.Lock()
	defer t.deadNow.Unlock()
	t.dead = nil
}

func (t *tracker) look(ctx context.Context, r *reader) (*target, error) {
	found := &target{}
	var young spans.Set // new holes that a finished sweep covers, which are decided at once
	life, err := t.store.on(ctx, t.store.db, t.life, func(c *sql.Conn) error {
		if err := t.prepare(ctx, c); err != nil {
			return err
		}
		gaps, rows, full, err := t.read(ctx, c, r)
		if err != nil {
			return err
		}
		found.brought = rows
		if found.last = t.at.top; full {
			err = c.QueryRowContext(ctx, "SELECT coalesce(max(`offset`), 0) FROM "+t.store.names.Log()).Scan(&found.last)
		}
		young = gaps.UpTo(t.swept)
		return err
	})
	if err != nil {
		return nil, err
	}
	t.life = life
	if len(young) > 0 {
		if err := t.decide(ctx, young); err != nil {
			return nil, err
		}
	}
	if len(t.at.holes) > 0 || !t.sweptOnce {
		if err := t.follow(ctx); err != nil {
			return nil, err
		}
	}
	t.markTop()
	found.at, found.life = t.at, t.life
	return found, nil
}

// prepare adds what cursors know.
func (t *tracker) prepare(ctx context.Context, c *sql.Conn) error {
	if !t.seeded {
		if err := t.store.mayWatch(ctx, c); err != nil {
			return err
		}
		if err := t.seed(ctx, c); err != nil {
			return err
		}
	}
	t.learning.Lock()
	defer t.learning.Unlock()
	for _, s := range t.lessons {
		t.at = join(t.at, s)
	}
	t.lessons = nil
	return nil
}

// seed reads the cursors. It skips invalid positions: the reader of the lane returns the error.
func (t *tracker) seed(ctx context.Context, c *sql.Conn) error {
	err := t.store.run.Each(ctx, c, func(rows *sql.Rows) error {
		var raw []byte
		if err := rows.Scan(&raw); err != nil {
			return err
		}
		if p, err := parsePosition(raw); err == nil {
			t.at = join(t.at, p.goal())
		}
		return nil
	}, `SELECT position FROM {cursors} WHERE position IS NOT NULL AND sink <> ?`, store.SinkPruner)
	t.seeded = err == nil
	return err
}

// read does the steps 1 and 2. rows has the new rows that r wants, nil if r must read them. full reports
// that there may be more.
func (t *tracker) read(ctx context.Context, c *sql.Conn, r *reader) (gaps spans.Set, rows *brought, full bool, err error) {
	fresh, rows, err := t.fresh(ctx, c, r)
	if err != nil {
		return nil, nil, false, err
	}
	at := t.at
	if n := len(fresh); n > 0 {
		gaps = spans.Set{{First: at.top + 1, Last: fresh[n-1]}}.Minus(spans.Points(fresh))
		at.top, full = fresh[n-1], n >= maxProbe-1
	}
	late, err := t.store.visible(ctx, c, at.holes.Or(gaps))
	if err != nil {
		return nil, nil, false, err
	}
	if len(late) > 0 {
		rows = nil // they lack these rows
	}
	at.holes = at.holes.Or(gaps).Minus(late)
	t.at = at
	return gaps.Minus(late), rows, full, nil
}

// fresh returns the visible offsets above the top, and the rows that r wants if it can bring them. If the
// row at the top is gone, retention has removed it or the log was started again; then the tracker starts
// again, too.
func (t *tracker) fresh(ctx context.Context, c *sql.Conn, r *reader) (list []int64, b *brought, err error) {
	if r != nil {
		list, b, err = r.bring(ctx, c, t.at)
	}
	if list == nil && err == nil {
		list, err = t.above(ctx, c)
	}
	if err != nil || t.at.top == 0 {
		return list, b, err
	}
	if len(list) > 0 && list[0] == t.at.top {
		return list[1:], b, nil
	}
	next, err := t.store.nextOffset(ctx, c)
	if err != nil || next > t.at.top {
		return list, b, err
	}
	life := t.life
	t.forget(life)
	t.seeded = true // the cursors belong to the earlier log
	list, err = t.above(ctx, c)
	return list, nil, err
}

// above returns the visible offsets from the top on.
func (t *tracker) above(ctx context.Context, c *sql.Conn) ([]int64, error) {
	return offsets(ctx, c, "SELECT `offset` FROM "+t.store.names.Log()+" FORCE INDEX (PRIMARY) WHERE `offset` >= "+
		strconv.FormatInt(t.at.top, 10)+" ORDER BY `offset` LIMIT "+strconv.Itoa(maxProbe))
}

// visible returns the offsets at which a connection sees rows. Later statements read lower offsets.
func (s *Store) visible(ctx context.Context, c *sql.Conn, among spans.Set) (spans.Set, error) {
	var parts []spans.Set
	for end := len(among); end > 0; end -= spans.Chunk {
		part := among[max(0, end-spans.Chunk):end]
		cover := spans.Covering(part)
		found, err := offsets(ctx, c, "SELECT `offset` FROM "+s.names.Log()+" FORCE INDEX (PRIMARY) WHERE "+cover.Where()+" ORDER BY `offset`")
		if err != nil {
			return nil, err
		}
		parts = append(parts, spans.Points(found).And(part))
	}
	slices.Reverse(parts)
	return slices.Concat(parts...), nil
}

// decide does step 3 for some holes.
func (t *tracker) decide(ctx context.Context, holes spans.Set) error {
	var present spans.Set
	err := t.store.dirty(ctx, t.life, func(tx *sql.Tx) (err error) {
		present, err = t.store.present(ctx, tx, holes)
		return err
	})
	if err != nil {
		return err
	}
	absent := holes.Minus(present)
	dead := absent.And(t.seen).Or(absent.UpTo(t.swept))
	t.at.holes = t.at.holes.Minus(dead)
	t.seen = t.seen.Minus(holes).Or(present)

	t.deadNow.Lock()
	defer t.deadNow.Unlock()
	if t.dead = t.dead.Or(dead); len(t.dead) > maxDead {
		t.dead = slices.Clone(t.dead[maxDead/2:])
	}
	return nil
}

// present returns the offsets at which a transaction sees rows.
func (s *Store) present(ctx context.Context, tx *sql.Tx, among spans.Set) (present spans.Set, err error) {
	for part := range slices.Chunk(among, spans.Chunk) {
		cover := spans.Covering(part)
		found, err := tables.Column[int64](ctx, s.run, tx, "SELECT `offset` FROM {log} FORCE INDEX (PRIMARY) WHERE "+cover.Where()+" ORDER BY `offset`")
		if err != nil {
			return nil, err
		}
		present = append(present, spans.Points(found).And(part)...)
	}
	return present, nil
}

// withoutDead returns the offsets without those that were recently found dead.
func (t *tracker) withoutDead(s spans.Set) spans.Set {
	t.deadNow.RLock()
	defer t.deadNow.RUnlock()
	return s.Minus(t.dead)
}

// markTop records the top of the log, for held.
func (t *tracker) markTop() {
	if len(t.at.holes) == 0 {
		t.marks = nil
		return
	}
	first := t.at.holes[0].First
	for len(t.marks) > 1 && t.marks[0].top < first {
		t.marks = t.marks[1:]
	}
	if n := len(t.marks); n == 0 || time.Since(t.marks[n-1].at) >= markPause && t.marks[n-1].top < t.at.top {
		t.marks = append(t.marks, mark{t.at.top, time.Now()})
	}
}

// held returns how long the lowest hole has existed, to about a second; 0 if there is none.
func (t *tracker) held(ctx context.Context) (time.Duration, error) {
	if err := t.lock(ctx); err != nil {
		return 0, err
	}
	defer t.unlock()
	if len(t.at.holes) == 0 {
		return 0, nil
	}
	for _, m := range t.marks {
		if m.top >= t.at.holes[0].First {
			return time.Since(m.at), nil
		}
	}
	return 0, nil
}

// nextOffset returns the next offset that the log will hand out.
func (s *Store) nextOffset(ctx context.Context, q tables.Querier) (next int64, err error) {
	if s.family.Name == "MySQL" { // otherwise it returns cached figures
		if _, err := q.ExecContext(ctx, `SET SESSION information_schema_stats_expiry = 0`); err != nil {
			return 0, err
		}
	}
	var counter sql.NullInt64
	err = q.QueryRowContext(ctx, `SELECT AUTO_INCREMENT FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '`+
		string(s.names)+`'`).Scan(&counter)
	if err != nil {
		return 0, fmt.Errorf("look up the next offset: %w", err)
	}
	return max(counter.Int64, 1), nil
}
