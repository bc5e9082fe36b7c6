// Package peer has the contenders: Waybill, and those that it is compared with, each
// doing the same work on the same PostgreSQL as its users would do it.
package peer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/lib/pq"

	"github.com/waybill-go/waybill/benchmarks/receiver"
	"github.com/waybill-go/waybill/benchmarks/workload"
)

// Relay carries what is pending in an outbox to a destination.
type Relay struct {
	// Name says who and, in brackets, how.
	Name string
	// Configuration is what differs from the library's defaults, for the report.
	Configuration string
	// Outbox is what the relay reads.
	Outbox Outbox
	// Deliver works until ctx ends, and then stops as it would in production. It
	// returns nil for that. One that ends by itself has nothing left to do.
	Deliver func(ctx context.Context, dsn string, to receiver.Destination) error
	// Bare says that nothing is ever settled, as with limits: what has not arrived
	// when the time is up is not lost.
	Bare bool
	// Lossy says why it loses orders, as no outbox may: the comparison goes on then. Empty: it does not.
	Lossy string
}

// Outbox is the writing side, and the tables.
type Outbox interface {
	// Name tells outboxes apart.
	Name() string
	// Migrate makes the tables in an empty database.
	Migrate(ctx context.Context, dsn string) error
	// Fill appends the orders from 0 up to n.
	Fill(ctx context.Context, dsn string, n int) error
	// Pending is how many orders are not settled yet. It is asked while no relay runs.
	Pending(ctx context.Context, dsn string) (int, error)
	// Open returns a publisher for that many clients.
	Open(ctx context.Context, dsn string, clients int) (Publisher, error)
}

// Publisher makes business transactions. It is safe for concurrent use.
type Publisher interface {
	// Publish writes one business row and one order in one transaction, and tells
	// when it began to commit.
	Publish(ctx context.Context, number int) (committing time.Time, err error)
	Close() error
}

// The business row of each transaction.
const (
	createBusiness = `CREATE TABLE purchases (id bigint PRIMARY KEY, customer text NOT NULL, cents bigint NOT NULL, placed_on timestamptz NOT NULL)`
	insertBusiness = `INSERT INTO purchases (id, customer, cents, placed_on) VALUES ($1, $2, $3, $4)`
)

// createBusinessIn is createBusiness for the database of a dsn.
func createBusinessIn(dsn string) string {
	if inMySQL(dsn) {
		return createMySQLBusiness
	}
	return createBusiness
}

func businessRow(number int, o workload.Order) []any {
	return []any{number, o.Customer, o.Cents, o.PlacedOn}
}

// transactions makes business transactions through database/sql.
type transactions struct {
	db       *sql.DB
	business string // the INSERT
	// append writes the order in the transaction.
	append func(ctx context.Context, tx *sql.Tx, o workload.Order) error
	// committed, if set, follows each commit.
	committed func()
}

func (t *transactions) Publish(ctx context.Context, number int) (committing time.Time, err error) {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return time.Time{}, err
	}
	defer tx.Rollback()
	o := workload.New(number)
	if _, err := tx.ExecContext(ctx, t.business, businessRow(number, o)...); err != nil {
		return time.Time{}, err
	}
	if t.append != nil {
		if err := t.append(ctx, tx, o); err != nil {
			return time.Time{}, err
		}
	}
	committing = time.Now()
	if err := tx.Commit(); err != nil {
		return time.Time{}, err
	}
	if t.committed != nil {
		t.committed()
	}
	return committing, nil
}

func (t *transactions) Close() error { return t.db.Close() }

// openTransactions opens a pool that keeps a connection for each client; one for all
// clients of a file, which has one writer at a time.
func openTransactions(dsn string, clients int) (*transactions, error) {
	return openTransactionsBy(openDB, dsn, clients)
}

func openTransactionsBy(open func(dsn string) (*sql.DB, error), dsn string, clients int) (*transactions, error) {
	db, err := open(dsn)
	if err != nil {
		return nil, err
	}
	if inFile(dsn) {
		clients = 1
	}
	db.SetMaxOpenConns(clients)
	db.SetMaxIdleConns(clients)
	return &transactions{db: db, business: rebind(dsn, insertBusiness)}, nil
}

// withDB lends a database for one call.
func withDB(dsn string, use func(db *sql.DB) error) error { return withDBBy(openDB, dsn, use) }

func withDBBy(open func(dsn string) (*sql.DB, error), dsn string, use func(db *sql.DB) error) error {
	db, err := open(dsn)
	if err != nil {
		return err
	}
	return errors.Join(use(db), db.Close())
}

// execute runs statements one after the other.
func execute(ctx context.Context, dsn string, statements ...string) error {
	return withDB(dsn, func(db *sql.DB) error {
		for _, s := range statements {
			if _, err := db.ExecContext(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
		return nil
	})
}

// count asks for one number.
func count(ctx context.Context, dsn, query string, args ...any) (n int, err error) {
	err = withDB(dsn, func(db *sql.DB) error { return db.QueryRowContext(ctx, query, args...).Scan(&n) })
	return n, err
}

// copyIn fills a table in one transaction with a row for each order.
func copyIn(ctx context.Context, dsn, table string, columns []string, n int, row func(number int) []any) error {
	if inFile(dsn) {
		return insertAll(ctx, dsn, table, columns, n, row)
	}
	if inMySQL(dsn) {
		return insertMany(ctx, dsn, table, columns, n, row)
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = conn.CopyFrom(ctx, pgx.Identifier{table}, columns, pgx.CopyFromSlice(n, func(i int) ([]any, error) { return row(i), nil }))
	return errors.Join(err, conn.Close(ctx))
}

// queryCanceled is how the server ends a statement whose context has ended.
const queryCanceled = "57014"

// orderly makes the end of a context the good end that it is.
func orderly(ctx context.Context, err error) error {
	failed := new(pq.Error)
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.As(err, &failed) && failed.Code == queryCanceled) {
		return nil
	}
	return err
}
