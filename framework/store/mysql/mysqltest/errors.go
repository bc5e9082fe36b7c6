package mysqltest

import "errors"

// The errors of this package.
var (
	// ErrNoServer is wrapped if there is neither a server nor binaries to start one. The text explains how
	// to get one.
	ErrNoServer = errors.New("no MySQL or MariaDB to test with")
)

// ErrNotOurs is returned by Stop, Kill and Up for a server that Start has not started.
var ErrNotOurs = errors.New("the server of " + Variable + " is not ours to stop")
