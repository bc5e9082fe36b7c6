package brokertest

import (
	"os/exec"
	"path/filepath"
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
