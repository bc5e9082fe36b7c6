package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// The part of the store that a publisher uses; see outbox.Log.

// appended are the columns that a publisher writes.
const appended = `id, type, version, key, occurred_on, deliver_at, metadata, payload`

// InsertInto returns the beginning of an INSERT into the log.
func (s *Store) InsertInto() string {
	return `INSERT INTO ` + s.names.Log() + ` (` + appended + `) VALUES`
}

// ErrPooled: statements cannot be prepared, since a transaction pooler is in front of the server.
var ErrPooled = errors.New("a transaction pooler is in front of the server, and may execute another client's prepared statement: leave Config.Prepare out")

// prepare prepares the INSERT of one row; see Config.Prepare.
func (s *Store) prepare(ctx context.Context) error {
	if s.db.Stats().MaxOpenConnections == 1 {
		return errors.New("prepare the INSERT of notifications: the handle allows one connection, and two are needed to see that no pooler is in front of the server")
	}
	pooled, err := isPooled(ctx, s.db)
	if err == nil && pooled {
		err = ErrPooled
	}
	if err == nil {
		s.one, err = s.db.PrepareContext(ctx, s.InsertInto()+` ($1, $2, $3, $4, $5, $6, $7, $8)`)
	}
	if err != nil {
		return fmt.Errorf("prepare the INSERT of notifications: %w", err)
	}
	return nil
}

// Prepared returns the INSERT of one row; nil if it is not prepared.
func (s *Store) Prepared() *sql.Stmt { return s.one }

// Placeholder returns the n-th parameter of a statement.
func (*Store) Placeholder(n int) string { return "$" + strconv.Itoa(n) }

// Limits returns the limit of the PostgreSQL protocol.
func (*Store) Limits() store.Limits {
	return store.Limits{Parameters: 65535, Bytes: store.StatementBytes, Refs: 5000}
}

// BindTime returns the parameter for a time; the zero time is NULL.
func (*Store) BindTime(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return notification.ClampTime(t)
}

// BindPayload returns the parameter for a payload. JSON is passed as text: some drivers send bytes as a
// bytea literal.
func (s *Store) BindPayload(payload []byte) any { return tables.Payload(payload, s.binary) }

// BinaryPayload reports whether the payload column takes more than JSON.
func (s *Store) BinaryPayload() bool { return s.binary }

// CheckPayload reports why the payload column would refuse a payload.
func (s *Store) CheckPayload(payload []byte) error {
	if s.binary {
		return nil
	}
	return store.CheckJSON(payload)
}
