package doctor

import "context"

// Check describes one check.
type Check struct {
	// ID names the check on the command line and in docs/doctor.md.
	ID string
	// Why explains why the check matters.
	Why string

	only  dialect
	needs need
	// grant is the SQL that lets a role run the check, with %s for the role. "" means the
	// grants of an operator that the role lacks.
	grant string
	run   func(ctx context.Context, x *examination) (verdict, error)
}

// dialect is a set of databases to which a check applies; the zero value means all.
type dialect int

const (
	onPostgreSQL dialect = 1 << iota
	onSQLite
	onMySQL

	onServers = onPostgreSQL | onMySQL
)

// need is what must work before a check can run.
type need int

const (
	theServer need = iota // the database answers
	theStore              // the outbox can be opened
	nothing               // the check needs no database
)

// Checks returns all checks, in the order in which they run.
func Checks() []Check { return checks }

func (c Check) appliesTo(s Subject) bool {
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
	{ID: "configuration", needs: nothing, run: checkConfiguration, Why: "A forwarder does not start with mistakes in its configuration."},
	{ID: "database", needs: nothing, run: checkDatabase, Why: "Without its database a forwarder delivers nothing."},
	{ID: "schema", run: checkSchema, Why: "A program works only with the tables of its version."},
	{ID: "log", run: checkLog, Why: "Readers rely on how the database numbers the rows; otherwise rows are lost."},
	{ID: "history", needs: theStore, run: checkHistory, Why: "With cursors of another log, a forwarder reads the whole log again and delivers it again."},
	{ID: "primary", only: onPostgreSQL, run: checkPrimary, Why: "A forwarder writes its cursors, and a standby refuses writes."},
	{ID: "durability", run: checkDurability, Why: "A crash may damage the database, or lose commits whose notifications were already delivered."},
	{ID: "integrity", only: onSQLite, run: checkIntegrity, Why: "A damaged file loses rows, and reads may fail at any time."},
	{ID: "file-system", only: onSQLite, run: checkFileSystem, Why: "SQLite's locks and its write-ahead log do not work over a network."},
	{ID: "clock", only: onServers, run: checkClock, Why: "A forwarder gives up a lane when its clock or the database's says that the lease has expired."},
	{ID: "held-transactions", only: onServers, grant: readStats, run: checkHeld, Why: "An open transaction may still publish, and it prevents the removal of partitions and dead rows. On MySQL its offsets stay undecided."},
	{ID: "prepared-transactions", only: onServers, run: checkPrepared, Why: "A prepared transaction stays open, also after a restart, until someone commits it or rolls it back."},
	{ID: "replication-slots", only: onPostgreSQL, run: checkSlots, Why: "A slot without a reader keeps the write-ahead log until the disk is full."},
	{ID: "timeouts", run: checkTimeouts, Why: "With short timeouts the database cancels the forwarder's own statements and transactions."},
	{ID: "connections", only: onServers, run: checkConnections, Why: "A forwarder that gets no connection cannot renew its leases."},
	{ID: "packet-size", only: onMySQL, run: checkMySQLPackets, Why: "A notification larger than the server's packets can be neither published nor read."},
	{ID: "encryption", only: onServers, run: checkEncryption, Why: "Without a check of the server's certificate, anyone between can read the data and the password."},
	{ID: "transaction-ids", only: onPostgreSQL, run: checkIDs, Why: "PostgreSQL refuses all writes when its transaction ids run out."},
	{ID: "dead-tuples", only: onPostgreSQL, run: checkBloat, Why: "Each checkpoint must skip the dead rows of its tables."},
	{ID: "indexes", run: checkIndexes, Why: "Without its indexes, each query for due deliveries reads the whole table."},
	{ID: "pooler", only: onPostgreSQL, run: checkPooler, Why: "A transaction pooler does not pass on NOTIFY, so a forwarder behind it can only poll."},
	{ID: "listen", only: onPostgreSQL, needs: theStore, run: checkListen, Why: "A forwarder that receives no NOTIFY notices a commit only at its next poll."},
	{ID: "retention", needs: theStore, run: checkRetention, Why: "If old rows are not removed, the log grows until the disk is full."},
	{ID: "partitions", only: onPostgreSQL, needs: theStore, run: checkPartitions, Why: "Rows without a partition go to the default partition, from which they are removed row by row."},
	{ID: "disk", needs: theStore, grant: readSettings, run: checkDisk, Why: "A full disk also stops the application."},
	{ID: "forwarders", needs: theStore, run: checkForwarders, Why: "If forwarders differ in version or configuration, delivery depends on which of them works on the lane."},
	{ID: "lanes", needs: theStore, run: checkLanes, Why: "A lane that no forwarder owns delivers nothing."},
	{ID: "lease", needs: theStore, run: checkLease, Why: "A checkpoint that takes as long as the lease loses the lease, and its deliveries are made again."},
	{ID: "lag", needs: theStore, run: checkLag, Why: "A sink that is far behind delivers late."},
	{ID: "overdue", needs: theStore, run: checkOverdue, Why: "Due deliveries that are not tried have no forwarder, or a sink that cannot keep up."},
	{ID: "dead", needs: theStore, run: checkDead, Why: "A dead delivery is not tried again until someone requeues it."},
	{ID: "halted-keys", needs: theStore, run: checkHalted, Why: "With on_dead: halt, a dead delivery blocks all later ones of its key."},
	{ID: "unrouted", needs: theStore, run: checkUnrouted, Why: "Notifications that match no route have reached no sink."},
	{ID: "hooks", needs: theStore, run: checkHooks, Why: "A hook of the program has not done its work for these deliveries."},
	{ID: "types", needs: theStore, run: checkTypes, Why: "A delivery that the program cannot decode is retried for a while and then becomes dead."},
	{ID: "captures", only: onPostgreSQL, run: checkCaptures, Why: "Writes to a captured table fail after one of its captured columns was renamed."},
	{ID: "schedules", needs: theStore, run: checkSchedules, Why: "A schedule that no process runs publishes nothing."},
	{ID: "alerts", needs: theStore, run: checkAlerts, Why: "An alert that reaches no one leaves a trouble unseen."},
	{ID: "endpoints", needs: theStore, run: checkEndpoints, Why: "A customer gets nothing at an endpoint that is disabled or whose secrets cannot be read."},
	{ID: "sinks", needs: nothing, run: checkSinks, Why: "While a sink cannot be reached, its deliveries wait."},
	{ID: "creators", only: onPostgreSQL, run: checkCreators, Why: "PostgreSQL calls the function whose arguments fit best, of any owner. Until PostgreSQL 15 everyone may create functions in the schema public."},
	{ID: "privileges", only: onServers, run: checkPrivileges, Why: "If a privilege is missing, the forwarder fails at the first statement that needs it, perhaps days later."},
}
