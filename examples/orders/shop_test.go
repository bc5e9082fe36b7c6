package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/examples/internal/readmetest"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

func TestTheProgramEndsByItself(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out strings.Builder
	require.NoError(t, run(ctx, postgrestest.DSN(t), &out))
	require.Equal(t, readmetest.Output(t, "DATABASE_URL=postgres://… go run ."), out.String())
	require.NoError(t, ctx.Err())
	require.ErrorContains(t, run(ctx, "", &out), "DATABASE_URL")
}

func TestEachOrderIsPaidOnceAndPacked(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), postgrestest.DSN(t))
	require.NoError(t, err)
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	packed := make(chan string, 10)
	s, err := open(ctx, pool, db, func(paid OrderPaid) { packed <- paid.Order })
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.forwarder.Run(ctx) }()

	require.NoError(t, s.place(ctx, OrderPlaced{Order: "o-1", Product: "kite", Cents: 1999}))
	require.Error(t, s.place(ctx, OrderPlaced{Order: "o-1", Product: "kite", Cents: 1999}), "the same order again is refused, and not published")
	require.NoError(t, s.place(ctx, OrderPlaced{Order: "o-2", Product: "string", Cents: 299}))
	require.ElementsMatch(t, []string{"o-1", "o-2"}, []string{<-packed, <-packed})
	stop()
	require.NoError(t, <-ended)
	require.Empty(t, packed)
	var payments, cents int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*), sum(cents) FROM payments`).Scan(&payments, &cents))
	require.Equal(t, []int{2, 2298}, []int{payments, cents})
}
