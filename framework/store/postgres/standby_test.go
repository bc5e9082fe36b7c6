package postgres_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// beside is an outbox whose pages are read from a standby.
type beside struct {
	primary, standby *postgrestest.Server
	db, aside        *sql.DB // pools of the primary and of the standby
	store            *postgres.Store
	lines            *lines
}

func newBeside(t testing.TB) *beside {
	t.Helper()
	b := &beside{lines: &lines{}}
	b.primary, b.standby = standby(t)
	b.db, b.aside = openDB(t, b.primary.DSN()), openDB(t, b.standby.DSN())
	b.open(t, b.aside)
	return b
}

// open makes the store read pages from a standby.
func (b *beside) open(t testing.TB, aside *sql.DB) {
	t.Helper()
	var err error
	b.store, err = postgres.Open(t.Context(), b.db, postgres.Config{Standby: aside, Logger: b.lines.logger()})
	require.NoError(t, err)
}

func (b *beside) exec(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), query)
	require.NoError(t, err)
}

// untilBeside publishes and reads until a page comes from the standby. It returns all ids.
func (b *beside) untilBeside(t *testing.T, read func() ([]string, store.Page)) (published, found []string) {
	t.Helper()
	insert := inserter(t, b.db)
	for late := time.Now().Add(time.Minute); ; {
		id := fmt.Sprint("again", len(published))
		insert(id)
		published = append(published, id)
		ids, page := read()
		found = append(found, ids...)
		if !page.Asked.IsZero() {
			return published, found
		}
		require.True(t, time.Now().Before(late), "pages should come from the standby: %s", b.lines)
	}
}

// lines collects the log lines of a store.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// count returns how many lines contain a text.
func (l *lines) count(text string) (n int) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func TestPagesOfAStandbyHaveEveryCommittedRowOnceAndInKeyOrder(t *testing.T) {
	t.Parallel()
	b := newBeside(t)
	pages := 0
	for _, f := range findEveryRow(t, b.db, b.store) {
		pages += f.beside
	}
	require.NotZero(t, pages, "pages that the standby gave: %s", b.lines)
}

// The pooler runs consecutive statements on any of its connections.
func TestPagesOfAStandbyBehindATransactionPoolerHaveEveryCommittedRow(t *testing.T) {
	t.Parallel()
	b := newBeside(t)
	through, err := postgrestest.StartPooler(t, b.standby.DSN(), 2)
	if errors.Is(err, postgrestest.ErrNoProgram) {
		t.Skip(err)
	}
	require.NoError(t, err)
	b.open(t, openDB(t, through))
	pages := 0
	for _, f := range findEveryRow(t, b.db, b.store) {
		pages += f.beside
	}
	require.NotZero(t, pages, "pages that the standby gave: %s", b.lines)
}

// Without the check, the position moves past a row that the standby does not show yet.
func TestReadingAStandbyWithoutItsReplayPositionLosesRows(t *testing.T) {
	t.Parallel()
	b := newBeside(t)
	insert := inserter(t, b.db)
	_, read := readerOf(t, b.store)
	insert("shown")
	_, shown := b.untilBeside(t, read)
	require.Contains(t, shown, "shown")

	b.exec(t, b.aside, `SELECT pg_wal_replay_pause()`)
	b.store.BelieveStandby()
	insert("skipped")
	ids, page := read()
	require.Empty(t, ids)
	require.True(t, page.CaughtUp)
	b.exec(t, b.aside, `SELECT pg_wal_replay_resume()`)
	published, found := b.untilBeside(t, read)
	require.Subset(t, published, found)
	require.NotContains(t, found, "skipped", "lost for good")
}

