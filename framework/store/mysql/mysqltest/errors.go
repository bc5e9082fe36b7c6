package mysqltest

import "errors"

// The errors of this package.
var (
	// ErrNoServer is wrapped if there is neither a server nor binaries to start one. The text explains how
	// to get one.
	ErrNoServer = errors.New("no MySQL or MariaDB to test with")
)

// Kill, Shutdown and Up return ErrNotOurs for a server that Start has not started.
var ErrNotOurs = errors.New("cannot control the server of " + Variable + ", because Start has not started it")
