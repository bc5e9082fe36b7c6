package simulation_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/simulation"
)

func effect(t *testing.T, c simulation.Tenants) simulation.Effect {
	t.Helper()
	e, err := c.Run()
	require.NoError(t, err)
	return e
}

// Little's law: the number in flight is the rate times the duration.
func TestSlotsInUseAreTheRateTimesTheLatency(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{500, 4000} {
		for _, latency := range []time.Duration{5 * time.Millisecond, 40 * time.Millisecond} {
			e := effect(t, simulation.Tenants{Processes: 2, Tenants: 50, Rate: rate, Latency: latency, Slots: 256, Time: 30 * time.Second})
			require.InEpsilon(t, rate*latency.Seconds(), e.Busy, 0.03)
			require.InEpsilon(t, rate, e.Offered, 0.03)
			require.InEpsilon(t, e.Offered, e.Delivered, 0.01)
			require.InEpsilon(t, latency, e.Half, 0.03, "no delivery waits")
			require.InEpsilon(t, latency, e.NinetyNine, 0.03)
			require.Zero(t, e.Wasted+e.Tries+e.Parked)
		}
	}
}

func TestAFullFleetDeliversItsSlotsByTheLatency(t *testing.T) {
	t.Parallel()
	for _, isolation := range []simulation.Isolation{simulation.IsolateNothing, simulation.IsolateSlots, simulation.IsolateAll} {
		e := effect(t, simulation.Tenants{Processes: 3, Slots: 16, Tenants: 40, Rate: 5000, Latency: 20 * time.Millisecond, Isolation: isolation})
		require.InEpsilon(t, 3*16/0.020, e.Delivered, 0.01)
		require.InEpsilon(t, 3*16, e.Busy, 0.01)
		require.InEpsilon(t, (e.Offered-e.Delivered)*40, e.Waiting, 0.05, "of 40 seconds")
	}
}

// With one queue for all, each notification takes the mean of the times that live and dead tenants
// take.
func TestDeadTenantsThatHangTakeTheSlotsOfASharedQueue(t *testing.T) {
	t.Parallel()
	const dead, slots, latency, timeout = 0.1, 50, 0.020, 1.0
	e := effect(t, simulation.Tenants{
		Slots: slots, Tenants: 100, Dead: 10, Rate: 5000, Timeout: time.Second, Isolation: simulation.IsolateNothing,
		Retry: simulation.Retry{Initial: time.Hour, Max: time.Hour}, WarmUp: 30 * time.Second, Time: 60 * time.Second,
	})
	each := (1-dead)*latency + dead*timeout
	require.InEpsilon(t, (1-dead)*slots/each, e.Delivered, 0.05)
	require.InEpsilon(t, dead*slots/each, e.Tries, 0.05)
	require.InEpsilon(t, slots*dead*timeout/each, e.Wasted, 0.05)
}

func TestATenantThatRefusesOpensASharedBreakerForAll(t *testing.T) {
	t.Parallel()
	one := simulation.Tenants{Slots: 64, Tenants: 200, Dead: 1, Rate: 2000, Trouble: simulation.Refuses, Isolation: simulation.IsolateNothing}
	require.Zero(t, effect(t, one).Delivered)
	one.Isolation = simulation.IsolateAll
	e := effect(t, one)
	require.InEpsilon(t, e.Offered, e.Delivered, 0.01)
	require.InEpsilon(t, 20*time.Millisecond, e.NinetyNine, 0.03)
}

// A breaker that has been open for some seconds lets a probe through each DefaultMaxPause, of 5 s.
func TestABreakerLetsOneProbeThroughInEachPause(t *testing.T) {
	t.Parallel()
	const dead = 50
	e := effect(t, simulation.Tenants{
		Processes: 2, Slots: 160, Tenants: 500, Dead: dead, Rate: 5000, Trouble: simulation.Refuses, Time: 60 * time.Second,
	})
	require.InEpsilon(t, 2*dead/5.0, e.Tries, 0.1)
	require.InEpsilon(t, e.Offered, e.Delivered, 0.01)
}

// A breaker opens once 18 of 20 calls have failed; until then dead tenants can use all slots.
func TestHangingTenantsUseNoSlotsOnceTheirBreakersOpen(t *testing.T) {
	t.Parallel()
	const dead, slots, timeout, failures = 20, 100, 2.0, 18
	e := effect(t, simulation.Tenants{
		Slots: slots, Tenants: 200, Dead: dead, Rate: 2000, Timeout: 2 * time.Second, WarmUp: 60 * time.Second,
	})
	since, ok := e.Recovered(0.95)
	require.True(t, ok)
	require.Greater(t, since.Seconds(), timeout, "the first failure takes a timeout")
	require.Less(t, since.Seconds(), 5*dead*failures*timeout/slots)
	require.InEpsilon(t, e.Offered, e.Delivered, 0.02)
	without := effect(t, simulation.Tenants{
		Slots: slots, Tenants: 200, Dead: dead, Rate: 2000, Timeout: 2 * time.Second, WarmUp: 60 * time.Second, Isolation: simulation.IsolateSlots,
	})
	_, ok = without.Recovered(0.95)
	require.False(t, ok)
	require.Greater(t, without.Wasted, 2*e.Wasted)
}

func TestEqualSeedsHaveEqualResults(t *testing.T) {
	t.Parallel()
	c := simulation.Tenants{Processes: 4, Slots: 32, Tenants: 100, Dead: 7, Rate: 3000, Timeout: time.Second, WarmUp: 5 * time.Second, Time: 5 * time.Second, Seed: 3}
	first := effect(t, c)
	require.Equal(t, first, effect(t, c))
	c.Seed = 4
	require.NotEqual(t, first, effect(t, c))
}

func TestInvalidTenantsAreRefused(t *testing.T) {
	t.Parallel()
	good := simulation.Tenants{Tenants: 10, Rate: 1}
	for name, change := range map[string]func(*simulation.Tenants){
		"0 tenants":         func(c *simulation.Tenants) { c.Tenants = 0 },
		"11 dead":           func(c *simulation.Tenants) { c.Dead = 11 },
		"a rate of 0":       func(c *simulation.Tenants) { c.Rate = 0 },
		`isolation "walls"`: func(c *simulation.Tenants) { c.Isolation = "walls" },
		`trouble "sulks"`:   func(c *simulation.Tenants) { c.Trouble = "sulks" },
		"window":            func(c *simulation.Tenants) { c.Window = 1 },
		"not above 0":       func(c *simulation.Tenants) { c.Latency = -1 },
	} {
		c := good
		change(&c)
		_, err := c.Run()
		require.ErrorContains(t, err, name)
	}
}
