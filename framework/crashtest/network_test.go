package crashtest

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A process that does not read, such as a stopped one, does not keep the kit from injecting faults.
func TestALinkCanBeChangedThoughItsClientReadsNothing(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	go func() {
		for {
			client, err := server.Accept()
			if err != nil {
				return
			}
			go func() { // until the connection is closed
				for err := error(nil); err == nil; {
					_, err = client.Write(make([]byte, 32<<10))
				}
				_ = client.Close()
			}()
		}
	}()
	l, err := newNetwork().open("link", server.Addr().String())
	require.NoError(t, err)
	defer func() { require.NoError(t, l.cut()) }()
	client, err := net.Dial("tcp", l.address)
	require.NoError(t, err)
	time.Sleep(500 * time.Millisecond) // the buffers fill
	require.NoError(t, l.poison(slow))
	require.NoError(t, l.heal())
	again, err := net.Dial("tcp", l.address)
	require.NoError(t, err)
	_, err = again.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, again.Close())
	require.NoError(t, client.Close())
}
