package kafkatest

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
)

// Fake starts a fake cluster with one broker inside the process, and stops it when the test
// ends.
func Fake(t testing.TB, opts ...kfake.Opt) *Cluster {
	t.Helper()
	opts = append([]kfake.Opt{kfake.NumBrokers(1), kfake.DataDir(t.TempDir())}, opts...)
	fake, err := kfake.NewCluster(opts...)
	require.NoError(t, err)
	c := &Cluster{Brokers: fake.ListenAddrs(), Fake: fake}
	c.stop = func(testing.TB) { c.Fake.Close() }
	c.start = func(t testing.TB) {
		t.Helper()
		again, err := kfake.NewCluster(append(opts, kfake.Ports(ports(t, c.Brokers)...))...)
		require.NoError(t, err)
		c.Fake = again
	}
	t.Cleanup(func() { c.Fake.Close() })
	return c
}

func ports(t testing.TB, addresses []string) []int {
	t.Helper()
	list := make([]int, 0, len(addresses))
	for _, address := range addresses {
		_, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		number, err := strconv.Atoi(port)
		require.NoError(t, err)
		list = append(list, number)
	}
	return list
}
