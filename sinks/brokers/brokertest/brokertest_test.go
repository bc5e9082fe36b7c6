package brokertest

import (
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheErrorOfAMissingProgramNamesItsPackage(t *testing.T) {
	t.Parallel()
	_, err := find("some-broker", "no such program", "nor this one")
	require.ErrorIs(t, err, ErrMissing)
	require.EqualError(t, err, "some-broker is not installed: apt-get install some-broker")
}

func TestTheErrorOfABrokerThatCannotStartHasItsLog(t *testing.T) {
	t.Parallel()
	b, err := newBroker()
	require.NoError(t, err)
	b.command = func() *exec.Cmd { return exec.Command("sh", "-c", "echo the port is taken; exit 1") }
	_, err = b.startOrClose(t.Context())
	require.ErrorContains(t, err, "ended while it started:\nthe port is taken")
	require.NoDirExists(t, b.folder)
}

func TestAProcessEndsWithWhatItStarted(t *testing.T) {
	t.Parallel()
	p, err := start(exec.Command("sh", "-c", "sleep 600 & wait"), filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	require.NoError(t, p.kill())
	require.Eventually(t, func() bool { return p.signal(0) != nil }, timeout, timeout/1000, "its process group still runs")
	require.NoError(t, p.stop(), "it has already ended")
}

func TestPortsOfAProcessAreItsOwn(t *testing.T) {
	t.Parallel()
	claim, err := block()
	require.NoError(t, err)
	_, err = net.Listen("tcp", claim.Addr().String())
	require.ErrorIs(t, err, syscall.EADDRINUSE, "another process would take the next block")
	first := claim.Addr().(*net.TCPAddr).Port
	for range 2 * blockSize {
		address, err := freeAddress()
		require.NoError(t, err)
		number, err := strconv.Atoi(port(address))
		require.NoError(t, err)
		require.Greater(t, number, first)
		require.Less(t, number, first+blockSize)
	}
}
