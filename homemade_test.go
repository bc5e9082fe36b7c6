package waybill_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/sinks"
)

// BenchmarkHomeMade compares an outbox in a file of SQLite with a home-made one, in turns: draining a backlog to
// a function that counts, and transactions of one client with a business row and a notification. The notifications
// are orders of 300 bytes, of 1,000 customers; the figures are medians.
func BenchmarkHomeMade(b *testing.B) {
	waybill, homeMade := inFile{}, homeMade{}
	b.Run("drain", func(b *testing.B) {
		const n = 100_000
		files := map[contender]string{waybill: backlog(b, waybill, n), homeMade: backlog(b, homeMade, n)}
		inTurns(b, waybill, homeMade, func(c contender) float64 {
			file := filepath.Join(b.TempDir(), "copy.db")
			content, err := os.ReadFile(files[c])
			require.NoError(b, err)
			require.NoError(b, os.WriteFile(file, content, 0o600))
			defer func() { require.NoError(b, os.Remove(file)) }()
			db := openFile(b, file)
			began := time.Now()
			require.EqualValues(b, n, c.drain(b, db, n), "once each")
			return n / time.Since(began).Seconds()
		})
	})
	b.Run("transactions", func(b *testing.B) {
		const n = 5_000
		inTurns(b, waybill, homeMade, func(c contender) float64 {
			db := openFile(b, filepath.Join(b.TempDir(), "new.db"))
			publish := c.migrate(b, db)
			_, err := db.ExecContext(b.Context(), `CREATE TABLE business (id integer PRIMARY KEY, customer text NOT NULL, cents integer NOT NULL)`)
			require.NoError(b, err)
			began := time.Now()
			for i := range n {
				tx, err := db.BeginTx(b.Context(), nil)
				require.NoError(b, err)
				o := newOrder(i)
				_, err = tx.ExecContext(b.Context(), `INSERT INTO business (customer, cents) VALUES (?, ?)`, o.Customer, i)
				require.NoError(b, err)
				require.NoError(b, publish(b.Context(), tx, o))
				require.NoError(b, tx.Commit())
			}
			return n / time.Since(began).Seconds()
		})
	})
}

// inTurns measures both in each iteration, and reports medians.
func inTurns(b *testing.B, ours, theirs contender, measure func(contender) float64) {
	var rates, others, ratios []float64
	for b.Loop() {
		rate, other := measure(ours), measure(theirs)
		rates, others, ratios = append(rates, rate), append(others, other), append(ratios, rate/other)
	}
	median := func(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }
	b.ReportMetric(median(rates), "waybill/s")
	b.ReportMetric(median(others), "home-made/s")
	b.ReportMetric(median(ratios), "ratio")
}

// contender is a kind of outbox.
type contender interface {
	// migrate returns what publishes an order.
	migrate(b *testing.B, db *sql.DB) func(ctx context.Context, tx *sql.Tx, o bigOrder) error
	// drain delivers n pending orders and stops. It returns how many it has delivered.
	drain(b *testing.B, db *sql.DB, n int64) (delivered int64)
}

type bigOrder struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Note     string `json:"note"`
}

func newOrder(n int) bigOrder {
	return bigOrder{ID: fmt.Sprintf("o-%08d", n), Customer: fmt.Sprintf("c-%03d", n%1000), Note: strings.Repeat("x", 253)}
}

// openFile opens a file until the end of the benchmark.
func openFile(b *testing.B, file string) *sql.DB {
	b.Helper()
	db, err := sqlite.OpenDB(file)
	require.NoError(b, err)
	b.Cleanup(func() { _ = db.Close() })
	return db
}

// backlog returns a file with n pending orders.
func backlog(b *testing.B, c contender, n int) (file string) {
	b.Helper()
	file = filepath.Join(b.TempDir(), "backlog.db")
	db := openFile(b, file)
	publish := c.migrate(b, db)
	tx, err := db.BeginTx(b.Context(), nil)
	require.NoError(b, err)
	for i := range n {
		require.NoError(b, publish(b.Context(), tx, newOrder(i)))
	}
	require.NoError(b, tx.Commit())
	require.NoError(b, db.Close())
	return file
}

// inFile is Waybill's outbox.
type inFile struct{}

func newOutbox(db *sql.DB) *waybill.Outbox {
	o := waybill.SQLite(db, waybill.SQLiteConfig{})
	o.Config.Logger = slog.New(slog.DiscardHandler)
	waybill.Register[bigOrder](o, "order.placed", waybill.Key(func(o bigOrder) string { return o.Customer }))
	return o
}

func (inFile) migrate(b *testing.B, db *sql.DB) func(context.Context, *sql.Tx, bigOrder) error {
	o := newOutbox(db)
	require.NoError(b, o.Migrate(b.Context()))
	require.NoError(b, o.Open(b.Context()))
	return func(ctx context.Context, tx *sql.Tx, order bigOrder) error { return o.Publish(ctx, tx, order) }
}

func (inFile) drain(b *testing.B, db *sql.DB, n int64) int64 {
	running, stop := context.WithCancel(b.Context())
	var delivered atomic.Int64
	o := newOutbox(db)
	o.Deliver("nowhere", sinks.Func(func(context.Context, *notification.Delivery) (notification.Receipt, error) {
		if delivered.Add(1) == n {
			stop()
		}
		return "", nil
	}), "*")
	require.NoError(b, o.Run(running))
	return delivered.Load()
}

// homeMade is the outbox of well-known articles: a table from which the only relay deletes what it has delivered.
// It has no retries and no dead letters, and one delivery at a time.
type homeMade struct{}

func (homeMade) migrate(b *testing.B, db *sql.DB) func(context.Context, *sql.Tx, bigOrder) error {
	_, err := db.ExecContext(b.Context(), `CREATE TABLE messages (id integer PRIMARY KEY AUTOINCREMENT, key text NOT NULL, payload text NOT NULL,
		created_at text NOT NULL DEFAULT CURRENT_TIMESTAMP, sent_at text)`)
	require.NoError(b, err)
	return func(ctx context.Context, tx *sql.Tx, order bigOrder) error {
		payload, err := json.Marshal(order)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO messages (key, payload) VALUES (?, ?)`, order.Customer, string(payload))
		return err
	}
}

func (homeMade) drain(b *testing.B, db *sql.DB, n int64) int64 {
	var delivered atomic.Int64
	for delivered.Load() < n {
		batch := nextRows(b, db)
		for range batch {
			delivered.Add(1)
		}
		_, err := db.ExecContext(b.Context(), `DELETE FROM messages WHERE id <= ?`, batch[len(batch)-1].id)
		require.NoError(b, err)
	}
	return delivered.Load()
}

type row struct {
	id      int64
	key     string
	payload []byte
}

func nextRows(b *testing.B, db *sql.DB) (batch []row) {
	b.Helper()
	rows, err := db.QueryContext(b.Context(), `SELECT id, key, payload FROM messages ORDER BY id LIMIT 1000`)
	require.NoError(b, err)
	defer func() { require.NoError(b, rows.Close()) }()
	for rows.Next() {
		var m row
		require.NoError(b, rows.Scan(&m.id, &m.key, &m.payload))
		batch = append(batch, m)
	}
	require.NoError(b, rows.Err())
	return batch
}
