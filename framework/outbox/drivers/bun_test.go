package drivers

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"
	"github.com/waybill-go/waybill/framework/inbox"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
)

type bunOrder struct {
	bun.BaseModel `bun:"table:orders"`
	ID, Product   string
}

// unitOfBun is a transaction of bun, or a savepoint in one.
func unitOfBun(ctx context.Context, tx bun.Tx) unit {
	return unit{
		tx: tx,
		insert: func(order string) error {
			_, err := tx.NewInsert().Model(&bunOrder{ID: order, Product: "kite"}).Exec(ctx)
			return err
		},
		nested: func(f func(unit) error) error {
			return tx.RunInTx(ctx, nil, func(ctx context.Context, savepoint bun.Tx) error { return f(unitOfBun(ctx, savepoint)) })
		},
	}
}

func TestBun(t *testing.T) {
	t.Parallel()
	checkBun(t, onPq(t), pgdialect.New())
}

func TestBunOnSQLite(t *testing.T) {
	t.Parallel()
	checkBun(t, onSQLite(t), sqlitedialect.New())
}

func TestBunOnMySQL(t *testing.T) {
	t.Parallel()
	checkBun(t, onMySQL(t), mysqldialect.New())
}

func checkBun(t *testing.T, s *shop, dialect schema.Dialect) {
	db := bun.NewDB(s.db, dialect)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	s.refuses(t, db, conn, bun.Tx{}, &bun.Tx{})
	require.NoError(t, conn.Close())
	s.check(t, false, func(ctx context.Context, f func(unit) error) error {
		return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error { return f(unitOfBun(ctx, tx)) })
	})

	// Publish also accepts a pointer to the transaction, which is an outbox.Tx.
	_, err = s.db.ExecContext(t.Context(), `ALTER TABLE elsewhere RENAME TO outbox`)
	require.NoError(t, err)
	require.NoError(t, db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		return s.publisher.Publish(ctx, &tx, OrderPlaced{Order: "pointer"})
	}))
	require.Len(t, s.column(t, `SELECT id FROM outbox WHERE "key" = 'pointer'`), 1)

	// The inbox accepts the transaction too, and refuses a database.
	box := inbox.New(s.log.(store.Inbox))
	for _, want := range []bool{true, false} {
		require.NoError(t, db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			first, err := box.First(ctx, tx, "invoices", "n-1")
			require.Equal(t, want, first)
			return err
		}))
	}
	_, err = box.First(t.Context(), db, "invoices", "n-2")
	require.ErrorIs(t, err, outbox.ErrNotTransaction)
}
