package inbox

import "errors"

// ErrName: a consumer or an id is empty or too long.
var ErrName = errors.New("invalid name in the inbox")

// Errors of sinks with handlers, and of middlewares.
var (
	// ErrConfig: Inbox is missing, or not exactly one of DB and Pgx is set; making a forwarder
	// with the sink returns it. Or no consumer is named: Middleware and Handler require one, and
	// so does a delivery without a sink's name.
	ErrConfig = errors.New("an inbox, a database and a consumer are needed")
	// ErrNoTransaction: a handler of OnTx is in a sink that Mux did not make, or takes another
	// type of transaction than the sink begins.
	ErrNoTransaction = errors.New("no transaction for the handler")
	// ErrProduced: a handler under [Middleware] returned messages.
	ErrProduced = errors.New("the handler returned messages, which the router would publish outside of the transaction: publish notifications in the transaction instead")
)

// errNoSuccess rolls the transaction back if the handler's status is not 2xx.
var errNoSuccess = errors.New("the handler's status is not 2xx")
