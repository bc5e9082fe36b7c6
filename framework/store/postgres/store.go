// Package postgres keeps an outbox in PostgreSQL 13 or later, through lib/pq, as OpenDB
// does, or through pgx: a handle of package sql over a pool does for all but Listen, which
// has a connection of its own through lib/pq.
//
// Its cursor is an MVCC snapshot, so a reader finds each committed row exactly
// once and no long transaction delays the rows of others. The files, in the order in
// which to read them: names.go, snapshot.go, probe.go, position.go, reader.go,
// history.go, dialect.go, pruning.go, listener.go, connector.go, standby.go; what all databases
// share is in ../internal/tables.
package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// minVersion is the first server with pg_snapshot and xid8: 13.
const minVersion = 130000

// Payload is the type of the payload column.
type Payload string

// The payload columns that Migrate can make.
const (
	// PayloadJSON takes JSON texts and keeps them byte for byte.
	PayloadJSON Payload = "json"
	// PayloadBytes takes anything, such as Protobuf.
	PayloadBytes Payload = "bytea"
)

// Config names one outbox in a database. The zero value is the usual one.
type Config struct {
	// Prefix begins the names of all tables; default "outbox". It may name their schema:
	// "tenant_a.outbox". Without one Migrate makes the tables where the search path
	// leads, and Open looks for them there; from then on a store keeps to that schema.
	Prefix string
	// Schema is where the tables are, in place of where the search path leads; "" where Prefix names it, or the
	// search path leads there. Unlike one in Prefix it is no part of the name under which publishers announce.
	Schema string
	// Payload is the type of the payload column that Migrate makes; default
	// PayloadJSON. Open takes what the database has.
	Payload Payload
	// PartitionRows has Migrate partition a new log by ranges of that many offsets,
	// so that old rows go by dropping a partition; 0 makes no partitions. In a log
	// that is partitioned another number is that of the next ones. Open takes what the
	// database has.
	PartitionRows int64
	// Receipts archives each delivery in the table <prefix>_receipts.
	Receipts bool
	// Source is the log that forwarders read in place of the database's own, which has to be empty
	// then; nil for the database's. Nothing can be published to such a store.
	Source store.Source
	// Listen is the address, as OpenDB takes it, at which a forwarder's store
	// listens for announcements of new rows; "" leaves it to polling. It costs
	// one connection, which must be a direct one: a transaction pooler lets no
	// client listen. A store that only publishes needs none.
	Listen string
	// ListenDSN gives that address in place of Listen, where it does not stay the same,
	// such as one with a token for a password, which a pool of pgx gets by BeforeConnect.
	// It is called for each connection to listen on, so that each has the newest password,
	// by one goroutine at a time. Its context ends after 15 s, or with listening. After an
	// error it is called again with the next attempt; meanwhile the store polls.
	ListenDSN func(ctx context.Context) (string, error)
	// ListenDial opens the network connections to listen on, such as a cloud database's
	// own dialer; nil for net.Dialer. Its context ends after 15 s, or the address's
	// connect_timeout, or with listening. It needs Listen or ListenDSN.
	ListenDial func(ctx context.Context, network, address string) (net.Conn, error)
	// Standby is a streaming standby of the database, as OpenDB opens it, on which pages of
	// the log are read; nil reads them from the primary. All else stays with the primary, and
	// so do the pages while the standby lags behind, fails or cannot be reached, is promoted, or
	// follows another server. Open refuses a standby of another database
	// (ErrOtherCluster). The role needs pg_read_all_stats, to see on which timeline the
	// standby is. The handle stays the caller's, to be closed after the last use of the store.
	Standby *sql.DB
	// Logger gets a line when pages of a Standby are read from the primary, and when they are
	// not any more. Default: slog's.
	Logger *slog.Logger
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
	_, err := parseNames(c.Prefix)
	return c, err
}

// Store is an outbox in PostgreSQL. It is safe for concurrent use and holds no
// session state, so it works behind a transaction pooler; Listen alone has a
// connection of its own.
type Store struct {
	*shared
	db        *sql.DB
	run       *tables.Runner
	names     names
	sql       statements
	binary    bool
	parts     bool // the log is partitioned
	listening listening
	standby   *standby // nil: pages are read from the primary

	lastSeen       atomic.Pointer[sight]     // by the latest probe
	watermark      atomic.Pointer[watermark] // the newest of this process
	system         atomic.Pointer[system]    // of the server that answered the latest probe
	restoreScanned atomic.Pointer[restoreScanned]
	floors         atomic.Pointer[floors] // the newest of this process

	raising          sync.Mutex // of floors, by one at a time
	floorLag         int64
	scanningRestored sync.Mutex // new cursors of many lanes share one restore scan
}

// shared are the tables that all dialects keep alike.
type shared = tables.Tables

var (
	_ store.Log        = (*Store)(nil)
	_ store.Leases     = (*Store)(nil)
	_ store.Deliveries = (*Store)(nil)
	_ store.Inspector  = (*Store)(nil)
	_ store.Sampler    = (*Store)(nil)
	_ store.Operator   = (*Store)(nil)
	_ store.Pruner     = (*Store)(nil)
	_ store.Inbox      = (*Store)(nil)
	_ store.Reserver   = (*Store)(nil)
	_ store.Schedules  = (*Store)(nil)
	_ store.Canceller  = (*Store)(nil)
	_ store.Claimer    = (*Store)(nil)
	_ store.Diagnoser  = (*Store)(nil)
)

