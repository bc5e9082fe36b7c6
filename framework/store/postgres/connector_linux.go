package postgres

import (
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
