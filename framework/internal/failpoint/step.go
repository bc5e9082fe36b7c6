// Package failpoint lets tests make durable steps fail. A durable step is a transaction or a statement after which
// the database, or a destination, has changed for good. A process that dies before it has done nothing; after it,
// everything, although no one may have heard so.
//
// A program that is built with the tag failpoint looks before and after each step for a file in the folder that
// [Variable] names; see [Step.Do]. Without the tag a step costs nothing.
package failpoint

// Variable is the environment variable with the folder in which a program that is built with the tag failpoint looks
// for failpoints.
const Variable = "FAILPOINTS_FOLDER"

// Met is the file in that folder in which a program writes a line for each failpoint that it has met.
const Met = "met"

// Step is a kind of durable step.
type Step string

// The steps of a forwarder.
const (
	Checkpoint  Step = "checkpoint" // moves a cursor
	Renewal     Step = "renewal"    // of a lease, without a checkpoint
	Park        Step = "park"       // a checkpoint that parks deliveries
	Resume      Step = "resume"     // a checkpoint that ends parked deliveries
	Collect     Step = "collect"    // closing collections
	Hook        Step = "hook"       // a checkpoint with what hooks write
	Lease       Step = "lease"
	Release     Step = "release"
	Heartbeat   Step = "heartbeat"
	Leave       Step = "leave"
	Declaration Step = "declaration" // of a presence
	Withdrawal  Step = "withdrawal"  // of a presence
	Eviction    Step = "eviction"
	Create      Step = "create" // the cursors of a sink
	Grow        Step = "grow"   // cursors of new partitions of a source
	WantLanes   Step = "want lanes"
	Recut       Step = "recut"
	WantTypes   Step = "want types"
	Route       Step = "route" // a part of a change of types
	Prune       Step = "prune"
	Leftovers   Step = "leftovers"
	Partition   Step = "partition" // of the log, created or dropped
	Ledger      Step = "ledger"    // a commit of a destination with transactions
)

// The steps of publishers, consumers and schedules.
const (
	Transaction Step = "transaction" // of a publisher, an inbox or a handler
	Tick        Step = "tick"        // of a schedule
	Schedule    Step = "schedule"    // its row is created, paused, asked for a tick or forgotten
	Endpoint    Step = "endpoint"    // of a customer: it is added, changed or deleted
)

// The steps of what people do.
const (
	BeginAction  Step = "begin action"
	EndAction    Step = "end action"
	CancelAction Step = "cancel action"
	Pause        Step = "pause"
	Requeue      Step = "requeue"
	Discard      Step = "discard"
	Replay       Step = "replay"
	Reroute      Step = "reroute"
	Forget       Step = "forget"
	Keys         Step = "keys" // of private values: they are added or wrapped by another master key
	Erase        Step = "erase"
	Rewrite      Step = "rewrite"   // payloads of the log
	Purge        Step = "purge"     // a part of the notifications of a person
	CutTexts     Step = "cut texts" // that sinks have returned for them
)
