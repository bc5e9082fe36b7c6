package mysql_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
)

// adversaryTime returns how long the adversaries publish: the environment's value, or a default, which is
// shorter in short mode.
func adversaryTime(t *testing.T) time.Duration {
	t.Helper()
	if text := os.Getenv("WAYBILL_MYSQL_ADVERSARY"); text != "" {
		d, err := time.ParseDuration(text)
		require.NoError(t, err)
		return d
	}
	if testing.Short() {
		return 5 * time.Second
	}
	return 30 * time.Second
}

// In TestEachCommittedRowIsReadOnce two processes read while adversaries publish. Cursors move between the
// processes, and processes die and continue from the stored positions.
func TestEachCommittedRowIsReadOnce(t *testing.T) {
	t.Parallel()
	dsn := mysqltest.DSN(t)
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxIdleConns(60)
	_, err = mysql.Migrate(t.Context(), db, mysql.Config{})
	require.NoError(t, err)
	adversaries := newAdversaries(t, db)

	f := newFleet(t, dsn, mysql.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), adversaryTime(t))
	defer cancel()
	published := make(chan struct{})
	go func() { adversaries.run(ctx, 12); close(published) }()
	f.run(published)
	f.finish(db)
	delays := f.delays()
	at := func(share float64) time.Duration {
		return delays[int(share*float64(len(delays)-1))].Round(time.Millisecond)
	}
	t.Logf("%d transactions, %d rows, %d moves of cursors, %d deaths; of %d timed rows: p50 %v, p99 %v, worst %v",
		adversaries.done.Load(), f.cursors[0].total, f.moves, f.deaths, len(delays), at(0.5), at(0.99), at(1))
	limit := max(time.Second, 5*f.medianStep()) // on a slow machine readers take long
	require.Less(t, at(0.5), limit, "a row waits only for its own transaction, although others take seconds")
}

// fleet simulates two processes that share cursors.
type fleet struct {
	t       *testing.T
	dsn     string
	config  mysql.Config
	cursors []*cursor
	mu      [2]sync.Mutex
	stores  [2]*mysql.Store
	close   [2]func()
	of      [2][]*cursor
	steps   [2][]time.Duration
	moves   int
	deaths  int
}

// cursor is one lane of a sink, with the rows that it has read.
type cursor struct {
	filter store.Filter
	stored json.RawMessage
	reader store.Reader
	total  int
	came   map[int64]int
	last   map[string]int64
	delays []time.Duration // of the timed rows
}

func newFleet(t *testing.T, dsn string, c mysql.Config) *fleet {
	t.Helper()
	f := &fleet{t: t, dsn: dsn, config: c}
	for _, slots := range []store.SlotRange{{Last: store.Slots - 1}, {Last: store.Slots - 1}, {Last: 499}, {First: 500, Last: store.Slots - 1}} {
		f.cursors = append(f.cursors, &cursor{
			filter: store.Filter{Slots: slots, Types: notification.AllTypes}, came: make(map[int64]int), last: make(map[string]int64),
		})
	}
	f.of = [2][]*cursor{{f.cursors[0], f.cursors[1]}, {f.cursors[2], f.cursors[3]}}
	f.start(0)
	f.start(1)
	t.Cleanup(func() { f.close[0](); f.close[1]() })
	return f
}

func (f *fleet) start(i int) {
	db, err := mysql.OpenDB(f.dsn)
	require.NoError(f.t, err)
	f.close[i] = func() { _ = db.Close() }
	f.stores[i], err = mysql.Open(context.Background(), db, f.config)
	require.NoError(f.t, err)
}

// run reads until the publishers have ended.
func (f *fleet) run(published <-chan struct{}) {
	var all sync.WaitGroup
	for i := range 2 {
		all.Go(func() {
			random := rand.New(rand.NewSource(int64(i)))
			for {
				select {
				case <-published:
					return
				case <-time.After(time.Duration(random.Intn(4000)) * time.Microsecond):
				}
				began := time.Now()
				f.step(i, random)
				f.steps[i] = append(f.steps[i], time.Since(began))
			}
		})
	}
	all.Go(func() {
		for tick := time.NewTicker(700 * time.Millisecond); ; {
			select {
			case <-published:
				return
			case <-tick.C:
				f.move()
			}
		}
	})
	all.Wait()
}

