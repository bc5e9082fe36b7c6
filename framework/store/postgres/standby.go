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

// Pages can be read on a streaming standby, which leaves only small statements to the primary:
// probes, leases and checkpoints. The primary's snapshot decides which rows a page has. A standby
// has all of them when it has replayed the position of the write-ahead log just after that
// snapshot: a transaction leaves the list of running ones after it has written its commit, and
// becomes visible on a standby before the standby reports that it has replayed it.
//
// The standby is asked for its position in a statement before the page's. A statement's snapshot is
// older than the results of its functions: in one statement, the standby might already report the
// position, but show the rows of before.
//
// If anything is wrong with the standby, the page is read from the primary.

const (
	// replayPatience is how long a page waits for the standby. It covers wal_writer_delay, 200 ms
	// by default, after which a commit that did not wait for the disk is sent.
	replayPatience = 250 * time.Millisecond
	// Pauses between two questions of a page that waits.
	firstReplayPause = 500 * time.Microsecond
	maxReplayPause   = 20 * time.Millisecond

	// standbyAskTime bounds connecting and one question; standbyTime bounds a page.
	standbyAskTime = 2 * time.Second
	standbyTime    = 10 * time.Second

	// maxStandbyRest is the longest time for which a failing standby is not used.
	maxStandbyRest = 30 * time.Second
	// behindTime is how long a standby may lag behind all pages before it counts as failing and is
	// not used for a while.
	behindTime = 10 * time.Second
)

// standby is the server on which pages are read instead of the primary.
type standby struct {
	db         *sql.DB
	query      string // see standbySQL
	behindTime time.Duration

	mu      sync.Mutex
	trouble *pace.Trouble
	behind  time.Time // since when it lags behind all pages; zero if it does not
	missed  missed
}

// missed is a position for which pages have waited in vain: no other page waits until the standby
// has replayed it.
type missed struct {
	server string // the primary, and its life
	at     lsn
}

func newStandby(db *sql.DB, server string, logger *slog.Logger) *standby {
	return &standby{
		db: db, query: standbySQL(server), behindTime: behindTime,
		trouble: pace.NewTrouble(cmp.Or(logger, slog.Default()), "reading from the standby", maxStandbyRest),
	}
}

// openStandby refuses a standby of another database, which would never be useful. One that cannot be
// reached, or is promoted, may return.
func (s *Store) openStandby(ctx context.Context, c Config, version int) error {
	if c.Standby == nil {
		return nil
	}
	b := newStandby(c.Standby, serverSQL(version), c.Logger)
	var primary identity
	if err := s.db.QueryRowContext(ctx, databaseSQL).Scan(&primary.system, &primary.database); err != nil {
		return fmt.Errorf("identify the database, to compare it with the standby's (the role needs EXECUTE on pg_control_system()): %w", err)
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

// wanted reports whether the next page should be read on the standby.
func (b *standby) wanted() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !time.Now().Before(b.trouble.Until())
}

// met notes why a page is read from the primary. Lagging behind counts as a failure only after some
// time.
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

// works notes that a page was read on the standby.
func (b *standby) works() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.behind = time.Time{}
	b.trouble.Over()
}

// stream is the function stream on a standby that has replayed everything that p includes. page
// returns the query for the server that reports this.
func (b *standby) stream(ctx context.Context, p *probe, page func(server string) *statement, row func([]driver.Value) (more bool, err error)) error {
	for stale := 0; ; stale++ {
		begun, err := b.streamOnce(ctx, p, page, row)
		if begun || !errors.Is(err, driver.ErrBadConn) || stale == staleConnections {
			return err
		}
	}
}

// streamOnce asks and reads on one connection: another one may lead to another standby.
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
	return format.Query(ctx, conn, q.String(), args, row)
}

// reach returns a connection to a standby that has replayed everything that p includes, and the
// name of that server and its life.
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

// await returns when the standby has replayed everything that p includes, or errBehind.
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

// isWorthWaiting reports whether a page should wait. If the standby is seconds behind, not every page
// waits: once one has waited in vain, no other waits until its position is replayed.
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

// identity identifies a database. A standby has both parts from its primary.
type identity struct {
	system   string
	database int64
}

const databaseSQL = `SELECT system_identifier::text, (SELECT oid::bigint FROM pg_database WHERE datname = current_database()) FROM pg_control_system()`

// standbyAnswer is what a server reports about itself.
type standbyAnswer struct {
	identity
	server     string
	recovering bool
	replayed   lsn
	pageSize   int64 // of the write-ahead log
	receiving  bool
	timeline   int64 // on which it receives; 0: hidden from the role
}

// standbySQL asks how far a standby has replayed, and then on which timeline it receives. A standby
// only moves to later timelines, so what it had replayed belongs to that one or earlier ones.
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

// sameDatabase returns an error if the standby belongs to another database.
func (a *standbyAnswer) sameDatabase(primary identity) error {
	switch {
	case a.system != primary.system:
		return fmt.Errorf("%w: it belongs to the cluster %s, and the database to %s", ErrOtherCluster, a.system, primary.system)
	case a.database != primary.database:
		return fmt.Errorf("%w: its address names another database of the cluster", ErrOtherCluster)
	}
	return nil
}

// fault returns why a server cannot be used as a standby of any primary.
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

// fits returns an error if the standby does not belong to the primary of a probe.
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
