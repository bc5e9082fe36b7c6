package postgres

import (
	"strings"
	"syscall"
)

// tcpUserTimeout is TCP_USER_TIMEOUT of tcp(7), in milliseconds; package syscall
// does not name it on all processors.
const tcpUserTimeout = 0x12

// limitUnacknowledged has the kernel give a connection up when what was sent is
// not acknowledged for deadTime. Keepalive does not cover that, and by itself the
// kernel tries for a quarter of an hour.
func limitUnacknowledged(network, _ string, raw syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	return raw.Control(func(fd uintptr) {
		// A kernel that refuses it does without.
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(deadTime.Milliseconds()))
	})
}
