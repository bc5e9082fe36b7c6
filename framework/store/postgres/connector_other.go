//go:build !linux

package postgres

import "syscall"

// limitUnacknowledged does nothing: the system's own limits apply.
func limitUnacknowledged(string, string, syscall.RawConn) error { return nil }
