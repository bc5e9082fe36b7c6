package postgrestest

import "errors"

// Errors of Start.
var (
	// ErrNoServer is wrapped when there is neither a server to use nor binaries to
	// start one with. Its text says how to mend that.
	ErrNoServer = errors.New("no PostgreSQL to test with")
	// ErrTooOld is wrapped when the server is older than PostgreSQL 13.
	ErrTooOld = errors.New("PostgreSQL is too old")
)

// Errors of Restart, Down, Up, Standby, Promote and Command.
var (
	// ErrNotOurs is returned for a server that Start only found.
	ErrNotOurs = errors.New("the server of " + Variable + " is not ours to restart; ask for one with Options.Private")
	// ErrNoProgram is returned by Command where the binaries are the server's only.
	ErrNoProgram = errors.New("no such program beside the server's")
)