// move moves two cursors to the other process, at their stored positions.
func (f *fleet) move() {
	f.mu[0].Lock()
	defer f.mu[0].Unlock()
	f.mu[1].Lock()
	defer f.mu[1].Unlock()
	f.moves++
	which := f.moves % 2
	f.of[0][which], f.of[1][which] = f.of[1][which], f.of[0][which]
	f.of[0][which].reader, f.of[1][which].reader = nil, nil
}

// step probes and reads.
func (f *fleet) step(i int, random *rand.Rand) {
	f.mu[i].Lock()
	defer f.mu[i].Unlock()
	ctx := context.Background()
	for _, c := range f.of[i] {
		if c.reader == nil {
			var err error
			c.reader, err = f.stores[i].NewReader(c.stored, c.filter)
			if err != nil {
				f.t.Error(err)
				return
			}
		}
	}
	look := f.stores[i].Probe
	if random.Intn(4) > 0 {
		look = f.of[i][random.Intn(2)].reader.(store.Looker).Look
	}
	target, err := look(ctx)
	if err != nil {
		f.t.Error(err)
		return
	}
	for _, c := range f.of[i] {
		for caughtUp := false; !caughtUp; {
			page, err := c.reader.Next(ctx, target, 1+random.Intn(200))
			if err != nil {
				f.t.Error(err)
				return
			}
			caughtUp = page.CaughtUp
			if err := c.take(page); err != nil {
				f.t.Error(err)
				return
			}
			if random.Intn(50) == 0 {
				break // the rest comes later, with another target
			}
		}
	}
	if random.Intn(1000) == 0 {
		f.deaths++
		f.close[i]()
		f.start(i)
		for _, c := range f.of[i] {
			c.reader = nil
		}
	}
}

// take checks that no row comes twice, and that the rows of a key come in order.
func (c *cursor) take(page store.Page) (err error) {
	for _, e := range page.Envelopes {
		c.total++
		if c.came[e.Offset]++; c.came[e.Offset] > 1 {
			return fmt.Errorf("offset %d came twice", e.Offset)
		}
		if e.Key == "" && e.Type != timedType {
			continue
		}
		number, err := strconv.ParseInt(string(e.Payload), 10, 64)
		if err != nil {
			return err
		}
		if e.Type == timedType {
			c.delays = append(c.delays, time.Since(time.Unix(0, number)))
			continue
		}
		if number <= c.last[e.Key] {
			return fmt.Errorf("%s: %d came after %d", e.Key, number, c.last[e.Key])
		}
		c.last[e.Key] = number
	}
	c.stored, err = page.End.MarshalJSON()
	return err
}

// finish reads until all committed rows have come.
func (f *fleet) finish(db *sql.DB) {
	random := rand.New(rand.NewSource(5))
	deadline := time.Now().Add(2 * time.Minute)
	for _, c := range f.cursors {
		for missing := f.missing(db, c); len(missing) > 0; missing = f.missing(db, c) {
			require.Less(f.t, time.Now(), deadline, "rows that did not come: %v", missing)
			f.step(0, random)
			f.step(1, random)
		}
	}
}

// delays returns how long the timed rows took to reach each cursor, sorted.
func (f *fleet) delays() (delays []time.Duration) {
	for _, c := range f.cursors {
		delays = append(delays, c.delays...)
	}
	slices.Sort(delays)
	return delays
}

// medianStep returns how long a step took.
func (f *fleet) medianStep() time.Duration {
	steps := slices.Sorted(slices.Values(slices.Concat(f.steps[0], f.steps[1])))
	return steps[len(steps)/2]
}

// missing returns the offsets of committed rows that a cursor has not read. It fails if the cursor has
// read an uncommitted row.
func (f *fleet) missing(db *sql.DB, c *cursor) (missing []int64) {
	rows, err := db.Query("SELECT `offset` FROM outbox WHERE slot BETWEEN ? AND ? AND type <> ?", c.filter.Slots.First, c.filter.Slots.Last, mysql.VoidType)
	require.NoError(f.t, err)
	defer func() { _ = rows.Close() }()
	committed := 0
	for rows.Next() {
		var offset int64
		require.NoError(f.t, rows.Scan(&offset))
		committed++
		if c.came[offset] == 0 {
			missing = append(missing, offset)
		}
	}
	require.NoError(f.t, rows.Err())
	if len(missing) == 0 {
		require.Len(f.t, c.came, committed, "only committed rows come")
	}
	return missing
}
