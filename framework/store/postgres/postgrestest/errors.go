package postgrestest

import "errors"

// Errors of Start.
var (
	// ErrNoServer is wrapped if there is neither a server nor binaries to start one. Its text
	// explains what to do.
	ErrNoServer = errors.New("no PostgreSQL to test with")
	// ErrTooOld is wrapped if the server is older than PostgreSQL 13.
	ErrTooOld = errors.New("PostgreSQL is too old")
)

// Errors of Restart, Down, Up, Standby, Promote and Command.
var (
	// ErrNotOurs is returned for a server that Start did not start.
	ErrNotOurs = errors.New("cannot control the server of " + Variable + ", because Start has not started it; set Options.Private for one that it starts")
	// ErrNoProgram is returned by Command if the folder of the server has no such program.
	ErrNoProgram = errors.New("no such program beside the server's")
)
