// Package mysql stores an outbox in MySQL 8.0.17 or later, or in MariaDB 10.6 or later, with InnoDB,
// through go-sql-driver/mysql.
//
// OpenDB opens the database, Migrate creates the tables, and Open returns the Store. An outbox.Publisher
// writes to the Store in the application's transactions, and a forwarder reads it. docs/mysql.md lists
// the privileges and settings that they need.
//
// The log must hand out the offsets: a row whose producer chose the offset may be lost. A forwarder must
// not read from a replica, or from a cluster with several primaries. Open refuses these where it can
// detect them.
//
// A cursor is a snapshot of offsets: how far the log was read, and the offsets up to there for which it
// is not known yet whether a row will commit. So a reader finds each committed row exactly once, a long
// transaction does not delay the rows of others, and reading takes no locks. docs/internals/reading.md
// has the proof.
//
// The files, in the order in which to read them: migrations, snapshot.go,
// position.go, internal/session, tracker.go, sweep.go, life.go, reader.go, look.go, pruning.go, dialect.go; what all
// databases share is in ../internal/tables.
package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/internal/tables/acts"
	"github.com/waybill-go/waybill/framework/store/internal/tables/looks"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/session"
)

// Payload is the type of the payload column.
type Payload string

// The payload columns that Migrate can create.
const (
	// PayloadJSON accepts JSON texts and stores them byte for byte.
	PayloadJSON Payload = "json"
	// PayloadBytes accepts any bytes, such as Protobuf.
	PayloadBytes Payload = "bytes"
)

// Config identifies an outbox in a database. The zero value is the default outbox.
type Config struct {
	// Prefix is the prefix of all table names; default "outbox".
	Prefix string
	// Payload is the type of the payload column that Migrate creates; default PayloadJSON. Open uses the
	// type that the database has.
	Payload Payload
	// Receipts archives each delivery in the table <prefix>_receipts.
	Receipts bool
	// WithoutProcess is what a reader does if the user of the database lacks the privilege PROCESS;
	// default ProofRequired.
	WithoutProcess Proof
	// Source is the log that forwarders read instead of the database's log, which must then be empty; nil
	// means the database's log. A store with a Source cannot be published to.
	Source store.Source
}

func (c Config) withDefaults() (Config, error) {
	if c.Prefix == "" {
		c.Prefix = store.DefaultPrefix
	}
	if c.Payload == "" {
		c.Payload = PayloadJSON
	}
	switch {
	case c.Payload != PayloadJSON && c.Payload != PayloadBytes:
		return c, fmt.Errorf("payload column %q: use %q or %q", c.Payload, PayloadJSON, PayloadBytes)
	case c.WithoutProcess != ProofRequired && c.WithoutProcess != ProofVoid:
		return c, fmt.Errorf("without PROCESS %q: use %q or nothing", c.WithoutProcess, ProofVoid)
	}
	return c, store.ValidatePrefix(c.Prefix)
}

// Store is an outbox in MySQL or MariaDB. It is safe for concurrent use.
//
// Its knowledge of offsets ends when the server restarts or another server takes over. Each session knows
// its server: a pooler must not move a client to another server's session unnoticed.
type Store struct {
	*shared
	*acted
	*looked
	db      *sql.DB
	proof   Proof // without the privilege PROCESS
	names   names
	family  session.Family
	run     *tables.Runner
	tracker *tracker
	binary  bool
	packet  int         // max_allowed_packet of the server
	blind   atomic.Bool // the privilege PROCESS is missing
	// voidAfter is a field only for tests.
	voidAfter time.Duration

	notCancelled string // the condition that a row of a page is not cancelled
}

// The parts that are the same for all databases.
type (
	shared = tables.Tables
	acted  = acts.Acts
	looked = looks.Looks
)

var _ tables.Roles = (*Store)(nil)

// Open returns the store. It refuses a server that is too old or would lose rows (store.ErrUnsupported,
// store.ErrUnsafeLog), and a database that is not migrated for this version of the program. It starts
// and changes nothing. The caller closes db after the last use of the store. A handle that was not
// opened by OpenDB must return times in UTC, and should keep more than the 2 idle connections of package
// sql.
func Open(ctx context.Context, db *sql.DB, c Config) (*Store, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	server, err := session.Check(ctx, db)
	if err != nil {
		return nil, err
	}
	n := names(c.Prefix)
	// A user who only publishes may lack the privilege to read the migrations: an INSERT fails if the
	// table is too old.
	if err := migrations(c, server).Check(ctx, db); err != nil && !session.Refused(err, session.DeniedTable, session.DeniedColumn) {
		return nil, err
	}
	if err := checkLog(ctx, db, n); err != nil {
		return nil, err
	}
	s := &Store{db: db, proof: c.WithoutProcess, voidAfter: voidAfter, names: n, family: server.Family}
	s.tracker = newTracker(s)
	s.run = tables.NewRunner(db, n.Table, &dialect{Store: s}, c.Source)
	s.notCancelled, _ = s.run.Render(tables.SQL(tables.NotCancelled))
	s.shared, s.acted, s.looked = tables.New(s.run, c.Receipts), acts.New(s.run), looks.New(s.run)
	if s.packet, err = packetSize(ctx, db); err != nil {
		return nil, err
	}
	if s.binary, err = binaryPayload(ctx, db, n); err != nil {
		return nil, err
	}
	return s, s.CheckSource(ctx)
}

func packetSize(ctx context.Context, db *sql.DB) (bytes int, err error) {
	if err := db.QueryRowContext(ctx, `SELECT LEAST(@@session.max_allowed_packet, @@global.max_allowed_packet)`).Scan(&bytes); err != nil {
		return 0, fmt.Errorf("look up max_allowed_packet: %w", err)
	}
	return bytes, nil
}

func binaryPayload(ctx context.Context, db *sql.DB, n names) (bool, error) {
	var typ string
	err := db.QueryRowContext(ctx, `SELECT DATA_TYPE FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND COLUMN_NAME = 'payload'`,
		string(n)).Scan(&typ)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil // the user may only INSERT into the table
	}
	if err != nil {
		return false, fmt.Errorf("look up the payload column of %s: %w", n, err)
	}
	return typ == "longblob", nil
}
