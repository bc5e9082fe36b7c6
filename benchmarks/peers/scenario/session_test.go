package scenario

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/benchmarks/peers/peer"
)

func TestAnInsertTakesProcessorTimeOfTheServer(t *testing.T) {
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skip("the system does not report processor time in nanoseconds")
	}
	sizes := SmokeSizes()
	sizes.Session = 200
	micros, ok, err := measureInsert(t.Context(), server, peer.Table{}, sizes)
	require.NoError(t, err)
	require.True(t, ok)
	require.Positive(t, micros)
	require.Less(t, micros, 10_000.0)
}

func TestTheSessionsOfADatabaseAreCountedAlone(t *testing.T) {
	dsn, drop, err := filled(t.Context(), server, peer.Table{}, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, drop()) })
	used, ok := server.SessionCPU(t.Context(), dsn)
	require.True(t, ok)
	require.Zero(t, used, "it has no sessions")
}
