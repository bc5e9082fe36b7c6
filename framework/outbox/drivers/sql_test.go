package drivers

import (
	"context"
	"database/sql"
	"testing"
)

// The drivers of package database/sql, for which RunInTx exists.

func TestPq(t *testing.T)     { t.Parallel(); checkSQL(t, onPq(t)) }
func TestSQLite(t *testing.T) { t.Parallel(); checkSQL(t, onSQLite(t)) }
func TestMySQL(t *testing.T)  { t.Parallel(); checkSQL(t, onMySQL(t)) }
func TestPgxStdlib(t *testing.T) {
	t.Parallel()
	_, db := newPool(t)
	checkSQL(t, onPostgres(t, db))
}

func checkSQL(t *testing.T, s *shop) {
	s.refuses(t, s.db, (*sql.Tx)(nil), nil)
	s.check(t, true, func(ctx context.Context, f func(unit) error) error {
		return s.publisher.RunInTx(ctx, s.db, nil, func(ctx context.Context, tx *sql.Tx) error { return f(unitOf(ctx, tx)) })
	})
}

// execer has the methods of transactions of package database/sql.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// unitOf returns a transaction that makes savepoints with SQL.
func unitOf(ctx context.Context, tx execer) (u unit) {
	return unit{
		tx: tx,
		insert: func(order string) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES ('`+order+`', 'kite')`)
			return err
		},
		nested: func(f func(unit) error) error {
			if _, err := tx.ExecContext(ctx, `SAVEPOINT nested`); err != nil {
				return err
			}
			failed := f(unitOf(ctx, tx))
			end := `RELEASE SAVEPOINT nested`
			if failed != nil {
				end = `ROLLBACK TO SAVEPOINT nested`
			}
			if _, err := tx.ExecContext(ctx, end); err != nil {
				return err
			}
			return failed
		},
	}
}
