package store

import (
	"context"
	"database/sql"
)

// Inbox notes which notifications consumers have handled.
type Inbox interface {
	// First notes an id for a consumer in the caller's transaction, and reports whether it was
	// not noted before. While another transaction is noting the same id, First waits for it to
	// end, and returns true if the other rolls back. So exactly one of all transactions that
	// commit was the first. ErrCollision: the isolation level does not allow waiting; retry the
	// transaction. ErrOtherDatabase: the database has no such table.
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
