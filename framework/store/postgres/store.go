// Package postgres keeps an outbox in PostgreSQL 13 or later. Open a database with [OpenDB], which
// uses lib/pq, or over a pgx pool with stdlib.OpenDBFromPool; create the tables with [Migrate], and
// then [Open] the store. Only Listen makes its own connections, with lib/pq, and Sessions with another driver.
// A program that uses pgx is better off with the module framework/waybillpgx.
//
// Its cursor is an MVCC snapshot, so a reader finds each committed row exactly once, and no long
// transaction delays the rows of others.
package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/internal/tables/acts"
	"github.com/waybill-go/waybill/framework/store/internal/tables/looks"
	"github.com/waybill-go/waybill/framework/store/postgres/internal/catalog"
)

// minVersion is the first server with pg_snapshot and xid8: 13.
const minVersion = 130000

// Payload is the type of the payload column.
type Payload string

// The payload columns that Migrate can create.
const (
	// PayloadJSON takes JSON and keeps it byte for byte.
	PayloadJSON Payload = "json"
	// PayloadBytes takes any bytes, such as Protobuf.
	PayloadBytes Payload = "bytea"
)

// Config configures an outbox in a database. The zero value suits most programs.
type Config struct {
	// Prefix is the beginning of all table names; default "outbox". It may name their schema:
	// "tenant_a.outbox". Without a schema, Migrate creates the tables, and Open looks for them,
	// according to the search path; from then on the store uses that schema.
	Prefix string
	// Schema is the schema of the tables, if Prefix does not name it and the search path does not
	// lead to it. Unlike a schema in Prefix, it is not part of the name under which publishers
	// announce rows.
	Schema string
	// Payload is the type of the payload column that Migrate creates; default PayloadJSON. Open
	// uses the existing one.
	Payload Payload
	// PartitionRows makes Migrate partition a new log by ranges of that many offsets, so that old
	// rows are removed by dropping partitions; 0 means no partitions. In a partitioned log another
	// number applies to the next partitions. Open uses what the database has.
	PartitionRows int64
	// Receipts archives the receipt of each delivery in the table <prefix>_receipts.
	Receipts bool
	// Prepare makes Open prepare the INSERT of one notification. Each connection of the handle then
	// parses and plans it once, which halves the server's work, for each *sql.Tx of this handle.
	// Connections must lead to the server itself: a transaction pooler may execute another client's
	// statement of the same name. Open refuses one with ErrPooled; for that it needs two connections
	// at once.
	Prepare bool
	// Source is the log that forwarders read instead of the database's own, which must be empty
	// then; nil means the database's own log. Such a store cannot be published to.
	Source store.Source
	// Listen is the address, as for OpenDB, at which a forwarder's store listens for announcements
	// of new rows; "" means polling only. It costs one connection, which must be direct: a
	// transaction pooler does not let clients listen. A store that listens also prepares its looks at
	// the log on the connections of its handle, if OpenDB made that; behind a transaction pooler it
	// stops to. A store that only publishes does not need it.
	Listen string
	// ListenDSN returns that address, in place of Listen, if it changes, for example because it
	// contains a token as password (BeforeConnect in pgx). It is called before each connection, by
	// one goroutine at a time. Its context ends after 15 s, or with listening. After an error it
	// is called again at the next attempt; meanwhile the store polls.
	ListenDSN func(ctx context.Context) (string, error)
	// ListenDial opens the network connections for listening, for example with a cloud database's
	// dialer; nil means net.Dialer. Its context ends after 15 s, or after the address's
	// connect_timeout, or with listening. It requires Listen or ListenDSN.
	ListenDial func(ctx context.Context, network, address string) (net.Conn, error)
	// Sessions opens the direct connections in place of Listen, with another driver than lib/pq. Package
	// waybillpgx sets it to those of a pgx pool.
	Sessions Sessions
}

func (c Config) withDefaults() (Config, error) {
	if c.Prefix == "" {
		c.Prefix = store.DefaultPrefix
	}
	if c.Payload == "" {
		c.Payload = PayloadJSON
	}
	if c.Payload != PayloadJSON && c.Payload != PayloadBytes {
		return c, fmt.Errorf("payload column %q: use %q or %q", c.Payload, PayloadJSON, PayloadBytes)
	}
	if c.PartitionRows < 0 {
		return c, fmt.Errorf("partitions of %d rows: use at least 1", c.PartitionRows)
	}
	_, err := catalog.Parse(c.Prefix)
	return c, err
}