// A separate statement queries the position, because the snapshot of a statement is older than its result.
func TestAStandbyReportsReplayedRowsThatAStatementDoesNotSee(t *testing.T) {
	t.Parallel()
	b := newBeside(t)
	b.exec(t, b.aside, `SELECT pg_wal_replay_pause()`)
	inserter(t, b.db)("a")
	var at string
	require.NoError(t, b.db.QueryRowContext(t.Context(), `SELECT pg_current_wal_insert_lsn()::text`).Scan(&at))

	tx, err := b.aside.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	const ask = `SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn, (SELECT count(*) FROM outbox)`
	look := func(q interface {
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}) (replayed bool, rows int) {
		t.Helper()
		require.NoError(t, q.QueryRowContext(t.Context(), ask, at).Scan(&replayed, &rows))
		return replayed, rows
	}
	replayed, rows := look(tx)
	require.False(t, replayed)
	require.Zero(t, rows)
	b.exec(t, b.aside, `SELECT pg_wal_replay_resume()`)
	require.Eventually(t, func() bool {
		replayed, rows := look(b.aside)
		return replayed && rows == 1
	}, time.Minute, 10*time.Millisecond)
	replayed, rows = look(tx)
	require.True(t, replayed)
	require.Zero(t, rows)
}

func TestAStandbyThatLagsBehindLeavesPagesToThePrimary(t *testing.T) {
	t.Parallel()
	b := newBeside(t)
	b.store.SetBehindTime(0)
	insert := inserter(t, b.db)
	_, read := readerOf(t, b.store)
	b.untilBeside(t, read)
	const again = "reading from the standby works again"
	before, worked := b.lines.count(""), b.lines.count(again)

	b.exec(t, b.aside, `SELECT pg_wal_replay_pause()`)
	for i := range 5 {
		id := fmt.Sprint("behind", i)
		insert(id)
		ids, page := read()
		require.Equal(t, []string{id}, ids)
		require.Zero(t, page.Asked)
	}
	require.Equal(t, 1, b.lines.count("")-before, "%s", b.lines)
	require.Contains(t, b.lines.String(), "pages are read from the primary meanwhile: the standby lags behind")
	b.exec(t, b.aside, `SELECT pg_wal_replay_resume()`)
	published, found := b.untilBeside(t, read)
	require.Equal(t, published, found)
	require.Greater(t, b.lines.count(again), worked, "%s", b.lines)
}

func TestAShortLagIsNotLogged(t *testing.T) {
	t.Parallel()
	b := newBeside(t)
	b.store.SetBehindTime(time.Hour)
	insert := inserter(t, b.db)
	_, read := readerOf(t, b.store)
	b.untilBeside(t, read)
	before := b.lines.String()
	b.exec(t, b.aside, `SELECT pg_wal_replay_pause()`)
	insert("behind")
	ids, page := read()
	require.Equal(t, []string{"behind"}, ids)
	require.Zero(t, page.Asked)
	b.exec(t, b.aside, `SELECT pg_wal_replay_resume()`)
	b.untilBeside(t, read)
	require.Equal(t, before, b.lines.String())
}

func TestAStandbyThatIsKilledLeavesPagesToThePrimary(t *testing.T) {
	t.Parallel()
	b := newBeside(t)
	insert := inserter(t, b.db)
	_, read := readerOf(t, b.store)
	b.untilBeside(t, read)
	require.NoError(t, b.standby.Down(postgrestest.Immediate))
	for i := range 3 {
		id := fmt.Sprint("killed", i)
		insert(id)
		ids, page := read()
		require.Equal(t, []string{id}, ids)
		require.Zero(t, page.Asked)
	}
	require.Equal(t, 1, b.lines.count("refused"), "%s", b.lines)
	require.NoError(t, b.standby.Up())
	published, found := b.untilBeside(t, read)
	require.Equal(t, published, found)
	require.Equal(t, 1, b.lines.count("refused"), "%s", b.lines)
}

func TestAStoreOpensWhileItsStandbyCannotBeReached(t *testing.T) {
	t.Parallel()
	b := newBeside(t)
	require.NoError(t, b.standby.Down(postgrestest.Fast))
	b.open(t, b.aside)
	require.Equal(t, 1, b.lines.count("refused"), "%s", b.lines)
	inserter(t, b.db)("a")
	_, read := readerOf(t, b.store)
	ids, page := read()
	require.Equal(t, []string{"a"}, ids)
	require.Zero(t, page.Asked)
	require.NoError(t, b.standby.Up())
	b.untilBeside(t, read)
}

