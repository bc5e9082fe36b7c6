// Package store is the contract between the engine and a database: reading the
// log, leasing lanes, writing checkpoints, and the parked deliveries.
//
// Three nouns live in the database. The log (table outbox) is append-only: rows
// are never updated and never deleted on delivery. A cursor (outbox_cursors)
// says how far one sink has settled one lane of the log. Parked deliveries
// (outbox_parked) are those that could not be delivered when their turn came.
//
// An outbox plays several narrow roles, and what needs one asks for no more than
// that: Log, Leases and Deliveries are what a forwarder works with, Inspector and
// Operator what people look at and do, Pruner and Partitioner what removes old rows;
// Schedules keeps when schedules are due. Inbox, Canceller and Claimer write in the
// application's own transactions, and Diagnoser explains what fails there.
// Listener and Announcer are for databases that can announce what is new, Reserver for
// those whose connections an application uses too.
//
// All methods of all roles are safe for concurrent use. An error of the database
// is returned wrapped; what callers must distinguish are the sentinels in
// errors.go. A method that is not given the caller's transaction runs in one of its own,
// or in none, and leaves none open.
//
// The dialects are in the packages below this one. They differ in how a reader
// finds every committed row exactly once; the engine sees only opaque positions
// and targets. What they have in common is in internal/tables.
package store
