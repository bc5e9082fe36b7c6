package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/session"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/spans"
)

// sweeps prove that no running statement can still insert a row at certain offsets: an offset is handed
// out within one INSERT, and until the row is inserted, innodb_trx lists the statement with tables in
// use and locked.
type sweeps struct {
	swept     int64 // a hole without a row up to here is dead
	sweptOnce bool  // the first sweep has ended
	sweeping  []*sweep
	askAt     time.Time // when to look at innodb_trx again
}

// sweep is an unfinished proof for the offsets up to top.
type sweep struct {
	top     int64
	since   time.Time
	pending map[string]bool // statements that may have taken one of them; nil before the first query
}

const (
	// slack is how long may pass between taking an offset and the start of the transaction. They are
	// adjacent calls within the server, without a wait in between.
	slack = 2 * time.Second
	// sweepPause is the time between the starts of two sweeps, and maxSweeps how many may be
	// unfinished.
	sweepPause = time.Second
	maxSweeps  = 60
	// The server shows a copy of the transactions, and renews it only if no session has queried it
	// for 100 ms. So processes query it rarely, and not at the same time.
	askPause  = 300 * time.Millisecond
	askJitter = 300 * time.Millisecond
)

// Proof is how a store finds out that an offset without a row will never have one, if the user of
// the database lacks the privilege PROCESS. With the privilege, the store asks the server which
// statements run, and this setting has no effect.
type Proof string

const (
	// ProofRequired refuses to read without the privilege.
	ProofRequired Proof = ""
	// ProofVoid fills the gap with an empty row of the type VoidType after 5 minutes. Nothing is
	// lost: a statement that inserts its rows later fails with error 1062, and its transaction must
	// be repeated. It writes a row for each offset that was rolled back.
	ProofVoid Proof = "void"
)

// VoidType is the type of rows of ProofVoid. No reader returns them.
const VoidType = "_void"

