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
)

// tracker finds out, once for a process, which offsets are decided. It takes no lock and, but for
// void rows, writes nothing.
//
//  1. What is visible above the top moves the top to the last of it; what is missing in between
//     are new holes.
//  2. Statements that begin later look at all holes, from high offsets to low. What is visible is
//     decided. So if a row is in the snapshot, so is each transaction that its publisher waited for
//     to lock a key: that one left the list of active transactions before it released its locks. MariaDB's read views are not atomic: one statement alone may see a row
//     and not one that was committed before.
//  3. A look at what is not committed: a hole with an uncommitted row stays. One that had one, and
//     has none any more, was rolled back. One that never had one is dead if no statement is left
//     that could have taken the offset: see sweeps.
//
// docs/internals/reading.md says why this loses nothing.
type tracker struct {
	store *Store
	busy  chan struct{} // capacity 1: held while one looks

	life   string
	at     snapshot
	seeded bool
	sweeps
	seen    spans     // holes in which an uncommitted row was seen
	dead    spans     // holes that were recently found dead: readers need not look for them
	lookAt  time.Time // when to look at all holes again
	marks   []mark
	deadNow sync.RWMutex // over dead, for readers

	learning sync.Mutex
	lessons  []snapshot // that positions of cursors know, and the tracker may not
}

// mark is a place that the log had reached at a time.
type mark struct {
	top int64
	at  time.Time
}

const (
	// maxProbe is how many rows a probe looks at.
	maxProbe = 1 << 16
	// lookPause is how often all holes are looked at for uncommitted rows at most; longer
	// where that takes long.
	lookPause = 50 * time.Millisecond
	// maxDead bounds what is remembered of dead offsets.
	maxDead = 100_000
	// markPause is how far apart marks are.
	markPause = time.Second
)

func newTracker(s *Store) *tracker { return &tracker{store: s, busy: make(chan struct{}, 1)} }

// learn adds what a cursor has decided, so that the next probe does not read the whole log.
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
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *tracker) unlock() { <-t.busy }

// probe returns the newest snapshot, for a reader with the rows that are new in it; nil: for all.
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

// forget drops everything that was known. The tracker begins again, in a life of a server.
func (t *tracker) forget(life string) {
	t.life, t.at, t.seeded, t.sweeps, t.seen, t.marks = life, snapshot{}, false, sweeps{}, nil, nil
	t.lookAt = time.Time{}
	t.deadNow.Lock()
	defer t.deadNow.Unlock()
	t.dead = nil
}

func (t *tracker) look(ctx context.Context, r *reader) (*target, error) {
	found := &target{}
	var young spans // new holes that a sweep is behind
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
		young = gaps.upTo(t.swept)
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
	if len(t.at.holes) > 0 || !t.swepts {
		if err := t.follow(ctx); err != nil {
			return nil, err
		}
	}
	t.markTop()
	found.at, found.life = t.at, t.life
	return found, nil
}

// prepare takes up what cursors know.
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

// seed reads the cursors. It skips a position that cannot be read: the reader of that lane returns the error.
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

// read is steps 1 and 2. rows are those that r wants of what is new, nil if it has to read them; full says
// that there may be more.
func (t *tracker) read(ctx context.Context, c *sql.Conn, r *reader) (gaps spans, rows *brought, full bool, err error) {
	fresh, rows, err := t.fresh(ctx, c, r)
	if err != nil {
		return nil, nil, false, err
	}
	at := t.at
	if n := len(fresh); n > 0 {
		gaps = spans{{First: at.top + 1, Last: fresh[n-1]}}.minus(points(fresh))
		at.top, full = fresh[n-1], n >= maxProbe-1
	}
	late, err := t.store.visible(ctx, c, at.holes.or(gaps))
	if err != nil {
		return nil, nil, false, err
	}
	if len(late) > 0 {
		rows = nil // they are without these
	}
	at.holes = at.holes.or(gaps).minus(late)
	t.at = at
	return gaps.minus(late), rows, full, nil
}

// fresh returns the visible offsets above the top, with the rows that r wants if it can bring them. If the
// row at the top is gone, either retention removed it or the log began again; then the tracker does too.
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
	t.seeded = true // the cursors are of the log that is gone
	list, err = t.above(ctx, c)
	return list, nil, err
}

// above are the visible offsets from the top on.
func (t *tracker) above(ctx context.Context, c *sql.Conn) ([]int64, error) {
	return offsets(ctx, c, "SELECT `offset` FROM "+t.store.names.Log()+" FORCE INDEX (PRIMARY) WHERE `offset` >= "+
		strconv.FormatInt(t.at.top, 10)+" ORDER BY `offset` LIMIT "+strconv.Itoa(maxProbe))
}

// visible are those of some offsets at which a connection sees rows. Later statements look at
// lower offsets.
func (s *Store) visible(ctx context.Context, c *sql.Conn, among spans) (spans, error) {
	var parts []spans
	for end := len(among); end > 0; end -= chunk {
		part := among[max(0, end-chunk):end]
		cover, _ := covering(part, apart)
		found, err := offsets(ctx, c, "SELECT `offset` FROM "+s.names.Log()+" FORCE INDEX (PRIMARY) WHERE "+cover.where()+" ORDER BY `offset`")
		if err != nil {
			return nil, err
		}
		parts = append(parts, points(found).and(part))
	}
	slices.Reverse(parts)
	return slices.Concat(parts...), nil
}

// decide is step 3, for some holes.
func (t *tracker) decide(ctx context.Context, holes spans) error {
	var present spans
	err := t.store.dirty(ctx, t.life, func(tx *sql.Tx) (err error) {
		present, err = t.store.present(ctx, tx, holes)
		return err
	})
	if err != nil {
		return err
	}
	absent := holes.minus(present)
	dead := absent.and(t.seen).or(absent.upTo(t.swept))
	t.at.holes = t.at.holes.minus(dead)
	t.seen = t.seen.minus(holes).or(present)

	t.deadNow.Lock()
	defer t.deadNow.Unlock()
	if t.dead = t.dead.or(dead); len(t.dead) > maxDead {
		t.dead = slices.Clone(t.dead[maxDead/2:])
	}
	return nil
}

// present are those of some offsets at which a transaction sees rows.
func (s *Store) present(ctx context.Context, tx *sql.Tx, among spans) (present spans, err error) {
	for part := range slices.Chunk(among, chunk) {
		cover, _ := covering(part, apart)
		var found []int64
		err := s.run.Each(ctx, tx, func(rows *sql.Rows) error {
			var offset int64
			err := rows.Scan(&offset)
			found = append(found, offset)
			return err
		}, "SELECT `offset` FROM {log} FORCE INDEX (PRIMARY) WHERE "+cover.where()+" ORDER BY `offset`")
		if err != nil {
			return nil, err
		}
		present = append(present, points(found).and(part)...)
	}
	return present, nil
}

// withoutDead leaves out offsets that were recently found dead.
func (t *tracker) withoutDead(s spans) spans {
	t.deadNow.RLock()
	defer t.deadNow.RUnlock()
	return s.minus(t.dead)
}

// markTop notes how far the log has got, for held.
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

// held is for how long the lowest hole has been one, to about a second; 0: there is none.
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

// nextOffset is what the log's counter will hand out next.
func (s *Store) nextOffset(ctx context.Context, q querier) (next int64, err error) {
	if s.family.name == "MySQL" { // else it answers from figures of yesterday
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

// querier is a connection or a transaction.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}
