package doctor

import "context"

// Check is one thing that is looked at.
type Check struct {
	// ID names it, on the command line and in docs/doctor.md.
	ID string
	// Why says why it matters.
	Why string

	only  dialect
	needs need
	// grant is the SQL that lets a role make the check, with %s for the role; "": the missing
	// grants of an operator.
	grant string
	look  func(ctx context.Context, x *examination) (verdict, error)
}

// dialect is a set of the databases that a check is for; none is all.
type dialect int

const (
	onPostgreSQL dialect = 1 << iota
	onSQLite
	onMySQL

	onServers = onPostgreSQL | onMySQL
)

// need is what a check works on.
type need int

const (
	theServer need = iota // the database answers
	theStore              // the outbox can be opened
	nothing               // the configuration only
)

// Checks lists all, in the order in which they are made.
func Checks() []Check { return checks }

func (c Check) fits(s Subject) bool {
	is := onSQLite
	switch {
	case s.PostgreSQL != nil:
		is = onPostgreSQL
	case s.MySQL != nil:
		is = onMySQL
	}
	return c.only == 0 || c.only&is != 0
}

const (
	readSettings = "GRANT pg_read_all_settings TO %s;"
	readStats    = "GRANT pg_read_all_stats TO %s;"
)

var checks = []Check{
	{ID: "configuration", needs: nothing, look: checkConfiguration, Why: "A forwarder does not start with mistakes in its configuration."},
	{ID: "database", needs: nothing, look: checkDatabase, Why: "Without its database a forwarder delivers nothing."},
	{ID: "schema", look: checkSchema, Why: "A program works only with tables of its own version."},
	{ID: "log", only: onServers, look: checkLog, Why: "Readers rely on the order in which a transaction takes its id and its offsets; otherwise rows are lost."},
	{ID: "history", needs: theStore, look: checkHistory, Why: "Cursors of another log have it read again from the start, and so delivered again."},
	{ID: "primary", only: onPostgreSQL, look: checkPrimary, Why: "A forwarder writes its cursors, which a standby refuses."},
	{ID: "durability", look: checkDurability, Why: "A crash loses commits whose notifications were delivered, or damages the database."},
	{ID: "integrity", only: onSQLite, look: checkIntegrity, Why: "A damaged file loses rows, and reads may fail at any time."},
	{ID: "file-system", only: onSQLite, look: checkFileSystem, Why: "SQLite's locks and its write-ahead log do not work over a network."},
	{ID: "clock", only: onServers, look: checkClock, Why: "A forwarder gives a lane up when either its clock or the database's says that the lease is over."},
	{ID: "held-transactions", only: onServers, grant: readStats, look: checkHeld, Why: "An open transaction may still publish, keeps partitions from being dropped and dead rows from being removed, and its offsets open on MySQL."},
	{ID: "prepared-transactions", only: onServers, look: checkPrepared, Why: "A prepared transaction stays open, also over a restart, until a person ends it."},
	{ID: "replication-slots", only: onPostgreSQL, look: checkSlots, Why: "A slot that nothing reads keeps the write-ahead log until the disk is full."},
	{ID: "timeouts", look: checkTimeouts, Why: "The database ends the forwarder's own statements and transactions, or they do not wait for a lock."},
	{ID: "connections", only: onServers, look: checkConnections, Why: "A forwarder that gets no connection cannot renew its leases."},
	{ID: "packet-size", only: onMySQL, look: checkMySQLPackets, Why: "A notification that is larger than the server's packets can be neither published nor read."},
	{ID: "transaction-ids", only: onPostgreSQL, look: checkIDs, Why: "PostgreSQL refuses all writes when its transaction ids run out."},
	{ID: "dead-tuples", only: onPostgreSQL, look: checkBloat, Why: "Each checkpoint reads past the dead rows of its tables."},
	{ID: "indexes", look: checkIndexes, Why: "Without its indexes each look at due deliveries reads the whole table."},
	{ID: "pooler", only: onPostgreSQL, look: checkPooler, Why: "A transaction pooler passes no notifications on, so that a forwarder behind it has to poll."},
	{ID: "listen", only: onPostgreSQL, needs: theStore, look: checkListen, Why: "A forwarder that hears nothing notices a commit only with its next poll."},
	{ID: "retention", needs: theStore, look: checkRetention, Why: "A log that is not removed grows until the disk is full."},
	{ID: "partitions", only: onPostgreSQL, needs: theStore, look: checkPartitions, Why: "Rows that come before their partition go to the default one, from which they are removed one by one."},
	{ID: "disk", needs: theStore, grant: readSettings, look: checkDisk, Why: "A full disk stops the application as well."},
	{ID: "forwarders", needs: theStore, look: checkForwarders, Why: "Forwarders of different configurations or versions deliver the same type differently, by chance."},
	{ID: "lanes", needs: theStore, look: checkLanes, Why: "The deliveries of a lane without an owner wait."},
	{ID: "lease", needs: theStore, look: checkLease, Why: "A checkpoint that takes as long as the lease loses it, and what it settled is delivered again."},
	{ID: "lag", needs: theStore, look: checkLag, Why: "What is not settled is late."},
	{ID: "overdue", needs: theStore, look: checkOverdue, Why: "A delivery that is due and not tried has no forwarder, or a sink that cannot keep up."},
	{ID: "dead", needs: theStore, look: checkDead, Why: "A dead delivery is not tried again until a person acts."},
	{ID: "halted-keys", needs: theStore, look: checkHalted, Why: "With on_dead: halt nothing of a key is delivered behind its dead delivery."},
	{ID: "unrouted", needs: theStore, look: checkUnrouted, Why: "What no route matched has reached no sink."},
	{ID: "hooks", needs: theStore, look: checkHooks, Why: "What a hook was to do for a delivery is not done."},
	{ID: "types", needs: theStore, look: checkTypes, Why: "What the program cannot decode is tried again for a while, and dead then."},
	{ID: "captures", only: onPostgreSQL, look: checkCaptures, Why: "A captured table whose columns have other names takes no writes."},
	{ID: "schedules", needs: theStore, look: checkSchedules, Why: "A schedule that no process runs publishes nothing."},
	{ID: "sinks", needs: nothing, look: checkSinks, Why: "A sink that cannot be reached gets nothing; its deliveries wait."},
	{ID: "privileges", only: onServers, look: checkPrivileges, Why: "A forwarder whose role lacks a privilege fails at the statement that needs it, perhaps days later."},
}
