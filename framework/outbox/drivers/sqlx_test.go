package drivers

import (
	"context"
	"testing"

	"github.com/jmoiron/sqlx"
)

func TestSqlx(t *testing.T) {
	t.Parallel()
	checkSqlx(t, onPq(t), "postgres")
}

func TestSqlxOnSQLite(t *testing.T) {
	t.Parallel()
	checkSqlx(t, onSQLite(t), "sqlite")
}

func TestSqlxOnMySQL(t *testing.T) {
	t.Parallel()
	checkSqlx(t, onMySQL(t), "mysql")
}

func checkSqlx(t *testing.T, s *shop, driver string) {
	db := sqlx.NewDb(s.db, driver)
	s.refuses(t, db, (*sqlx.Tx)(nil))
	s.check(t, false, func(ctx context.Context, f func(unit) error) error {
		tx, err := db.BeginTxx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := f(unitOf(ctx, tx)); err != nil {
			return err
		}
		return tx.Commit()
	})
}
