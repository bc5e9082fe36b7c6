package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/internal/pace"
)

// Pages can be read on a streaming standby, which leaves the primary what is small: probes,
// leases and checkpoints. Which rows a page has is decided by the primary's snapshot. A
// standby shows all of them once it has replayed the place where the write-ahead log stood
// just behind that snapshot: a transaction leaves a snapshot's list after it has written its
// commit, and becomes visible on a standby before the standby says that it has replayed it.
//
// The standby is asked in a statement before the page's. A statement's snapshot is older than
// what its functions say: asked in one statement, it may have replayed the place by then, and
// show the rows of before.
//
// Whatever is wrong with the standby, the page is read from the primary.

const (
	// replayPatience is how long a page waits for the standby. It covers wal_writer_delay,
	// 200 ms by default: a commit that did not wait for the disk is sent after that.
	replayPatience = 250 * time.Millisecond
	// Pauses between two questions of a page that waits.
	firstReplayPause = 500 * time.Microsecond
	maxReplayPause   = 20 * time.Millisecond

	// standbyAskTime bounds connecting and one question, and standbyTime a page.
	standbyAskTime = 2 * time.Second
	standbyTime    = 10 * time.Second

	// maxStandbyRest is how long a standby that fails is left alone at most.
	maxStandbyRest = 30 * time.Second
	// behindTime is how long a standby may lag behind all pages before it is said to fail, and
	// left alone.
	behindTime = 10 * time.Second
)

// standby is where pages are read in place of the primary.
type standby struct {
	db         *sql.DB
	query      string // see standbySQL
	behindTime time.Duration

	mu      sync.Mutex
	trouble *pace.Trouble
	behind  time.Time // since when it lags behind all pages; zero: it does not
	missed  missed
}

// missed is a place for which pages have waited in vain: until the standby has replayed it,
// none waits for it.
type missed struct {
	server string // the primary, in that life
	at     lsn
}

func newStandby(db *sql.DB, server string, logger *slog.Logger) *standby {
	return &standby{
		db: db, query: standbySQL(server), behindTime: behindTime,
		trouble: pace.NewTrouble(cmp.Or(logger, slog.Default()), "reading from the standby", maxStandbyRest),
	}
}

// openStandby refuses a standby of another database: that would never be of use. One that
// cannot be reached, or is promoted, is there again sooner or later.
func (s *Store) openStandby(ctx context.Context, c Config, version int) error {
	if c.Standby == nil {
		return nil
	}
	b := newStandby(c.Standby, serverSQL(version), c.Logger)
	var primary identity
	if err := s.db.QueryRowContext(ctx, databaseSQL).Scan(&primary.system, &primary.database); err != nil {
		return fmt.Errorf("identify the database, which the role needs EXECUTE on pg_control_system() for, to compare it with the standby's: %w", err)
	}
	asking, cancel := context.WithTimeout(ctx, standbyAskTime)
	defer cancel()
	a, err := b.ask(asking, b.db)
	if err == nil {
		if err := a.sameDatabase(primary); err != nil {
			return err
		}
		err = a.fault()
	}
	switch {
	case ctx.Err() != nil, errors.Is(err, errHiddenTimeline):
		return err
	case err != nil:
		b.met(err)
	}
	s.standby = b
	return nil
}

// wanted says whether the next page is to be read there, as far as is known.
func (b *standby) wanted() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !time.Now().Before(b.trouble.Until())
}

// met takes note of why a page is read from the primary. Lagging behind is no failure until it
// has lasted.
func (b *standby) met(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if errors.Is(err, errBehind) {
		if b.behind.IsZero() {
			b.behind = time.Now()
		}
		if time.Since(b.behind) < b.behindTime {
			return
		}
	}
	b.trouble.Met(fmt.Errorf("pages are read from the primary meanwhile: %w", err))
}

// works takes note of a page that was read there.
func (b *standby) works() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.behind = time.Time{}
	b.trouble.Over()
}

// stream is the function stream on a standby that has replayed all that p includes. page is
// the query for the server that has said so.
func (b *standby) stream(ctx context.Context, p *probe, page func(server string) *statement, row func([]driver.Value) (more bool, err error)) error {
	for stale := 0; ; stale++ {
		begun, err := b.streamOnce(ctx, p, page, row)
		if begun || !errors.Is(err, driver.ErrBadConn) || stale == staleConnections {
			return err
		}
	}
}

// streamOnce asks and reads on one connection: others may lead to another standby.
func (b *standby) streamOnce(ctx context.Context, p *probe, page func(server string) *statement, row func([]driver.Value) (bool, error)) (begun bool, err error) {
	conn, server, err := b.reach(ctx, p)
	if err != nil {
		return false, err
	}
	defer func() { err = cmp.Or(err, conn.Close()) }()
	q := page(server)
	args, err := named(q.args)
	if err != nil {
		return false, err
	}
	return streamOn(ctx, conn, q.String(), args, row)
}