// A standby that keeps its connections open and does not answer is worse than one that is down.
func TestAStandbyThatIsSilentLeavesPagesToThePrimary(t *testing.T) {
	t.Parallel()
	b := newBeside(t)
	p := postgrestest.StartProxy(t, b.standby.DSN())
	b.open(t, openDB(t, p.DSN()))
	_, read := readerOf(t, b.store)
	b.untilBeside(t, read)
	p.Swallow()
	inserter(t, b.db)("silent")
	ids, page := read()
	require.Equal(t, []string{"silent"}, ids)
	require.Zero(t, page.Asked)
	p.Forward()
	published, found := b.untilBeside(t, read)
	require.Equal(t, published, found)
}

func TestAPromotedStandbyIsNoLongerRead(t *testing.T) {
	t.Parallel()
	b := newBeside(t)
	_, read := readerOf(t, b.store)
	b.untilBeside(t, read)
	require.NoError(t, b.standby.Promote())
	b.exec(t, b.aside, `INSERT INTO outbox (id, type, payload) SELECT 'elsewhere' || i, 't', '{}' FROM generate_series(1, 1000) i`)
	insert := inserter(t, b.db)
	for i := range 3 {
		id := fmt.Sprint("here", i)
		insert(id)
		ids, page := read()
		require.Equal(t, []string{id}, ids)
		require.Zero(t, page.Asked)
	}
	require.Equal(t, 1, b.lines.count("was promoted"), "%s", b.lines)
	b.open(t, b.aside) // as if after a failover, when the other server is the primary
	require.Equal(t, 2, b.lines.count("was promoted"), "%s", b.lines)
}

// The second standby follows the promoted first one, so its history differs from that of the old primary,
// which has written more.
func TestAStandbyOfAPromotedStandbyIsNotRead(t *testing.T) {
	t.Parallel()
	b := newBeside(t)
	second, err := b.standby.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, second.Stop()) })
	aside := openDB(t, second.DSN())
	b.open(t, aside)
	_, read := readerOf(t, b.store)
	b.untilBeside(t, read)

	require.NoError(t, b.standby.Promote())
	b.exec(t, b.aside, `INSERT INTO outbox (id, type, payload) SELECT 'elsewhere' || i, 't', '{}' FROM generate_series(1, 1000) i`)
	require.Eventually(t, func() bool {
		var followed bool
		require.NoError(t, aside.QueryRowContext(t.Context(), `SELECT EXISTS (SELECT FROM outbox WHERE id = 'elsewhere1000')`).Scan(&followed))
		return followed
	}, time.Minute, 10*time.Millisecond)
	insert := inserter(t, b.db)
	insert("here")
	ids, page := read()
	require.Equal(t, []string{"here"}, ids)
	require.Zero(t, page.Asked)
	require.Equal(t, 1, b.lines.count("the standby is on timeline 2 and the primary on 1"), "%s", b.lines)
}

func TestAStandbyOfAnotherDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	b := newBeside(t)
	_, foreign := standby(t)
	_, err := postgres.Open(t.Context(), b.db, postgres.Config{Standby: openDB(t, foreign.DSN())})
	require.ErrorIs(t, err, postgres.ErrOtherCluster)
	require.ErrorContains(t, err, "the cluster ")

	address, err := url.Parse(b.standby.DSN())
	require.NoError(t, err)
	address.Path = "/template1"
	_, err = postgres.Open(t.Context(), b.db, postgres.Config{Standby: openDB(t, address.String())})
	require.ErrorIs(t, err, postgres.ErrOtherCluster)
	require.ErrorContains(t, err, "another database of the cluster")
}

