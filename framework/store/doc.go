// Package store is the contract between the engine and a database: reading the log, leasing
// lanes, writing checkpoints, and parking deliveries. A program opens a store with the package
// of its database (postgres, sqlite or mysql) and passes it on.
//
// Three nouns live in the database. The log (table outbox) is append-only: rows are never
// updated, and never deleted on delivery. A cursor (outbox_cursors) says how far one sink has
// settled one lane of the log. Parked deliveries (outbox_parked) are those that could not be
// delivered when their turn came.
//
// A store implements several narrow roles, and each user asks only for the roles it needs. A
// forwarder uses Log, Leases and Deliveries. People use Inspector and Operator; monitoring uses
// only Sampler of the former. Pruner and Partitioner remove old rows. Schedules stores when schedules are due. Inbox,
// Canceller and Claimer write in the application's own transactions, and Diagnoser explains their
// errors. Listener and Announcer are for databases that can announce new rows, and Reserver is for
// databases whose connections an application uses too.
//
// All methods of all roles are safe for concurrent use. Errors of the database are returned
// wrapped; errors.go has those that callers must distinguish. A method that does not take the
// caller's transaction uses its own, or none, and leaves none open.
//
// The dialects differ in how a reader finds every committed row exactly once; the engine only
// sees opaque positions and targets. Package internal/tables has what they share.
package store
