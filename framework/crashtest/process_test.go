//go:build unix

package crashtest

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A program cannot handle signals from its very beginning.
func TestASignalMayEndAProcessThatIsStarting(t *testing.T) {
	t.Parallel()
	ending := func(age time.Duration) error {
		command := exec.Command("sleep", "60")
		require.NoError(t, command.Start())
		ctx, fail := context.WithCancelCause(t.Context())
		p := watch(command, "sleep", func() {}, fail)
		p.began = p.began.Add(-age)
		err := p.terminate()
		require.NoError(t, ctx.Err(), "its end was requested")
		return err
	}
	require.NoError(t, ending(0))
	require.ErrorIs(t, ending(startTime), ErrEnded)
}