func TestARoleThatDoesNotSeeTheStandbysTimelineIsRefused(t *testing.T) {
	t.Parallel()
	b := newBeside(t)
	grants, err := postgres.Grants(postgres.Config{}, "forwarder", postgres.Forwarder)
	require.NoError(t, err)
	b.exec(t, b.db, `CREATE ROLE forwarder LOGIN`)
	b.exec(t, b.db, grants)
	as := func(server *postgrestest.Server) *sql.DB {
		address, err := url.Parse(server.DSN())
		require.NoError(t, err)
		address.User = url.User("forwarder")
		return openDB(t, address.String())
	}
	db, aside := as(b.primary), as(b.standby)
	require.Eventually(t, func() bool { return aside.PingContext(t.Context()) == nil }, time.Minute, 10*time.Millisecond)
	open := func() error {
		_, err := postgres.Open(t.Context(), db, postgres.Config{Standby: aside, Logger: b.lines.logger()})
		return err
	}
	require.ErrorContains(t, open(), "GRANT pg_read_all_stats")
	b.exec(t, b.db, `GRANT pg_read_all_stats TO forwarder`)
	require.Eventually(t, func() bool { return open() == nil }, time.Minute, 10*time.Millisecond)
}

// Recovery does not wait long for a page: the standby cancels it.
func TestAPageThatRecoveryCancelsIsReadFromThePrimary(t *testing.T) {
	t.Parallel()
	b := newBeside(t)
	b.exec(t, b.aside, `ALTER SYSTEM SET max_standby_streaming_delay = 0`)
	b.exec(t, b.aside, `SELECT pg_reload_conf()`)
	insert := inserter(t, b.db)
	_, read := readerOf(t, b.store)
	b.untilBeside(t, read)
	b.store.SleepOnStandby()
	conflict := make(chan error, 1)
	go func() {
		conflict <- func() error {
			for sleeping := false; !sleeping; {
				if err := b.aside.QueryRowContext(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep')`).Scan(&sleeping); err != nil {
					return err
				}
			}
			_, err := b.db.ExecContext(t.Context(), `DO $$ BEGIN LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE; END $$`)
			return err
		}()
	}()
	late := time.Now().Add(time.Minute)
	for n := 0; b.lines.count("conflict with recovery") == 0; n++ { // at the first try, unless the standby lags
		id := fmt.Sprint("cancelled", n)
		insert(id)
		ids, page := read()
		require.Equal(t, []string{id}, ids)
		require.Zero(t, page.Asked)
		require.True(t, time.Now().Before(late), "%s", b.lines)
	}
	require.NoError(t, <-conflict)
}

func TestRestoredRowsAreReadFromThePrimary(t *testing.T) {
	t.Parallel()
	b := newBeside(t)
	restored(t, b.db, "restored")
	inserter(t, b.db)("own")
	_, read := readerOf(t, b.store)
	ids, page := read()
	require.ElementsMatch(t, []string{"restored", "own"}, ids)
	require.Zero(t, page.Asked)
	b.untilBeside(t, read)
}

// The standby may lack cancellations after the target. So a page carries the time up to which it knows
// them: a row that fell due later is parked and checked again.
func TestAPageOfAStandbyKnowsTheCancellationsUpToItsProbe(t *testing.T) {
	t.Parallel()
	b := newBeside(t)
	l, read := readerOf(t, b.store)
	b.untilBeside(t, read)
	for late := time.Now().Add(time.Minute); ; {
		require.True(t, time.Now().Before(late), "pages should come from the standby: %s", b.lines)
		reader, err := b.store.NewReader(l.Position, everything)
		require.NoError(t, err)
		before := time.Now()
		target, err := b.store.Probe(t.Context())
		require.NoError(t, err)
		after := time.Now()
		page, err := reader.Next(t.Context(), target, 1000)
		require.NoError(t, err)
		if page.Asked.IsZero() {
			continue // the standby lagged
		}
		require.False(t, page.Asked.Before(before))
		require.False(t, page.Asked.After(after))
		return
	}
}