// Store is an outbox in PostgreSQL. It is safe for concurrent use. It needs no session state, so it
// works behind a transaction pooler; only Listen and Prepare need direct connections.
type Store struct {
	*shared
	*acted
	*looked
	db        *sql.DB
	run       *tables.Runner
	names     names
	sql       statements
	binary    bool
	parts     bool // the log is partitioned
	listening listening
	one       *sql.Stmt // the INSERT of one row; nil: not prepared

	lastSeen       atomic.Pointer[sight]     // by the latest probe
	watermark      atomic.Pointer[watermark] // newest of this process
	system         atomic.Pointer[system]    // of the server that answered the latest probe
	restoreScanned atomic.Pointer[restoreScanned]
	floors         atomic.Pointer[floors] // newest of this process
	oldVersions    oldVersions

	raising          sync.Mutex // held while the floors are raised
	floorLag         int64
	scanningRestored sync.Mutex // new cursors of many lanes share one restore scan
}

// The parts that are the same for all databases.
type (
	shared = tables.Tables
	acted  = acts.Acts
	looked = looks.Looks
)

var _ tables.Roles = (*Store)(nil)

// OpenDB opens a database with lib/pq: dsn is a URL or a list of key=value. It does not connect yet.
// It adds to lib/pq:
//
//   - binary_parameters=yes unless dsn sets it, which saves a round trip for each statement with
//     arguments;
//   - connect_timeout=10 unless dsn sets another above 0: for one host, including authentication;
//   - a statement ends at most about a second after its context, even if the server does not
//     answer. Without a deadline it may wait forever, except that the operating system closes the
//     connection to a machine that is silent for 30 s;
//   - a connection to a read-only server is not used again, nor are those made before it;
//   - up to 10 idle connections are kept, instead of 2.
//
// For a failover, name all hosts and accept only the primary:
//
//	postgres://app@/shop?host=db1,db2&port=5432,5432&target_session_attrs=read-write
func OpenDB(dsn string) (*sql.DB, error) { return OpenDBWithin(dsn, nil) }

// OpenDBWithin is OpenDB for one of several handles that share a number of connections: each
// connection takes a permit.
func OpenDBWithin(dsn string, permit store.Permit) (*sql.DB, error) {
	c, err := newConnector(dsn)
	var unparsed *url.Error
	switch {
	case err != nil && (!isURL(dsn) || errors.As(err, &unparsed)):
		return nil, errors.New("the database's address cannot be parsed") // without the address: it may contain a password
	case err != nil:
		return nil, fmt.Errorf("the database's address: %w", err)
	}
	c.permit = permit
	if !strings.Contains(dsn, "binary_parameters") {
		c.config.BinaryParameters = true
	}
	db := sql.OpenDB(c)
	db.SetMaxIdleConns(idleConnections)
	return db, nil
}

// idleConnections is how many idle connections are kept. A forwarder looks, reads and writes
// checkpoints at the same time: with the default of 2 it would open new connections all the time,
// which takes longer than a delivery.
const idleConnections = 10

