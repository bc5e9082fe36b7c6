package outbox_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

func TestAPreparedInsertIsParsedOnceForEachConnection(t *testing.T) {
	t.Parallel()
	dsn := outboxtest.DSN(t)
	db, s := outboxtest.PostgreSQL(t, dsn, postgres.Config{Prepare: true})
	p, err := outbox.New(newTypes(t), s, outbox.Config{})
	require.NoError(t, err)
	at := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	for range 3 {
		publish(t, db, p, outbox.With(orderPlaced{"o-1", 17}, outbox.DeliverAt(at), outbox.Metadata("a", "b")))
	}
	publish(t, db, p, orderPlaced{"o-2", 1}, orderPlaced{"o-2", 2})
	publish(t, open(t, dsn), p, orderPlaced{"o-3", 3}) // of another handle: not prepared
	rows := published(t, s)
	require.Len(t, rows, 6)
	require.True(t, at.Equal(rows[0].DeliverAt))
	require.Equal(t, "b", rows[0].Metadata["a"])
	require.JSONEq(t, `{"order_id": "o-1", "total": 17}`, string(rows[0].Payload))

	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, p.Publish(t.Context(), tx, orderPlaced{"o-4", 4}))
	var statements int
	require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'INSERT INTO%outbox%'`).Scan(&statements))
	require.Equal(t, 1, statements)
	require.NoError(t, tx.Rollback())
	require.ErrorIs(t, p.Publish(t.Context(), tx, orderPlaced{"o-4", 4}), outbox.ErrTxOver)
	require.Len(t, published(t, s), 6)
}

// Behind a pooler a connection may execute the statement that another client has prepared.
func TestNothingIsPreparedBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	dsn := outboxtest.DSN(t)
	_, _ = outboxtest.PostgreSQL(t, dsn, postgres.Config{})
	pooled, err := postgrestest.StartPooler(t, dsn, 3)
	if err != nil {
		t.Skip(err)
	}
	db := open(t, pooled)
	db.SetMaxOpenConns(1)
	_, err = postgres.Open(t.Context(), db, postgres.Config{Prepare: true})
	require.ErrorContains(t, err, "the handle allows one connection")
	db.SetMaxOpenConns(2)
	_, err = postgres.Open(t.Context(), db, postgres.Config{Prepare: true})
	require.ErrorIs(t, err, postgres.ErrPooled)
	s, err := postgres.Open(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	p, err := outbox.New(newTypes(t), s, outbox.Config{})
	require.NoError(t, err)
	require.NoError(t, p.RunInTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
		return p.Publish(ctx, tx, orderPlaced{"o-1", 1})
	}))
	require.Len(t, published(t, s), 1)
}
