package scenario

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/lib/pq"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/benchmarks/database"
	"github.com/waybill-go/waybill/benchmarks/peer"
	"github.com/waybill-go/waybill/benchmarks/workload"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

const (
	// insertRows inserts $3 rows with the usual payload. Each statement is a transaction.
	insertRows = `INSERT INTO outbox (type, key, payload) SELECT $1, 'customer-' || i % 1000, $2 FROM generate_series(1, $3::int) i`
	// takeNumbers takes offsets and writes no row.
	takeNumbers = `SELECT count(nextval(pg_get_serial_sequence('outbox', 'offset'))) FROM generate_series(1, $1::int)`

	numbersAtOnce = 10_000
	// commitRows inserts and commits rows in a loop inside the server, which waits for no disk and no client: only the
	// server's computation is left.
	commitRows  = `DO $loop$ BEGIN PERFORM set_config('synchronous_commit', 'off', false); FOR i IN 1..%d LOOP INSERT INTO outbox (type, key, payload) VALUES (%s, 'customer-' || i, %s); COMMIT; END LOOP; END $loop$`
	rowsInALoop = 1000
)

// limits writes to one table in one way, at full speed.
type limits struct {
	clients int
	rows    int // in each transaction
	sizes   Sizes
	numbers bool // take offsets, and write nothing
	loop    bool // write in a loop inside the server, with a commit for each row
}

func table(s Sizes) Scenario {
	scenario := Scenario{
		Name: "table", Title: "Waybill: the limits of one table", Metrics: []Metric{
			{Key: "rows", Title: "rows/s"}, {Key: "wal", Title: "WAL, bytes/row"}, {Key: "walrate", Title: "WAL, MB/s", Decimals: 1},
			{Key: "micros", Title: "PostgreSQL's CPU, µs/row", Decimals: 2}, theirCPU,
		},
		About: english.Sprintf("Plain INSERTs of orders into the outbox for %s, without a business row, an additional index or a relay. The server's processor time includes its background processes, mainly the WAL writer.", s.Publishing),
	}
	add := func(name, configuration string, l limits) {
		l.sizes = s
		scenario.Contenders = append(scenario.Contenders, Contender{Name: name, Configuration: configuration, Run: l.run})
	}
	for _, clients := range []int{1, 8, 32} {
		add("Waybill, 1 row a commit, "+plural(clients, "client"), "a prepared INSERT; lib/pq", limits{clients: clients, rows: 1})
	}
	for _, rows := range []int{10, 100, 1000} {
		add(english.Sprintf("Waybill, %d rows a commit, 8 clients", rows), "a prepared INSERT … SELECT; lib/pq", limits{clients: 8, rows: rows})
	}
	add("Limit: 1 row a commit, a loop in the server", "PL/pgSQL, synchronous_commit off, 1 session", limits{clients: 1, rows: rowsInALoop, loop: true})
	add("Limit: nextval alone, 8 clients", english.Sprintf("%d numbers in a statement", numbersAtOnce), limits{clients: 8, rows: numbersAtOnce, numbers: true})
	return scenario
}

func (l limits) run(ctx context.Context, server *database.Server) (_ Sample, err error) {
	dsn, drop, err := empty(ctx, server, peer.Waybill{})
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	db, err := postgres.OpenDB(dsn)
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(l.clients)
	db.SetMaxIdleConns(l.clients)
	before, err := written(ctx, db)
	if err != nil {
		return Sample{}, err
	}
	m := newMeter(ctx, server)
	n, err := l.write(ctx, db)
	took, metrics := m.stop(ctx, n)
	if err != nil {
		return Sample{}, err
	}
	after, err := written(ctx, db)
	if err != nil {
		return Sample{}, err
	}
	rows := float64(n)
	metrics["rows"], metrics["wal"], metrics["walrate"] = rows/took.Seconds(), (after-before)/rows, (after-before)/1e6/took.Seconds()
	metrics["micros"] = metrics["postgres_cpu"] * took.Seconds() * 1e6 / rows
	sample := Sample{Metrics: metrics, Complete: true}
	if l.numbers {
		return sample, nil
	}
	stored, err := peer.Waybill{}.Pending(ctx, dsn)
	sample.Lost = max(0, n-stored)
	return sample, err
}

// write writes until the time is up, and returns the number of rows of all clients.
func (l limits) write(ctx context.Context, db *sql.DB) (n int, err error) {
	payload := string(workload.New(0).JSON())
	if l.loop { // a DO block takes no arguments
		text := fmt.Sprintf(commitRows, l.rows, pq.QuoteLiteral(workload.Type), pq.QuoteLiteral(payload))
		return l.repeat(ctx, func(ctx context.Context) error {
			_, err := db.ExecContext(ctx, text)
			return err
		})
	}
	query, args := insertRows, []any{workload.Type, payload, l.rows}
	if l.numbers {
		query, args = takeNumbers, []any{l.rows}
	}
	statement, err := db.PrepareContext(ctx, query)
	if err != nil {
		return 0, err
	}
	defer statement.Close()
	return l.repeat(ctx, executing(statement, args))
}

// executing returns a function that executes a statement once.
func executing(statement *sql.Stmt, args []any) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		_, err := statement.ExecContext(ctx, args...)
		return err
	}
}

// repeat calls execute in all clients until the time is up, and returns the number of rows.
func (l limits) repeat(ctx context.Context, execute func(ctx context.Context) error) (n int, err error) {
	counts := make([]int, l.clients)
	until := time.Now().Add(l.sizes.Publishing)
	group, ctx := errgroup.WithContext(ctx)
	for client := range counts {
		group.Go(func() error {
			for time.Now().Before(until) {
				if err := execute(ctx); err != nil {
					return err
				}
				counts[client] += l.rows
			}
			return nil
		})
	}
	err = group.Wait()
	for _, c := range counts {
		n += c
	}
	return n, err
}

// written returns the bytes of WAL that the server has written so far.
func written(ctx context.Context, db *sql.DB) (bytes float64, err error) {
	err = db.QueryRowContext(ctx, `SELECT pg_current_wal_insert_lsn() - '0/0'`).Scan(&bytes)
	return bytes, err
}