func isURL(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// Open checks that the server is recent enough, that the database uses UTF-8 and is migrated for
// this version of the program, and that the log assigns its offsets as readers need it
// (store.ErrUnsafeLog). Then it returns the store. It starts and changes nothing. The caller closes
// db after the last use of the store. A handle that OpenDB did not open should keep more idle
// connections than the default of 2, for example with db.SetMaxIdleConns(10); one over a pgx pool,
// stdlib.OpenDBFromPool(pool), needs no change.
func Open(ctx context.Context, db *sql.DB, c Config) (*Store, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	version, err := checkServer(ctx, db)
	if err != nil {
		return nil, err
	}
	n, err := c.names(ctx, db)
	if err != nil {
		return nil, err
	}
	if err := checkMigrated(ctx, db, c, n); err != nil {
		return nil, err
	}
	if err := checkOffsets(ctx, db, n); err != nil {
		return nil, err
	}
	s := &Store{db: db, names: n, sql: newStatements(n, serverSQL(version)), floorLag: defaultFloorLag}
	d := &dialect{Store: s}
	s.run = tables.NewRunner(db, n.Table, d, c.Source)
	s.sql.notCancelled, _ = s.run.Render(tables.SQL(tables.NotCancelled))
	s.shared, s.acted, s.looked = tables.New(s.run, c.Receipts), acts.New(s.run), looks.New(s.run)
	if s.listening, err = newListening(c); err != nil {
		return nil, err
	}
	if s.binary, err = binaryPayload(ctx, db, n); err != nil {
		return nil, err
	}
	if s.parts, err = isPartitioned(ctx, db, n); err != nil {
		return nil, err
	}
	if c.Prepare {
		if err := s.prepare(ctx); err != nil {
			return nil, err
		}
	}
	return s, s.CheckSource(ctx)
}

// names are the names of an outbox's tables, sequences, indexes and functions.
type names = catalog.Names

// names returns the names of the tables, with their schema.
func (c Config) names(ctx context.Context, db *sql.DB) (names, error) {
	n, err := catalog.Parse(c.Prefix)
	if err != nil {
		return n, err
	}
	if n.Schema == "" {
		n.Schema = c.Schema
	}
	return n.Resolve(ctx, db)
}

// checkMigrated returns an error if the tables are not those of this program. A role that only publishes
// may lack the right to read which migrations were applied. If the table is too old, its INSERT fails.
func checkMigrated(ctx context.Context, db *sql.DB, c Config, n names) error {
	if err := migrations(c, n).Check(ctx, db); err != nil && !catalog.Refused(err, catalog.DeniedPrivilege) {
		return err
	}
	return nil
}

// Names returns the names of what the outbox has, for packages of this module. It fails with
// store.ErrNotMigrated if the tables are not those of this program.
func (c Config) Names(ctx context.Context, db *sql.DB) (catalog.Names, error) {
	c, err := c.withDefaults()
	if err != nil {
		return catalog.Names{}, err
	}
	n, err := c.names(ctx, db)
	if err != nil {
		return n, err
	}
	return n, checkMigrated(ctx, db, c, n)
}

// checkServer returns the server's version. It refuses a database that cannot store every text: a
// checkpoint with the text of an error would fail forever, and what it parks would be delivered
// again and again.
func checkServer(ctx context.Context, db *sql.DB) (version int, err error) {
	var encoding string
	if err := db.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_encoding')`).Scan(&version, &encoding); err != nil {
		return 0, fmt.Errorf("connect to PostgreSQL: %w", withAdvice(err))
	}
	if version < minVersion {
		return 0, fmt.Errorf("%w: PostgreSQL %d.%d lacks pg_snapshot; 13 or later is needed", store.ErrUnsupported, version/10000, version%10000)
	}
	if encoding != "UTF8" {
		return 0, fmt.Errorf("%w: the database's encoding is %s, which cannot store every text; use one that was made by "+
			"CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0", store.ErrUnsupported, encoding)
	}
	return version, nil
}

func binaryPayload(ctx context.Context, db *sql.DB, n names) (bool, error) {
	var binary bool
	err := db.QueryRowContext(ctx,
		`SELECT atttypid = 'bytea'::regtype FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = 'payload'`, n.Log()).Scan(&binary)
	if err != nil {
		return false, fmt.Errorf("look up the payload column of %s: %w", n, err)
	}
	return binary, nil
}

// statements are the SQL texts with the table names.
type statements struct {
	server      string // an expression: see serverSQL
	identity    string
	probe       string
	page        string
	restoreScan string // a probe with the lowest and highest offset of the log
	unlocked    string // see unlockedSQL
	snapshot    string // see stillRunning
	restored    string // the last restored row of a range
	between     string // the range of a page's rows
	// notCancelled is the condition that a row of a page is not cancelled.
	notCancelled string
	whole        string // the end of a statement that reads the log: see whole
	oldVersions  string // of the cursors, or NULL if the argument is false
}

func newStatements(n names, server string) statements {
	const between = ` WHERE "offset" > $1 AND "offset" <= $2`
	probe := probeSQL(n, server)
	return statements{
		server:      server,
		identity:    identitySQL(server),
		probe:       probe,
		restoreScan: restoreScanSQL(n, probe),
		unlocked:    unlockedSQL(n, server),
		snapshot:    `SELECT pg_current_snapshot()::text, ` + server,
		restored:    restoredSQL(n),
		page:        `SELECT ` + logged + ` FROM ` + n.Log() + ` o` + between,
		between:     between,
		whole:       whole(n.Log()),
		oldVersions: oldVersionsSQL(n),
	}
}