// OpenDB opens a database with lib/pq: dsn is a URL or a list of key=value. Nothing
// is connected yet. What it adds to lib/pq:
//
//   - binary_parameters=yes unless dsn says otherwise, which saves a round trip for
//     each statement with arguments;
//   - connect_timeout=10 unless dsn has another that is more than 0: for one host,
//     sign-on included;
//   - a statement ends about a second after its context at the latest, also where
//     the server does not answer. Without a deadline it may wait for ever, except that
//     the system gives up a machine that is silent for 30 s;
//   - a connection to a server that takes no writes is not used again, nor are those
//     made before it;
//   - up to 10 idle connections are kept, in place of 2.
//
// For a failover name all hosts, and let only the primary do:
//
//	postgres://app@/shop?host=db1,db2&port=5432,5432&target_session_attrs=read-write
func OpenDB(dsn string) (*sql.DB, error) { return OpenDBWithin(dsn, nil) }

// OpenDBWithin is OpenDB for one of several handles that have a number of connections in common: each
// connection takes a slot.
func OpenDBWithin(dsn string, slot store.Slot) (*sql.DB, error) {
	c, err := newConnector(dsn)
	var unparsed *url.Error
	switch {
	case err != nil && (!isURL(dsn) || errors.As(err, &unparsed)):
		return nil, errors.New("the database's address cannot be parsed") // without it: it may hold a password
	case err != nil:
		return nil, fmt.Errorf("the database's address: %w", err)
	}
	c.slot = slot
	if !strings.Contains(dsn, "binary_parameters") {
		c.config.BinaryParameters = true
	}
	db := sql.OpenDB(c)
	db.SetMaxIdleConns(idleConnections)
	return db, nil
}

// idleConnections are kept. A forwarder looks, reads and writes checkpoints at the
// same time: with the two that package sql keeps it would open new connections all
// the time, which takes longer than a delivery.
const idleConnections = 10

func isURL(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// Open checks that the database is recent enough, in UTF-8 and migrated for this version
// of the program, and that the log's offsets are made as readers rely on
// (store.ErrUnsafeLog), and returns the store. It starts nothing and changes nothing.
// db stays the caller's, to be closed after the last use of the store. One that was
// not opened by OpenDB should keep more idle connections than the 2 of package sql,
// such as db.SetMaxIdleConns(10); one over a pool of pgx, stdlib.OpenDBFromPool(pool), is
// right as it is.
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
	// A role that only publishes need not read which migrations there were: an INSERT
	// fails where the table is older.
	if err := migrations(c, n).Check(ctx, db); err != nil && !refused(err, deniedPrivilege) {
		return nil, err
	}
	if err := checkOffsets(ctx, db, n); err != nil {
		return nil, err
	}
	s := &Store{db: db, names: n, sql: newStatements(n, serverSQL(version), c.Standby != nil), floorLag: defaultFloorLag}
	d := &dialect{Store: s}
	s.run = tables.NewRunner(n.Table, d)
	s.sql.notCancelled, _ = s.run.Render(tables.SQL(tables.NotCancelled))
	s.shared = tables.New(db, s.run, c.Receipts, c.Source)
	if s.listening, err = newListening(c); err != nil {
		return nil, err
	}
	if s.binary, err = binaryPayload(ctx, db, n); err != nil {
		return nil, err
	}
	if s.parts, err = isPartitioned(ctx, db, n); err != nil {
		return nil, err
	}
	if c.Source != nil && !s.binary {
		return nil, fmt.Errorf("%w: the payload column of %s takes JSON only, and %s may hold anything: have the tables made with the payload column bytea", store.ErrUnsupported, n, c.Source.Name())
	}
	if err := s.openStandby(ctx, c, version); err != nil {
		return nil, err
	}
	return s, s.CheckSource(ctx)
}

// names are those of the tables, with their schema.
func (c Config) names(ctx context.Context, db *sql.DB) (names, error) {
	n, err := parseNames(c.Prefix)
	if err != nil {
		return n, err
	}
	if n.schema == "" {
		n.schema = c.Schema
	}
	return n.resolve(ctx, db)
}

// checkServer returns the server's version. It refuses a database that cannot store
// every text: a checkpoint with the text of an error would fail for ever, and what it
// parks would be delivered again and again.
func checkServer(ctx context.Context, db *sql.DB) (version int, err error) {
	var encoding string
	if err := db.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_encoding')`).Scan(&version, &encoding); err != nil {
		return 0, fmt.Errorf("connect to PostgreSQL: %w", err)
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
	var typ string
	err := db.QueryRowContext(ctx,
		`SELECT atttypid::regtype::text FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = 'payload'`, n.Log()).Scan(&typ)
	if err != nil {
		return false, fmt.Errorf("look up the payload column of %s: %w", n, err)
	}
	return typ == string(PayloadBytes), nil
}

// statements are the SQL texts with the table names filled in.
type statements struct {
	server      string // an expression: see serverSQL
	identity    string
	probe       string
	page        string
	restoreScan string // a probe with the ends of the log
	unlocked    string // see unlockedSQL
	restored    string // the last restored row of a range
	between     string // the range of a page's rows
	// notCancelled is the condition that a row of a page is not cancelled.
	notCancelled string
	whole        string // the end of a statement that reads the log: see whole
}

func newStatements(n names, server string, standby bool) statements {
	const between = ` WHERE "offset" > $1 AND "offset" <= $2`
	probe := probeSQL(n, server, standby)
	return statements{
		server:      server,
		identity:    identitySQL(server, standby),
		probe:       probe,
		restoreScan: restoreScanSQL(n, probe),
		unlocked:    unlockedSQL(n, server),
		restored:    restoredSQL(n),
		page:        `SELECT ` + selected + ` FROM ` + n.Log() + ` o` + between,
		between:     between,
		whole:       whole(n.Log()),
	}
}

// querier is a database or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}
