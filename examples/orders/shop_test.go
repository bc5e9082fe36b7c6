package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/examples/internal/readmetest"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

func TestMain(m *testing.M) { os.Exit(max(m.Run(), stop(postgrestest.Stop), stop(mysqltest.Stop))) }

func stop(server func() error) int {
	if server() != nil {
		return 1
	}
	return 0
}

func TestTheShopRunsOnPostgreSQL(t *testing.T) {
	t.Parallel()
	testShop(t, func(t *testing.T) string { return postgrestest.DSN(t) })
}

func TestTheShopRunsOnMySQL(t *testing.T) {
	t.Parallel()
	testShop(t, func(t *testing.T) string { return mysqltest.URL(t) })
}

func TestAnAddressIsNeeded(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, run(t.Context(), "", nil), "DATABASE_URL")
}

func testShop(t *testing.T, newAddress func(t *testing.T) string) {
	t.Run("the program ends by itself", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var out strings.Builder
		require.NoError(t, run(ctx, newAddress(t), &out))
		require.Equal(t, readmetest.Output(t, "DATABASE_URL=postgres://… go run ."), out.String())
		require.Equal(t, readmetest.Output(t, "DATABASE_URL=mysql://… go run ."), out.String())
		require.NoError(t, ctx.Err())
	})
	t.Run("each order is paid once, and packed", func(t *testing.T) {
		t.Parallel()
		d, err := connect(newAddress(t))
		require.NoError(t, err)
		defer d.db.Close()
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		packed := make(chan string, 10)
		s, err := open(ctx, d, func(paid OrderPaid) { packed <- paid.Order })
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
		require.NoError(t, d.db.QueryRowContext(t.Context(), `SELECT count(*), sum(cents) FROM payments`).Scan(&payments, &cents))
		require.Equal(t, []int{2, 2298}, []int{payments, cents})
	})
}
