package main

import (
	"os"
	"strings"
	"testing"

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

func TestEachStepIsDoneOnceOnSQLite(t *testing.T) {
	t.Parallel()
	testChain(t, "")
}

func TestEachStepIsDoneOnceOnPostgreSQL(t *testing.T) {
	t.Parallel()
	testChain(t, postgrestest.DSN(t))
}

func TestEachStepIsDoneOnceOnMySQL(t *testing.T) {
	t.Parallel()
	testChain(t, mysqltest.URL(t))
}

func testChain(t *testing.T, address string) {
	t.Helper()
	var out readmetest.Writer
	require.NoError(t, run(t.Context(), address, &out))
	// The steps of an order come in sequence; the two orders can interleave.
	want := readmetest.Output(t, "go run ./examples/chain")
	for _, order := range []string{"o-1", "o-2"} {
		require.Equal(t, linesOf(order, want), linesOf(order, out.String()))
	}
}

func linesOf(order, text string) (lines []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, order) {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestAnAddressOfAnotherDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, run(t.Context(), "oracle://localhost/shop", nil), `"oracle" is neither postgres:// nor mysql://`)
}
