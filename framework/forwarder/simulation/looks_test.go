package simulation_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/simulation"
)

func statements(t *testing.T, l simulation.Looks) simulation.Statements {
	t.Helper()
	s, err := l.Run()
	require.NoError(t, err)
	return s
}

func TestIdleForwardersLookOnceInEachLongestPause(t *testing.T) {
	t.Parallel()
	for _, longest := range []time.Duration{50 * time.Millisecond, time.Second} {
		const forwarders, databases, lanes = 6, 5, 16
		probe := 100 * time.Microsecond
		s := statements(t, simulation.Looks{Forwarders: forwarders, Databases: databases, Lanes: lanes, PollMax: longest, Probe: probe, Time: 10 * time.Minute})
		require.InEpsilon(t, forwarders*databases/(longest+probe).Seconds(), s.Probes, 0.01)
		require.InEpsilon(t, forwarders*databases*20/15.0, s.Memberships, 0.01)
		require.InEpsilon(t, forwarders*databases/5.25, s.Heartbeats, 0.02, "every seventh look at the leases")
		require.InEpsilon(t, databases*lanes*3/15.0, s.Renewals, 0.02)
		require.InEpsilon(t, s.Probes+s.Memberships+s.Heartbeats+s.Renewals, s.All(), 1e-9)
		require.Zero(t, s.Found)
	}
}

// Notifications at random times wait for half a pause on average.
func TestRareNotificationsAreFoundAfterHalfAPause(t *testing.T) {
	t.Parallel()
	probe := 100 * time.Microsecond
	s := statements(t, simulation.Looks{Forwarders: 2, Rate: 0.5, PollMax: 100 * time.Millisecond, Probe: probe, Time: 3 * time.Hour})
	require.InEpsilon(t, (100*time.Millisecond+probe)/2+probe, s.Found, 0.05)
}

func TestTrafficMakesForwardersLookMoreOften(t *testing.T) {
	t.Parallel()
	idle := statements(t, simulation.Looks{Forwarders: 1})
	busy := statements(t, simulation.Looks{Forwarders: 1, Rate: 5})
	dense := statements(t, simulation.Looks{Forwarders: 1, Rate: 1e5, Time: 10 * time.Second})
	require.Greater(t, busy.Probes, 1.2*idle.Probes)
	require.InEpsilon(t, 1/0.0011, dense.Probes, 0.01, "each look finds something: poll.min and the look itself")
}

func TestInvalidLooksAreRefused(t *testing.T) {
	t.Parallel()
	for _, l := range []simulation.Looks{{}, {Forwarders: 1, Rate: -1}, {Forwarders: 1, PollMin: time.Second, PollMax: time.Millisecond}, {Forwarders: 1, Lease: -1}} {
		_, err := l.Run()
		require.Error(t, err)
	}
}
