package pgxbatch

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/waybill-go/waybill/framework/outbox"
)

// mostHeld and mostArguments bound how many statements, and how many arguments of one, are
// held back. For anything larger an extra round trip hardly matters.
const (
	mostHeld      = 64
	mostArguments = 1024
)

// held is what a transaction and its savepoints hold back together.
type held struct {
	conn       *pgx.Conn
	commit     string // the program's own COMMIT; empty: the usual one
	release    func() // gives the connection back
	statements []statement
	over       bool
	// direct is set once the program has direct access to the connection or to large objects:
	// what it does there is not seen here, so nothing is held back any more.
	direct bool
	// failed is why statements that were held back are not written. Once it is set, nothing
	// more is sent or committed, but a savepoint around them can be rolled back.
	failed error
}

type statement struct {
	sql     string
	args    []any
	explain func(error) error
}

// batch returns the statements that are held back.
func (h *held) batch() *pgx.Batch {
	b := new(pgx.Batch)
	for _, s := range h.statements {
		b.Queue(s.sql, s.args...)
	}
	return b
}

// read reads the results of a batch. The first error is that of the statement that failed:
// the server skips the ones after it.
func (h *held) read(results pgx.BatchResults) error {
	for _, s := range h.statements {
		if _, err := results.Exec(); err != nil {
			return s.explain(err)
		}
	}
	return nil
}

// flush sends the held statements and waits for their results.
func (h *held) flush(ctx context.Context) error {
	if h.failed != nil || len(h.statements) == 0 {
		return h.failed
	}
	results := h.conn.SendBatch(ctx, h.batch())
	err := h.read(results)
	if closing := results.Close(); err == nil {
		err = closing
	}
	h.statements, h.failed = nil, err
	return err
}

// end ends the transaction.
func (h *held) end() {
	h.over, h.statements = true, nil
	h.release()
}

// tx is a transaction, or a savepoint in one, around pgx's own.
type tx struct {
	pgx.Tx
	held   *held
	inside bool // a savepoint
	closed bool // a savepoint that is released or rolled back
}

var (
	_ pgx.Tx           = (*tx)(nil)
	_ outbox.HoldingTx = (*tx)(nil)
)

// Hold holds a statement back. It is sent with the context of the next statement or the commit.
func (t *tx) Hold(ctx context.Context, explain func(error) error, sql string, args ...any) error {
	h := t.held
	if t.over() {
		return explain(pgx.ErrTxClosed)
	}
	if h.direct || len(args) > mostArguments || len(h.statements) == mostHeld {
		if err := h.flush(ctx); err != nil {
			return err
		}
	}
	if h.direct || len(args) > mostArguments {
		if _, err := t.Tx.Exec(ctx, sql, args...); err != nil {
			return explain(err)
		}
		return nil
	}
	h.statements = append(h.statements, statement{sql, args, explain})
	return nil
}

// Commit sends the held statements and the COMMIT in one round trip. If one of them fails,
// the server skips the COMMIT and the transaction is rolled back. For a savepoint, Commit
// releases it.
func (t *tx) Commit(ctx context.Context) error {
	h := t.held
	if t.inside || t.over() || h.failed != nil || h.direct || h.commit != "" || len(h.statements) == 0 {
		return t.commitAlone(ctx)
	}
	batch := h.batch()
	batch.Queue("commit")
	results := h.conn.SendBatch(ctx, batch)
	err := h.read(results)
	var tag pgconn.CommandTag
	if err == nil {
		tag, err = results.Exec()
	}
	if closing := results.Close(); err == nil {
		err = closing
	}
	if h.conn.PgConn().TxStatus() != 'I' {
		_ = t.Tx.Rollback(ctx) // closes the connection if it fails
	}
	h.end()
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	return err
}

// commitAlone sends the held statements first, then commits or releases the savepoint.
func (t *tx) commitAlone(ctx context.Context) error {
	err := t.flush(ctx)
	switch {
	case t.over():
		return err
	case t.inside && err != nil:
		return err // the program can still roll the savepoint back
	case t.inside:
		t.closed = true
		return t.Tx.Commit(ctx)
	case err != nil:
		_ = t.Tx.Rollback(ctx) // closes the connection if it fails
	default:
		err = t.Tx.Commit(ctx)
	}
	t.held.end()
	return err
}

// Rollback rolls back, and drops the held statements. In a savepoint these are its own, since
// Begin sends all earlier ones.
func (t *tx) Rollback(ctx context.Context) error {
	h := t.held
	if t.over() {
		return pgx.ErrTxClosed
	}
	h.statements = nil
	err := t.Tx.Rollback(ctx)
	switch {
	case !t.inside:
		h.end()
	case err == nil:
		t.closed, h.failed = true, nil
	default:
		t.closed, h.failed = true, err
	}
	return err
}

func (t *tx) over() bool { return t.closed || t.held.over }

// flush sends the held statements ahead of another one.
func (t *tx) flush(ctx context.Context) error {
	if t.over() {
		return pgx.ErrTxClosed
	}
	return t.held.flush(ctx)
}

// Begin begins a savepoint.
func (t *tx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.flush(ctx); err != nil {
		return nil, err
	}
	savepoint, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &tx{Tx: savepoint, held: t.held, inside: true}, nil
}

func (t *tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.flush(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.Tx.Exec(ctx, sql, args...)
}

func (t *tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.flush(ctx); err != nil {
		return failure{err}, err
	}
	return t.Tx.Query(ctx, sql, args...)
}

func (t *tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.flush(ctx); err != nil {
		return failure{err}
	}
	return t.Tx.QueryRow(ctx, sql, args...)
}

func (t *tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.flush(ctx); err != nil {
		return nil, err
	}
	return t.Tx.Prepare(ctx, name, sql)
}

func (t *tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	if err := t.flush(ctx); err != nil {
		return 0, err
	}
	return t.Tx.CopyFrom(ctx, table, columns, source)
}

func (t *tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.flush(ctx); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return t.Tx.SendBatch(ctx, b)
}

// Conn returns the connection. From then on tx holds no statements back.
func (t *tx) Conn() *pgx.Conn {
	t.expose()
	return t.Tx.Conn()
}

// LargeObjects returns the large objects. From then on tx holds no statements back.
func (t *tx) LargeObjects() pgx.LargeObjects {
	t.expose()
	return t.Tx.LargeObjects()
}

func (t *tx) expose() {
	h := t.held
	if h.over {
		return
	}
	h.direct = true
	_ = h.flush(context.Background()) // the error is kept in failed
}

// failure is the result of a query that was not sent.
type failure struct{ err error }

var _ pgx.Rows = failure{}

func (f failure) Err() error                                 { return f.err }
func (f failure) Scan(...any) error                          { return f.err }
func (f failure) Values() ([]any, error)                     { return nil, f.err }
func (failure) Close()                                       {}
func (failure) Next() bool                                   { return false }
func (failure) RawValues() [][]byte                          { return nil }
func (failure) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (failure) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (failure) TypeMap() *pgtype.Map                         { return nil }
func (failure) Conn() *pgx.Conn                              { return nil }
