package sqlite

import (
	"database/sql"
	"time"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// The part of the store that a publisher uses; see outbox.Log.

// InsertInto returns the beginning of an INSERT into the log.
func (s *Store) InsertInto() string {
	return `INSERT INTO ` + s.names.Log() + ` (id, type, version, key, occurred_on, deliver_at, metadata, payload) VALUES`
}

// Prepared returns the INSERT of one row.
func (s *Store) Prepared() *sql.Stmt { return s.one }

// Placeholder returns the next parameter of a statement.
func (*Store) Placeholder(int) string { return "?" }

// Limits returns the default of SQLITE_MAX_VARIABLE_NUMBER.
func (*Store) Limits() store.Limits {
	return store.Limits{Parameters: 32766, Bytes: store.StatementBytes, Refs: 5000}
}

// BindTime returns the parameter for a time; the zero time is NULL.
func (*Store) BindTime(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return formatTime(t)
}

// BindPayload returns the parameter for a payload, which may be empty.
func (*Store) BindPayload(payload []byte) any { return tables.Payload(payload, true) }

// BinaryPayload returns true: the payload column takes any bytes.
func (*Store) BinaryPayload() bool { return true }

// CheckPayload accepts any payload.
func (*Store) CheckPayload([]byte) error { return nil }
