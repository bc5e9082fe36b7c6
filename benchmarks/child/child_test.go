package child

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/benchmarks/machine"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

func TestLoopsUseTheProcessorUntilTheyAreStopped(t *testing.T) {
	t.Parallel()
	loops, err := StartLoops(2)
	require.NoError(t, err)
	ids := loops.IDs()
	require.Len(t, ids, 2)
	for _, id := range ids {
		require.NotEqual(t, os.Getpid(), id)
		require.Eventually(t, func() bool { return machine.CPU(id) >= 50*time.Millisecond }, time.Minute, 10*time.Millisecond)
	}
	require.NoError(t, loops.Stop())
	require.Zero(t, machine.CPU(ids...), "they have ended")
}

func TestARelayThatFailsIsAnError(t *testing.T) {
	t.Parallel()
	relay, err := StartRelay(Delivery{DSN: "/nowhere/outbox.db", Orders: 1})
	require.NoError(t, err)
	<-relay.Ended()
	_, err = relay.Stop()
	require.ErrorContains(t, err, "exit status 1")
	require.ErrorContains(t, err, "/nowhere/outbox.db", "the output of the process")
}
