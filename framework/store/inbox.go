package store

import (
	"context"
	"database/sql"
)

// Inbox notes which notifications consumers have handled.
type Inbox interface {
	// First notes an id for a consumer in the caller's transaction, and reports whether it
	// was not there. Where another transaction has just noted the same, First waits for
	// its end: it is the first one if the other rolled back. So of all transactions that
	// commit exactly one was the first. ErrCollision: the isolation level allows no waiting,
	// and the transaction is to be repeated. ErrOtherDatabase: it has no such table.
	First(ctx context.Context, tx Execer, consumer, id string) (bool, error)
}

// Execer is the part of a transaction that writes; a *sql.Tx is one.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// RowQuerier is the part of a transaction that reads one row; a *sql.Tx is one.
type RowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}
