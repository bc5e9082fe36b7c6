package postgres

import (
	"errors"
	"net"
	"strings"
	"syscall"
)

// tcpUserTimeout is TCP_USER_TIMEOUT of tcp(7), in milliseconds; package syscall does not define
// it on all architectures.
const tcpUserTimeout = 0x12

// limitUnacknowledged makes the kernel close a connection when data is not acknowledged for
// deadTime. Keepalive does not cover that, and the kernel's default is a quarter of an hour.
func limitUnacknowledged(network, _ string, raw syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	return raw.Control(func(fd uintptr) {
		// If the kernel refuses it, its default applies.
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(deadTime.Milliseconds()))
	})
}

// hasEnded reports whether an idle connection was closed by the server, or has a message that no one asked
// for, which is the reason why the server is about to close it.
func hasEnded(c net.Conn) bool {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	silent := false
	err = raw.Read(func(fd uintptr) bool {
		var one [1]byte
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		silent = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return err != nil || !silent
}
