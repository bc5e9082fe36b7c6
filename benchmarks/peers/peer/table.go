package peer

import (
	"context"
	"database/sql"

	"github.com/waybill-go/waybill/benchmarks/peers/workload"
)

// Table is the outbox table of well-known articles and of home-made outboxes.
type Table struct {
	// Batch uses pgx instead of lib/pq, with the INSERT and the COMMIT in one batch.
	Batch bool
	// Prepare prepares the INSERT on each connection of lib/pq.
	Prepare bool
}

// Name returns the name of the outbox.
func (Table) Name() string { return "table" }

// Migrate creates the table, with the partial index that the articles recommend.
func (Table) Migrate(ctx context.Context, dsn string) error {
	return execute(ctx, dsn,
		`CREATE TABLE messages (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text NOT NULL, payload json NOT NULL,
			created_at timestamptz NOT NULL DEFAULT now(), sent_at timestamptz)`,
		`CREATE INDEX messages_unsent ON messages (id) WHERE sent_at IS NULL`, createBusiness)
}

// Fill inserts orders, with COPY.
func (Table) Fill(ctx context.Context, dsn string, n int) error {
	return copyIn(ctx, dsn, "messages", []string{"key", "payload"}, n, func(number int) []any {
		return []any{workload.Key(number), string(workload.New(number).JSON())}
	})
}

// Pending counts the rows that are neither marked as sent nor deleted.
func (Table) Pending(ctx context.Context, dsn string) (int, error) {
	return count(ctx, dsn, `SELECT count(*) FROM messages WHERE sent_at IS NULL`)
}

const insertMessage = `INSERT INTO messages (key, payload) VALUES ($1, $2)`

// Open returns a publisher that inserts a row in the transaction.
func (o Table) Open(ctx context.Context, dsn string, clients int) (Publisher, error) {
	if o.Batch {
		pool, err := openPool(ctx, dsn, int32(clients))
		return batched{pool, insertMessage, func(_ int, o workload.Order) []any { return []any{o.Customer, string(o.JSON())} }}, err
	}
	t, err := openTransactions(dsn, clients)
	if err != nil {
		return nil, err
	}
	if o.Prepare {
		insert, err := t.db.PrepareContext(ctx, insertMessage)
		t.append = func(ctx context.Context, tx *sql.Tx, o workload.Order) error {
			one := tx.StmtContext(ctx, insert)
			defer func() { _ = one.Close() }() // the connection keeps it
			_, err := one.ExecContext(ctx, o.Customer, string(o.JSON()))
			return err
		}
		return t, err
	}
	t.append = func(ctx context.Context, tx *sql.Tx, o workload.Order) error {
		_, err := tx.ExecContext(ctx, insertMessage, o.Customer, string(o.JSON()))
		return err
	}
	return t, nil
}

// Business has no outbox: its transactions write only the business row.
type Business struct {
	// Pgx uses pgx instead of lib/pq, as River does.
	Pgx bool
}

// Name returns the name of the outbox.
func (Business) Name() string { return "business" }

// Migrate creates the business table.
func (Business) Migrate(ctx context.Context, dsn string) error {
	return execute(ctx, dsn, createBusiness)
}

// Fill does nothing.
func (Business) Fill(context.Context, string, int) error { return nil }

// Pending returns 0.
func (Business) Pending(context.Context, string) (int, error) { return 0, nil }

// Open returns a publisher that appends no order.
func (b Business) Open(ctx context.Context, dsn string, clients int) (Publisher, error) {
	if b.Pgx {
		return openPgxTransactions(ctx, dsn, clients)
	}
	return openTransactions(dsn, clients)
}

// scanItems reads all rows of a query and closes it.
func scanItems(rows *sql.Rows) (items []item, err error) {
	defer rows.Close()
	for rows.Next() {
		var i item
		if err := rows.Scan(&i.id, &i.key, &i.payload); err != nil {
			return nil, err
		}
		items = append(items, i)
	}
	return items, rows.Err()
}
