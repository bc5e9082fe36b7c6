package inbox

import "errors"

// ErrName: a consumer or an id is empty or too long.
var ErrName = errors.New("invalid name in the inbox")

// Errors of sinks with handlers, and of middlewares.
var (
	// ErrConfig: Inbox or DB is missing, or there are two databases, which is found when a
	// forwarder is made with the sink; or a delivery that no forwarder made, and Config,
	// name no consumer. A middleware needs all three.
	ErrConfig = errors.New("an inbox, a database and a consumer are needed")
	// ErrNoTransaction: a handler of OnTx is in a sink that Mux did not make, or takes
	// another transaction than the sink's.
	ErrNoTransaction = errors.New("no transaction for the handler")
	// ErrProduced: a handler under [Middleware] returned messages.
	ErrProduced = errors.New("the handler returned messages, which the router would publish outside of the transaction: publish notifications in it")
)

// errNotTaken rolls back behind a handler whose status is not 2xx.
var errNotTaken = errors.New("the handler answered with another status than 2xx")
