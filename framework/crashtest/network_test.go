package crashtest

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// listen serves each connection until the test ends.
func listen(t *testing.T, serve func(net.Conn)) (address string) {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	go func() {
		for {
			client, err := server.Accept()
			if err != nil {
				return
			}
			go serve(client)
		}
	}()
	return server.Addr().String()
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	client, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A process that does not read, such as a stopped one, does not keep the kit from injecting faults.
func TestALinkCanBeChangedThoughItsClientReadsNothing(t *testing.T) {
	t.Parallel()
	l, err := newLink(listen(t, func(client net.Conn) {
		for err := error(nil); err == nil; {
			_, err = client.Write(make([]byte, 32<<10))
		}
		_ = client.Close()
	}))
	require.NoError(t, err)
	defer l.close()
	dial(t, l.address)
	time.Sleep(500 * time.Millisecond) // the buffers fill
	require.NoError(t, l.fail(t.Context(), slow, 0))
	_, err = dial(t, l.address).Read(make([]byte, 1))
	require.NoError(t, err)
}

func TestALinkIsSlowSilentOrCut(t *testing.T) {
	t.Parallel()
	l, err := newLink(listen(t, func(client net.Conn) {
		defer client.Close()
		for b := make([]byte, 1); ; {
			if _, err := client.Read(b); err != nil {
				return
			}
			if _, err := client.Write(b); err != nil {
				return
			}
		}
	}))
	require.NoError(t, err)
	defer l.close()
	client := dial(t, l.address)
	ask := func(patience time.Duration) error {
		require.NoError(t, client.SetDeadline(time.Now().Add(patience)))
		if _, err := client.Write([]byte{1}); err != nil {
			return err
		}
		_, err := client.Read(make([]byte, 1))
		return err
	}
	require.NoError(t, ask(time.Minute))
	l.set(slow)
	began := time.Now()
	require.NoError(t, ask(time.Minute))
	require.Greater(t, time.Since(began), lateness/4)
	l.set(silent)
	var network net.Error
	require.ErrorAs(t, ask(50*time.Millisecond), &network)
	require.True(t, network.Timeout(), "the connection is still open")
	require.NoError(t, l.fail(t.Context(), silent, 0))
	require.Error(t, ask(time.Minute), "the connection is closed afterwards")
	client = dial(t, l.address)
	require.NoError(t, ask(time.Minute))
	l.close()
	_, err = net.Dial("tcp", l.address)
	require.Error(t, err)
	require.NoError(t, l.open())
	client = dial(t, l.address)
	require.NoError(t, ask(time.Minute))
}
