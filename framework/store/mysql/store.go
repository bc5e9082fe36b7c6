// Package mysql keeps an outbox in MySQL 8.0.17 or later, or in MariaDB 10.6 or later, with InnoDB,
// through go-sql-driver/mysql.
//
// OpenDB opens the database, Migrate makes the tables, and Open returns the Store, which an
// outbox.Publisher writes to in the application's transactions and a forwarder reads. docs/mysql.md
// says which privileges and settings they need.
//
// The log has to hand out the offsets itself: a row whose producer has chosen its offset may be lost.
// A forwarder must not read from a replica or from a cluster with several primaries; Open refuses
// what it can see of that.
//
// A cursor is a snapshot of offsets: how far the log was seen, and the offsets up to there of which
// it is not known yet whether a row comes. So a reader finds each committed row exactly once, no long
// transaction delays the rows of others, and reading takes no lock. docs/internals/reading.md has the
// proof.
//
// The files, in the order in which to read them: migrations/00001_outbox.sql, snapshot.go,
// position.go, tracker.go, sweep.go, life.go, reader.go, look.go, pruning.go, dialect.go; what all
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
)

// Payload is the type of the payload column.
type Payload string

// The payload columns that Migrate can make.
const (
	// PayloadJSON takes JSON texts and keeps them byte for byte.
	PayloadJSON Payload = "json"
	// PayloadBytes takes anything, such as Protobuf.
	PayloadBytes Payload = "bytes"
)

// DefaultGrace is the default of Config.Grace.
const DefaultGrace = 5 * time.Minute

// Config names one outbox in a database. The zero value is the usual one.
type Config struct {
	// Prefix begins the names of all tables; default "outbox".
	Prefix string
	// Payload is the type of the payload column that Migrate makes; default PayloadJSON. Open takes
	// what the database has.
	Payload Payload
	// Receipts archives each delivery in the table <prefix>_receipts.
	Receipts bool
	// WithoutProcess is what reading does where the user of the database lacks the privilege
	// PROCESS; default ProofRequired.
	WithoutProcess Proof
	// Grace is how long a statement that publishes may take, from its first row to its last, where
	// WithoutProcess counts; default DefaultGrace, at least a second.
	Grace time.Duration
	// Source is the log that forwarders read in place of the database's own, which has to be empty
	// then; nil for the database's. Nothing can be published to such a store.
	Source store.Source
}

func (c Config) withDefaults() (Config, error) {
	if c.Prefix == "" {
		c.Prefix = store.DefaultPrefix
	}
	if c.Payload == "" {
		c.Payload = PayloadJSON
	}
	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	switch {
	case c.Payload != PayloadJSON && c.Payload != PayloadBytes:
		return c, fmt.Errorf("payload column %q: use %q or %q", c.Payload, PayloadJSON, PayloadBytes)
	case c.WithoutProcess != ProofRequired && c.WithoutProcess != ProofVoid && c.WithoutProcess != ProofGrace:
		return c, fmt.Errorf("without PROCESS %q: use %q, %q or nothing", c.WithoutProcess, ProofVoid, ProofGrace)
	case c.Grace < time.Second:
		return c, fmt.Errorf("a grace time of %s: use at least 1s", c.Grace)
	}
	return c, store.ValidatePrefix(c.Prefix)
}

// Store is an outbox in MySQL or MariaDB. It is safe for concurrent use.
//
// What it knows of offsets ends with the life of the server, which each session knows: a pooler
// between them must not move a client's session to another server unnoticed.
type Store struct {
	*shared
	db      *sql.DB
	config  Config
	names   names
	family  family
	run     *tables.Runner
	tracker *tracker
	binary  bool
	blind   atomic.Bool // the privilege PROCESS is missing

	notCancelled string // the condition that a row of a page is not cancelled
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

// Open checks that the server is recent enough and of a kind on which no row is lost
// (store.ErrUnsupported, store.ErrUnsafeLog) and that the database is migrated for this version of
// the program, and returns the store. It starts nothing and changes nothing. db stays the caller's,
// to be closed after the last use of the store. One that was not opened by OpenDB has to hand over
// times in UTC, and should keep more idle connections than the 2 of package sql.
func Open(ctx context.Context, db *sql.DB, c Config) (*Store, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	server, err := checkServer(ctx, db)
	if err != nil {
		return nil, err
	}
	n := names(c.Prefix)
	// A user who only publishes need not read which migrations there were: an INSERT fails where
	// the table is older.
	if err := migrations(c, server).Check(ctx, db); err != nil && !refused(err, deniedTable, deniedColumn) {
		return nil, err
	}
	if err := checkLog(ctx, db, n); err != nil {
		return nil, err
	}
	s := &Store{db: db, config: c, names: n, family: server.family}
	s.tracker = newTracker(s)
	s.run = tables.NewRunner(n.Table, &dialect{Store: s})
	s.notCancelled, _ = s.run.Render(tables.SQL(tables.NotCancelled))
	s.shared = tables.New(db, s.run, c.Receipts, c.Source)
	if s.binary, err = binaryPayload(ctx, db, n); err != nil {
		return nil, err
	}
	if c.Source != nil && !s.binary {
		return nil, fmt.Errorf("%w: the payload column of %s takes JSON only, and %s may hold anything: have the tables made with the payload column bytea", store.ErrUnsupported, n, c.Source.Name())
	}
	return s, s.CheckSource(ctx)
}

func binaryPayload(ctx context.Context, db *sql.DB, n names) (bool, error) {
	var typ string
	err := db.QueryRowContext(ctx, `SELECT DATA_TYPE FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND COLUMN_NAME = 'payload'`,
		string(n)).Scan(&typ)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil // of a table on which the user may only INSERT
	}
	if err != nil {
		return false, fmt.Errorf("look up the payload column of %s: %w", n, err)
	}
	return typ == "longblob", nil
}
