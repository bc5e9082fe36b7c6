package simulation_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/simulation"
)

const (
	lease   = 15 * time.Second
	pause   = lease / 20
	look    = 3 * time.Millisecond
	acquire = time.Millisecond
)

func handed(t *testing.T, h simulation.Handover) simulation.Handed {
	t.Helper()
	r, err := h.Run()
	require.NoError(t, err)
	return r
}

// A lane of a dead forwarder is free once its lease expires; up to a third of the lease may have passed
// before the death. Another forwarder acquires the lane at its next look.
func TestLanesOfADeadForwarderWaitForTheirLeases(t *testing.T) {
	t.Parallel()
	for _, forwarders := range []int{2, 5, 16} {
		for seed := range uint64(40) {
			lanes := 8 * forwarders
			r := handed(t, simulation.Handover{Change: simulation.Death, Forwarders: forwarders, Lanes: lanes, Seed: seed})
			require.GreaterOrEqual(t, r.Moved, lanes/forwarders)
			require.Greater(t, r.LongestIdle, 2*lease/3)
			require.LessOrEqual(t, r.LongestIdle, lease+pause+2*look+time.Duration(lanes)*acquire)
			require.GreaterOrEqual(t, r.Even, r.LongestIdle)
			require.Less(t, r.Even, lease+4*pause)
		}
	}
}

// A lease that has just been renewed lasts for its whole time, so no lane is free earlier.
func TestTheLeaseDecidesHowLongADeathTakes(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{3 * time.Second, 60 * time.Second} {
		r := handed(t, simulation.Handover{Change: simulation.Death, Forwarders: 4, Lanes: 64, Lease: lease, Seed: 1})
		require.Greater(t, r.LongestIdle, 2*lease/3)
		require.Less(t, r.LongestIdle, lease+lease/20+2*look+64*acquire)
	}
}

// A forwarder that stops gracefully announces it, so no other waits for a lease or a look.
func TestReleasedLanesAreAcquiredAtOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		r := handed(t, simulation.Handover{Change: simulation.Departure, Forwarders: 6, Lanes: 60, Seed: seed})
		require.GreaterOrEqual(t, r.Moved, 10)
		require.LessOrEqual(t, r.LongestIdle, 2*look+60*acquire)
	}
}

func TestANewForwarderGetsItsShare(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		r := handed(t, simulation.Handover{Change: simulation.Arrival, Forwarders: 4, Sinks: 3, Lanes: 20, Seed: seed})
		require.GreaterOrEqual(t, r.Moved, 3*20/5)
		require.Less(t, r.LongestIdle, pause)
		require.Less(t, r.Even, 4*pause)
	}
}

func TestEqualSeedsHaveEqualHandovers(t *testing.T) {
	t.Parallel()
	h := simulation.Handover{Change: simulation.Death, Forwarders: 7, Sinks: 4, Lanes: 33, Seed: 5}
	first := handed(t, h)
	require.Equal(t, first, handed(t, h))
	h.Seed = 6
	require.NotEqual(t, first, handed(t, h))
}

func TestInvalidHandoversAreRefused(t *testing.T) {
	t.Parallel()
	for _, h := range []simulation.Handover{
		{Change: "holiday", Forwarders: 2, Lanes: 1},
		{Change: simulation.Death, Forwarders: 1, Lanes: 1},
		{Change: simulation.Arrival, Forwarders: 1, Lanes: 1025},
		{Change: simulation.Death, Forwarders: 2, Lanes: 1, Lease: -1},
	} {
		_, err := h.Run()
		require.Error(t, err)
	}
}
