package kafkatest

import (
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
)

// The ports of fake clusters are below those that the kernel hands out, and other tests have others: a stopped one
// gets its port again.
const firstPort, lastPort = 10000, 11999

// Fake starts a fake cluster with one broker inside the process, and stops it when the test
// ends.
func Fake(t testing.TB, opts ...kfake.Opt) *Cluster {
	t.Helper()
	opts = append([]kfake.Opt{kfake.DataDir(t.TempDir())}, opts...)
	port := 0 // none yet
	c := new(Cluster)
	c.stop = func(testing.TB) { c.Fake.Close() }
	c.start = func(t testing.TB) {
		t.Helper()
		for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			at := port
			if at == 0 {
				at = firstPort + rand.IntN(lastPort-firstPort+1)
			}
			fake, err := kfake.NewCluster(append(opts, kfake.Ports(at))...)
			if errors.Is(err, syscall.EADDRINUSE) && time.Since(begun) < timeout {
				continue
			}
			require.NoError(t, err)
			c.Fake, port = fake, at
			return
		}
	}
	c.start(t)
	c.Brokers = c.Fake.ListenAddrs()
	t.Cleanup(func() { c.Fake.Close() })
	return c
}
