//go:build !linux

package postgres

import (
	"net"
	"syscall"
)

// limitUnacknowledged does nothing: the system's own limits apply.
func limitUnacknowledged(string, string, syscall.RawConn) error { return nil }

// hasEnded is for Linux only: elsewhere the next statement fails.
func hasEnded(net.Conn) bool { return false }
