package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/examples/internal/readmetest"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

func TestOfTwoProcessesOneMakesEachTick(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	path := filepath.Join(t.TempDir(), "shop.db")
	require.NoError(t, run(t.Context(), &out, path))
	// A busy machine may miss ticks.
	onTime := regexp.MustCompile(`[1-9]\d*s after`).ReplaceAllString(out.String(), "1s after")
	require.Equal(t, readmetest.Output(t, "go run ./examples/schedule"), onTime)

	db, err := sqlite.OpenDB(path)
	require.NoError(t, err)
	defer db.Close()
	var rows, different int
	require.NoError(t, db.QueryRow(`SELECT count(*), count(DISTINCT json_extract(metadata, '$.tick')) FROM outbox`).Scan(&rows, &different))
	require.Equal(t, different, rows, "each tick once")
	require.GreaterOrEqual(t, rows, ticks)
}
