package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// adversaries publish in every way that makes reading hard. The rows of a key are numbered in the order in
// which their transactions locked the key.
type adversaries struct {
	db     *sql.DB
	number atomic.Int64 // of rows without a key, and of XA transactions
	done   atomic.Int64 // transactions
}

// adversaryKeys is the number of keys. Transactions of the same key wait for each other.
const adversaryKeys = 50

func newAdversaries(t *testing.T, db *sql.DB) *adversaries {
	t.Helper()
	for _, statement := range []string{
		`CREATE TABLE numbers (k VARCHAR(64) PRIMARY KEY, n BIGINT NOT NULL) ENGINE=InnoDB`,
		`CREATE TABLE nine (n INT PRIMARY KEY) ENGINE=InnoDB`,
		`INSERT INTO nine VALUES (1),(2),(3),(4),(5),(6),(7),(8),(9)`,
		`CREATE FUNCTION dawdle(s DOUBLE) RETURNS INT NOT DETERMINISTIC READS SQL DATA BEGIN DECLARE y INT;
			SELECT COUNT(*) INTO y FROM nine; DO SLEEP(s); SELECT COUNT(*) INTO y FROM nine; DO SLEEP(s); RETURN 1; END`,
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	for _, key := range append(allKeys(), "long0", "long1") {
		_, err := db.ExecContext(t.Context(), `INSERT INTO numbers VALUES (?, 0)`, key)
		require.NoError(t, err)
	}
	return &adversaries{db: db}
}

func allKeys() (keys []string) {
	for i := range adversaryKeys {
		keys = append(keys, fmt.Sprintf("k%02d", i))
	}
	return keys
}

// run starts n publishers, and goroutines that hold transactions open and kill sessions, until ctx is done.
func (a *adversaries) run(ctx context.Context, n int) {
	var all sync.WaitGroup
	loop := func(seed int64, publish func(p *adversary)) {
		all.Go(func() {
			p := &adversary{adversaries: a, random: rand.New(rand.NewSource(seed))}
			for ctx.Err() == nil && p.connect() {
				publish(p)
			}
			p.disconnect()
		})
	}
	for i := range n {
		loop(int64(i), (*adversary).any)
	}
	for i := range 2 {
		key := fmt.Sprint("long", i)
		loop(int64(100+i), func(p *adversary) { p.longTransaction(ctx, key) })
	}
	loop(200, func(p *adversary) { p.slowStatement(ctx) })
	loop(300, func(p *adversary) { p.kill(ctx) })
	loop(400, (*adversary).timed)
	all.Wait()
}

// adversary is one publisher with its own session.
type adversary struct {
	*adversaries
	conn   *sql.Conn
	random *rand.Rand
}

func (p *adversary) connect() bool {
	if p.conn != nil && p.conn.PingContext(context.Background()) == nil {
		return true
	}
	p.disconnect()
	conn, err := p.db.Conn(context.Background())
	p.conn = conn
	return err == nil
}

func (p *adversary) disconnect() {
	if p.conn != nil {
		_ = p.conn.Close()
	}
	p.conn = nil
}

func (p *adversary) exec(query string, args ...any) error {
	_, err := p.conn.ExecContext(context.Background(), query, args...)
	return err
}

// nap sleeps, so that other publishers run meanwhile.
func (p *adversary) nap(most time.Duration) { time.Sleep(time.Duration(p.random.Int63n(int64(most)))) }

// lock locks a key, takes n of its numbers, and returns the number before them.
func (p *adversary) lock(key string, n int) (int64, error) {
	if err := p.exec(`UPDATE numbers SET n = n + ? WHERE k = ?`, n, key); err != nil {
		return 0, err
	}
	var last int64
	err := p.conn.QueryRowContext(context.Background(), `SELECT n FROM numbers WHERE k = ?`, key).Scan(&last)
	return last - int64(n), err
}

const insertRow = "INSERT INTO outbox (type, `key`, payload, version) "

func (p *adversary) free(version string) string {
	return fmt.Sprintf(`('free', '', '%d', %s)`, p.number.Add(1), version)
}

// rows returns SQL for the next rows of a key. The last row is slow to compute.
func rows(key string, first int64, versions ...string) string {
	values := make([]string, len(versions))
	for i, version := range versions {
		values[i] = fmt.Sprintf(`('keyed', '%s', '%d', %s)`, key, first+int64(i), version)
	}
	return `VALUES ` + strings.Join(values, ", ")
}

// plain publishes for up to three keys. It locks them in order, so that few transactions deadlock.
func (p *adversary) plain() error {
	first := p.random.Intn(adversaryKeys - 9)
	for i := range 1 + p.random.Intn(3) {
		key, n := fmt.Sprintf("k%02d", first+3*i+p.random.Intn(3)), 1+p.random.Intn(3)
		last, err := p.lock(key, n)
		if err != nil {
			return err
		}
		if err := p.exec(insertRow + rows(key, last+1, []string{"1", "1", "1"}[:n]...)); err != nil {
			return err
		}
		if p.random.Intn(10) == 0 {
			p.nap(30 * time.Millisecond)
		}
	}
	return nil
}

// in runs a function in a transaction, and rolls back every fifth.
func (p *adversary) in(publish func() error) {
	err := p.exec(`START TRANSACTION`)
	if err == nil {
		err = publish()
	}
	if err != nil || p.random.Intn(5) == 0 {
		_ = p.exec(`ROLLBACK`)
		return
	}
	if p.exec(`COMMIT`) == nil {
		p.done.Add(1)
	}
}

func (p *adversary) any() {
	key := allKeys()[p.random.Intn(adversaryKeys)]
	switch p.random.Intn(24) {
	default:
		p.in(p.plain)
	case 0, 1: // takes an offset early
		p.in(func() error {
			if err := p.exec(insertRow + `VALUES ` + p.free("1")); err != nil {
				return err
			}
			p.nap(60 * time.Millisecond)
			return p.plain()
		})
	case 2: // takes a statement's offsets long before it writes the rows
		p.slow(key, "1", "1 + SLEEP(0.05)", "1 + SLEEP(0.05)")
	case 3: // takes offsets in chunks
		p.in(func() error {
			last, err := p.lock(key, 9)
			if err != nil {
				return err
			}
			return p.exec(fmt.Sprintf(insertRow+`SELECT 'keyed', '%s', CONCAT(%d + n), 1 + SLEEP(0.005) FROM nine`, key, last))
		})
	case 4:
		p.in(p.savepoint)
	case 5: // a statement that fails in the middle
		p.in(func() error {
			_ = p.exec(insertRow + `VALUES ` + p.free("1") + `, ` + p.free("-1") + `, ` + p.free("1"))
			return p.plain()
		})
	case 6:
		p.xa()
	case 7, 8: // a statement that commits by itself
		_ = p.exec(insertRow + `VALUES ` + p.free("1"))
	case 9:
		p.load()
	case 10: // statements within a statement
		p.slow(key, "1", "dawdle(0.02)", "dawdle(0.02)")
	}
}

func (p *adversary) slow(key string, versions ...string) {
	p.in(func() error {
		last, err := p.lock(key, len(versions))
		if err != nil {
			return err
		}
		return p.exec(insertRow + rows(key, last+1, versions...))
	})
}

func (p *adversary) savepoint() error {
	if err := errors.Join(p.plain(), p.exec(`SAVEPOINT s`)); err != nil {
		return err
	}
	if err := p.exec(insertRow + `VALUES ` + p.free("1") + `, ` + p.free("1")); err != nil {
		return err
	}
	p.nap(20 * time.Millisecond)
	if err := p.exec(`ROLLBACK TO SAVEPOINT s`); err != nil {
		return err
	}
	return p.exec(insertRow + `VALUES ` + p.free("1"))
}

func (p *adversary) xa() {
	name := fmt.Sprintf("'x%d'", p.number.Add(1))
	if p.exec(`XA START `+name) != nil {
		return
	}
	failed := p.plain()
	_ = p.exec(`XA END ` + name)
	if failed != nil || p.exec(`XA PREPARE `+name) != nil {
		p.endXA(`XA ROLLBACK `, name)
		return
	}
	p.nap(100 * time.Millisecond)
	if p.random.Intn(4) == 0 {
		p.endXA(`XA ROLLBACK `, name)
	} else {
		p.endXA(`XA COMMIT `, name)
	}
}

// endXA ends an XA transaction. If its session was killed after preparing it, the transaction would keep
// its locks forever. Another session can end it once the server has removed the first one.
func (p *adversary) endXA(how, name string) {
	for until := time.Now().Add(2 * time.Second); p.exec(how+name) != nil && time.Now().Before(until); {
		p.disconnect()
		if !p.connect() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// load publishes with LOAD DATA and feeds it slowly.
func (p *adversary) load() {
	name := fmt.Sprint("feed", p.number.Add(1))
	driver.RegisterReaderHandler(name, func() io.Reader { return &feed{p, 4} })
	defer driver.DeregisterReaderHandler(name)
	p.in(func() error {
		return p.exec(`LOAD DATA LOCAL INFILE 'Reader::` + name + "' INTO TABLE outbox FIELDS TERMINATED BY ',' (type, `key`, payload, version)")
	})
}

type feed struct {
	p    *adversary
	left int
}

func (f *feed) Read(b []byte) (int, error) {
	if f.left == 0 {
		return 0, io.EOF
	}
	f.left--
	f.p.nap(20 * time.Millisecond)
	return copy(b, fmt.Sprintf("free,,%d,1\n", f.p.number.Add(1))), nil
}

// longTransaction holds a transaction with rows open for a second or two.
func (p *adversary) longTransaction(ctx context.Context, key string) {
	p.in(func() error {
		last, err := p.lock(key, 1)
		if err != nil {
			return err
		}
		if err := p.exec(insertRow + rows(key, last+1, "1")); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second + time.Duration(p.random.Int63n(int64(time.Second)))):
		}
		return nil
	})
}

// timedType is the type of rows whose payload is the time when their publisher began.
const timedType = "timed"

// timed commits a row that does not wait for other transactions.
func (p *adversary) timed() {
	p.nap(20 * time.Millisecond)
	_ = p.exec("INSERT INTO outbox (type, payload) VALUES (?, ?)", timedType, strconv.FormatInt(time.Now().UnixNano(), 10))
}

// slowStatement takes offsets, and inserts its last rows only after the slack of a sweep.
func (p *adversary) slowStatement(ctx context.Context) {
	if ctx.Err() == nil {
		_ = p.exec(insertRow + `VALUES ` + p.free("1") + `, ` + p.free("1 + SLEEP(4)") + `, ` + p.free("1"))
	}
}

// kill ends the session of a publisher at a random moment.
func (p *adversary) kill(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(300 * time.Millisecond):
	}
	var id int64
	err := p.conn.QueryRowContext(ctx, `SELECT ID FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND ID <> CONNECTION_ID() AND INFO LIKE 'INSERT INTO outbox%'
		AND INFO NOT LIKE '%SLEEP(4)%' ORDER BY RAND() LIMIT 1`).Scan(&id)
	if err == nil {
		_ = p.exec(fmt.Sprintf(`KILL %d`, id))
	}
}