// reach returns a connection to a standby that has replayed all that p includes, and which life
// of which server that is.
func (b *standby) reach(ctx context.Context, p *probe) (_ *sql.Conn, server string, err error) {
	ctx, cancel := context.WithTimeout(ctx, standbyAskTime)
	defer cancel()
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return nil, "", err
	}
	if server, err = b.await(ctx, conn, p); err != nil {
		var unfit *unfitError
		if errors.As(err, &unfit) { // another connection may lead to another server
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
		_ = conn.Close()
		return nil, "", err
	}
	return conn, server, nil
}

// await returns once the standby has replayed all that p includes, or errBehind.
func (b *standby) await(ctx context.Context, conn *sql.Conn, p *probe) (server string, err error) {
	late := time.Now().Add(replayPatience)
	for pause := firstReplayPause; ; pause = min(2*pause, maxReplayPause) {
		a, err := b.ask(ctx, conn)
		if err == nil {
			err = a.fits(p)
		}
		switch {
		case err != nil:
			return "", err
		case a.replayed.reaches(p.wal, a.pageSize):
			return a.server, nil
		case !b.isWorthWaiting(a, p, time.Now().Add(pause).After(late)):
			return "", errBehind
		}
		if !pace.Sleep(ctx, pause) {
			return "", ctx.Err()
		}
	}
}

// isWorthWaiting says whether a page waits on. Where the standby is seconds behind, pages do not
// all wait: once one has waited in vain, the others do not until its place is replayed.
func (b *standby) isWorthWaiting(a *standbyAnswer, p *probe, late bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.missed.server == p.server && !a.replayed.reaches(b.missed.at, a.pageSize) {
		return false
	}
	if late {
		b.missed = missed{server: p.server, at: p.wal}
	}
	return !late
}

// identity is that of a database. A standby has both parts from its primary.
type identity struct {
	system   string
	database int64
}

const databaseSQL = `SELECT system_identifier::text, (SELECT oid::bigint FROM pg_database WHERE datname = current_database()) FROM pg_control_system()`

// standbyAnswer is what a server says of itself.
type standbyAnswer struct {
	identity
	server     string
	recovering bool
	replayed   lsn
	pageSize   int64 // of the write-ahead log
	receiving  bool
	timeline   int64 // on which it receives; 0 is hidden from the role
}

// standbySQL asks how far a standby has replayed, and then on which timeline it receives: it
// goes from one to the next and never back, so what it had replayed was of that one.
func standbySQL(server string) string {
	return `SELECT c.system_identifier::text, (SELECT oid::bigint FROM pg_database WHERE datname = current_database()), ` + server + `, pg_is_in_recovery(),
		p.replayed, current_setting('wal_block_size')::bigint, r.pid IS NOT NULL, coalesce(r.received_tli, 0)
		FROM (SELECT coalesce(pg_last_wal_replay_lsn(), '0/0')::text AS replayed OFFSET 0) p
		LEFT JOIN LATERAL (SELECT pid, received_tli FROM pg_stat_wal_receiver WHERE p.replayed IS NOT NULL) r ON true
		CROSS JOIN pg_control_system() c`
}

func (b *standby) ask(ctx context.Context, q querier) (*standbyAnswer, error) {
	a := &standbyAnswer{}
	var replayed string
	err := q.QueryRowContext(ctx, b.query).Scan(&a.system, &a.database, &a.server, &a.recovering, &replayed, &a.pageSize, &a.receiving, &a.timeline)
	if err != nil {
		return nil, fmt.Errorf("ask the standby: %w", err)
	}
	a.replayed, err = parseLSN(replayed)
	return a, err
}

// sameDatabase is the error of a standby of another database.
func (a *standbyAnswer) sameDatabase(primary identity) error {
	switch {
	case a.system != primary.system:
		return fmt.Errorf("%w: it is of the cluster %s, and the database of %s", ErrOtherCluster, a.system, primary.system)
	case a.database != primary.database:
		return fmt.Errorf("%w: its address names another database of the cluster", ErrOtherCluster)
	}
	return nil
}

// fault is why a server is of no use as a standby, whatever the primary is.
func (a *standbyAnswer) fault() error {
	switch {
	case !a.recovering:
		return &unfitError{"the server is no standby, or was promoted"}
	case !a.receiving:
		return fmt.Errorf("%w: it receives nothing", errBehind)
	case a.timeline == 0:
		return errHiddenTimeline
	}
	return nil
}

// fits is the error of a standby that is not of the primary of a probe.
func (a *standbyAnswer) fits(p *probe) error {
	if err := a.sameDatabase(identity{p.history.System, p.database}); err != nil {
		return &unfitError{err.Error()}
	}
	if err := a.fault(); err != nil {
		return err
	}
	if a.timeline != p.timeline {
		return &unfitError{fmt.Sprintf("the standby is on timeline %d and the primary on %d: it follows another server", a.timeline, p.timeline)}
	}
	return nil
}
