package mysqltest

import "errors"

// Errors of Start.
var (
	// ErrNoServer is wrapped when there is neither a server to use nor binaries to start one
	// with. Its text says how to get some.
	ErrNoServer = errors.New("no MySQL or MariaDB to test with")
)

// ErrNotOurs is returned by Stop, Kill and Up for a server that Start only found.
var ErrNotOurs = errors.New("the server of " + Variable + " is not ours to stop")
