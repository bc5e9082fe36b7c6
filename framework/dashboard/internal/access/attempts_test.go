package access

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFailuresAreForgottenOneByOne(t *testing.T) {
	t.Parallel()
	a, now := newAttempts(), time.Now()
	a.now = func() time.Time { return now }
	fails := func() error {
		_, err := a.begin(netip.MustParseAddr("203.0.113.7"), "ada")
		return err
	}
	for range addressFailures {
		require.NoError(t, fails())
	}
	require.Error(t, fails())
	now = now.Add(failurePause)
	require.NoError(t, fails())
	require.Error(t, fails())
	now = now.Add(time.Hour)
	for range addressFailures {
		succeeded, err := a.begin(netip.MustParseAddr("203.0.113.7"), "ada")
		require.NoError(t, err)
		succeeded()
	}
	require.NoError(t, fails(), "what succeeded does not count")
}

func TestAFloodOfNamesAndAddressesIsKeptInBoundedMemoryAndMakesNoneForgotten(t *testing.T) {
	t.Parallel()
	a, now := newAttempts(), time.Now()
	a.now = func() time.Time { return now }
	for i := range userFailures {
		_, err := a.begin(netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), "ada")
		require.NoError(t, err)
	}
	for i := range 3 * maxCounted {
		_, err := a.begin(netip.AddrFrom16([16]byte{0x20, 1, byte(i >> 16), byte(i >> 8), byte(i)}), fmt.Sprint("nobody", i))
		require.NoError(t, err)
		require.LessOrEqual(t, len(a.addresses.of), maxCounted)
		require.LessOrEqual(t, len(a.users.of), maxCounted)
	}
	_, err := a.begin(netip.MustParseAddr("198.51.100.9"), "ada")
	require.Error(t, err)
}
