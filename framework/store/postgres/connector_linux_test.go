package postgres

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// tcp(7) describes how the kernel applies these options. Testing that would need a separate network.
func TestTheKernelDropsConnectionsToASilentMachine(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	c, err := dial(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	option := func(level, name int) (value int) {
		require.NoError(t, raw.Control(func(fd uintptr) { value, err = syscall.GetsockoptInt(int(fd), level, name) }))
		require.NoError(t, err)
		return value
	}
	require.EqualValues(t, deadTime.Milliseconds(), option(syscall.IPPROTO_TCP, tcpUserTimeout))
	require.Equal(t, 1, option(syscall.SOL_SOCKET, syscall.SO_KEEPALIVE))
	idle, interval, count := option(syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE), option(syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL), option(syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT)
	require.EqualValues(t, deadTime.Seconds(), idle+interval*count)
}