// mayWatch checks that the store can sweep.
func (s *Store) mayWatch(ctx context.Context, c *sql.Conn) error {
	var n int
	err := c.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM information_schema.innodb_trx LIMIT 1) any_row`).Scan(&n)
	switch {
	case err == nil:
		s.blind.Store(false)
	case !session.Refused(err, session.NeedsPrivilege):
		return err
	case s.proof == ProofRequired:
		return &store.AdvisedError{
			Err: fmt.Errorf("%w: the user lacks the privilege PROCESS, so rolled back offsets cannot be distinguished from offsets that will still commit: %w", store.ErrUnsupported, err),
			Hint: "GRANT PROCESS ON *.* TO the user of the forwarder, or set outbox.without_process: void, which " +
				"puts empty rows in their place",
		}
	default:
		s.blind.Store(true)
	}
	return nil
}

// follow begins sweeps, continues them, and decides holes.
func (t *tracker) follow(ctx context.Context) error {
	before := t.swept
	if err := t.beginSweep(ctx); err != nil {
		return err
	}
	if err := t.moveSweeps(ctx); err != nil {
		return err
	}
	if len(t.at.holes) == 0 || t.swept == before && time.Now().Before(t.lookAt) {
		return nil
	}
	began := time.Now()
	err := t.decide(ctx, t.at.holes)
	t.lookAt = time.Now().Add(max(lookPause, 10*time.Since(began)))
	return err
}

// beginSweep begins a sweep if holes need one. It covers all offsets handed out so far, including those
// that the tracker has not reached yet, so that a backlog needs only one sweep.
func (t *tracker) beginSweep(ctx context.Context) error {
	n := len(t.sweeping)
	if t.sweptOnce || n > 0 {
		holes := t.at.holes
		if len(holes) == 0 {
			return nil
		}
		last := holes[len(holes)-1].Last
		if last <= t.swept || n > 0 && (n == maxSweeps || t.sweeping[n-1].top >= last || time.Since(t.sweeping[n-1].since) < sweepPause) {
			return nil
		}
	}
	var top int64
	err := t.store.dirty(ctx, t.life, func(tx *sql.Tx) error {
		return t.store.run.Row(ctx, tx, "SELECT coalesce(max(`offset`), 0) FROM {log}").Scan(&top)
	})
	if err != nil {
		return err
	}
	t.sweeping = append(t.sweeping, &sweep{top: max(top, t.at.top), since: time.Now()})
	return nil
}

func (t *tracker) moveSweeps(ctx context.Context) error {
	switch {
	case len(t.sweeping) == 0:
		return nil
	case t.store.blind.Load():
		return t.outwait(ctx)
	case time.Now().Before(t.askAt) || time.Since(t.sweeping[0].since) < slack:
		return nil
	}
	t.askAt = time.Now().Add(askPause + mathrand.N(askJitter))
	running, fresh, err := t.store.running(ctx, t.life)
	if err != nil || !fresh {
		return err
	}
	over := -1
	for i, s := range t.sweeping {
		if s.pending == nil {
			if time.Since(s.since) < slack {
				break
			}
			s.pending = maps.Clone(running)
		}
		for name := range s.pending {
			if !running[name] {
				delete(s.pending, name)
			}
		}
		if len(s.pending) == 0 {
			over = i
		}
	}
	t.endSweeps(over)
	return nil
}

// endSweeps ends a successful sweep and all earlier ones.
func (t *tracker) endSweeps(last int) {
	if last < 0 {
		return
	}
	t.swept, t.sweptOnce = t.sweeping[last].top, true
	t.sweeping = t.sweeping[last+1:]
}

// voidAfter is how long a statement that publishes may take, from its first row to its last, before
// void rows are in its way.
const voidAfter = 5 * time.Minute

// outwait decides holes by waiting and filling them instead of asking the server.
func (t *tracker) outwait(ctx context.Context) error {
	over := -1
	for i, s := range t.sweeping {
		if time.Since(s.since) > t.store.voidAfter {
			over = i
		}
	}
	if over < 0 {
		return nil
	}
	if err := t.fillVoids(ctx, t.at.holes.UpTo(t.sweeping[over].top)); err != nil {
		return err
	}
	// swept does not change: the void rows show which offsets are decided.
	t.sweptOnce, t.sweeping = true, t.sweeping[over+1:]
	return nil
}

// voidRows is how many void rows one statement writes.
const voidRows = 500

// fillVoids inserts void rows into holes without an uncommitted row.
func (t *tracker) fillVoids(ctx context.Context, holes spans.Set) error {
	if err := t.decide(ctx, holes); err != nil {
		return err
	}
	var places []string
	flush := func() error {
		if len(places) == 0 {
			return nil
		}
		_, err := t.store.on(ctx, t.store.db, t.life, func(c *sql.Conn) error {
			_, err := c.ExecContext(ctx, "INSERT IGNORE INTO "+t.store.names.Log()+" (`offset`, type, payload) VALUES "+strings.Join(places, ", "))
			return err
		})
		places = nil
		return err
	}
	for _, r := range holes.And(t.at.holes).Minus(t.seen) {
		for offset := r.First; offset <= r.Last; offset++ {
			places = append(places, fmt.Sprintf("(%d, '%s', '{}')", offset, VoidType))
			if len(places) == voidRows {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	return flush()
}

// running returns the transactions that are executing a statement that writes or locks. The server may
// show an older copy of the list. fresh reports that the list contains this statement itself.
func (s *Store) running(ctx context.Context, life string) (running map[string]bool, fresh bool, err error) {
	running = make(map[string]bool)
	nonce := "look " + rand.Text()
	err = s.dirty(ctx, life, func(tx *sql.Tx) error {
		var last int64
		// The server lists only transactions that have read something.
		if err := s.run.Row(ctx, tx, "SELECT coalesce(max(`offset`), 0) FROM {log}").Scan(&last); err != nil {
			return err
		}
		return s.run.Each(ctx, tx, func(rows *sql.Rows) error {
			var name string
			var busy, me bool
			if err := rows.Scan(&name, &busy, &me); err != nil {
				return err
			}
			fresh = fresh || me
			if busy && !me {
				running[name] = true
			}
			return nil
		}, `SELECT CONCAT(trx_mysql_thread_id, ' ', trx_started), trx_tables_in_use > 0 AND trx_tables_locked > 0,
			coalesce(trx_mysql_thread_id = CONNECTION_ID() AND trx_query LIKE '%`+nonce+`%', false) FROM information_schema.innodb_trx`)
	})
	return running, fresh, err
}
