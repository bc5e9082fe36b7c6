// Package peer has the contenders: Waybill and its peers. Each does the same work on the same
// database, in the way in which its users would do it.
package peer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/lib/pq"

	"github.com/waybill-go/waybill/benchmarks/peers/receiver"
	"github.com/waybill-go/waybill/benchmarks/peers/workload"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// Relay delivers the pending orders of an outbox to a destination.
type Relay struct {
	// Name is the name of the contender and, in brackets, its variant.
	Name string
	// Configuration describes the settings, above all those that differ from the defaults.
	Configuration string
	// Outbox is the outbox that the relay reads.
	Outbox Outbox
	// Deliver works until ctx is done. Then it stops as it would in production, and returns nil. It
	// may return earlier if there is nothing left to do.
	Deliver func(ctx context.Context, dsn string, to receiver.Destination) error
	// Bare means that the relay settles nothing, as limits do: orders that have not arrived at the
	// end of a run are not lost.
	Bare bool
	// Lossy says why the relay loses orders; the comparison then continues. "" if it loses none.
	Lossy string
}

// Outbox has the tables of a contender, and its publisher.
type Outbox interface {
	// Name identifies the tables: outboxes with the same name share filled databases.
	Name() string
	// Migrate creates the tables in an empty database.
	Migrate(ctx context.Context, dsn string) error
	// Fill appends the orders from 0 to n-1.
	Fill(ctx context.Context, dsn string, n int) error
	// Pending returns the number of orders that are not settled. Call it while no relay runs.
	Pending(ctx context.Context, dsn string) (int, error)
	// Open returns a publisher for that many clients.
	Open(ctx context.Context, dsn string, clients int) (Publisher, error)
}

// Publisher runs business transactions. It is safe for concurrent use.
type Publisher interface {
	// Publish writes one business row and one order in one transaction. It returns the time at
	// which the commit began.
	Publish(ctx context.Context, number int) (committing time.Time, err error)
	Close() error
}

// The business row of each transaction.
const (
	createBusiness = `CREATE TABLE purchases (id bigint PRIMARY KEY, customer text NOT NULL, cents bigint NOT NULL, placed_on timestamptz NOT NULL)`
	insertBusiness = `INSERT INTO purchases (id, customer, cents, placed_on) VALUES ($1, $2, $3, $4)`
)

func businessRow(number int, o workload.Order) []any {
	return []any{number, o.Customer, o.Cents, o.PlacedOn}
}

// transactions runs business transactions through database/sql.
type transactions struct {
	db *sql.DB
	// append, if set, writes the order in the transaction.
	append func(ctx context.Context, tx *sql.Tx, o workload.Order) error
	// committed, if set, is called after each commit.
	committed func()
}

func (t *transactions) Publish(ctx context.Context, number int) (committing time.Time, err error) {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return time.Time{}, err
	}
	defer tx.Rollback()
	o := workload.New(number)
	if _, err := tx.ExecContext(ctx, insertBusiness, businessRow(number, o)...); err != nil {
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

// openTransactions opens a pool with a connection for each client, and at least the two that preparing needs.
func openTransactions(dsn string, clients int) (*transactions, error) {
	db, err := postgres.OpenDB(dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(max(2, clients))
	db.SetMaxIdleConns(max(2, clients))
	return &transactions{db: db}, nil
}

// withDB opens a database for one call of use.
func withDB(dsn string, use func(db *sql.DB) error) error {
	db, err := postgres.OpenDB(dsn)
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

// count returns the number that a query returns.
func count(ctx context.Context, dsn, query string, args ...any) (n int, err error) {
	err = withDB(dsn, func(db *sql.DB) error { return db.QueryRowContext(ctx, query, args...).Scan(&n) })
	return n, err
}

// copyIn fills a table with a row for each order.
func copyIn(ctx context.Context, dsn, table string, columns []string, n int, row func(number int) []any) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = conn.CopyFrom(ctx, pgx.Identifier{table}, columns, pgx.CopyFromSlice(n, func(i int) ([]any, error) { return row(i), nil }))
	return errors.Join(err, conn.Close(ctx))
}

// queryCanceled is the SQLSTATE of a statement that the server canceled, because its context is done.
const queryCanceled = "57014"

// orderly returns nil for errors that come from the end of ctx, and err otherwise.
func orderly(ctx context.Context, err error) error {
	failed := new(pq.Error)
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.As(err, &failed) && failed.Code == queryCanceled) {
		return nil
	}
	return err
}
