// Package servertest makes TCP servers for tests of sinks.
package servertest

import (
	"net"
	"sync"
	"testing"
)

// Unused is an address on which nothing listens. The kernel hands out no such low port, so no other test has it.
const Unused = "127.0.0.1:1"

// Serve starts a server on this machine until the test ends, and returns its address. It calls
// converse for each connection, at the same time for several, and closes the connection after it. At
// the end of the test it closes all connections, and waits for converse.
func Serve(t testing.TB, converse func(net.Conn)) (address string) {
	t.Helper()
	l := listen(t)
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		open  []net.Conn
	)
	group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
			group.Go(func() {
				defer func() { _ = conn.Close() }()
				converse(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		group.Wait()
	})
	return l.Addr().String()
}

// Silent returns an address that accepts connections but never answers.
func Silent(t testing.TB) (address string) {
	t.Helper()
	l := listen(t)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String() // the kernel accepts connections
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}
