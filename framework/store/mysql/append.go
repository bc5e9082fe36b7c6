package mysql

import (
	"time"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// The methods of outbox.Log, for publishers.

// InsertInto returns the beginning of an INSERT into the log.
func (s *Store) InsertInto() string {
	return "INSERT INTO " + s.names.Log() + " (id, type, version, `key`, occurred_on, deliver_at, metadata, payload) VALUES"
}

// Placeholder returns the placeholder of the next parameter of a statement.
func (*Store) Placeholder(int) string { return "?" }

// Limits returns the limits of a prepared statement, and of the server's packets.
func (s *Store) Limits() store.Limits { return limits(s.packet) }

// limits returns the limits for a server's max_allowed_packet. In a statement with its arguments as text,
// each byte of an argument may take two. MariaDB plans a condition that names 50 rows in 3 ms, and one that
// names 500 in half a second.
func limits(packet int) store.Limits {
	return store.Limits{Parameters: 65535, Bytes: min(store.StatementBytes, packet/2-around), Refs: 50, Row: packet - around, Setting: "max_allowed_packet"}
}

// around is more than the text of a statement takes around its rows.
const around = 8 << 10

// BindTime returns the parameter for a time. It is a text, since the driver would write a time.Time in
// the zone of its handle. The zero time is NULL.
func (*Store) BindTime(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return formatTime(t)
}

// BindPayload returns the parameter for a payload. JSON is passed as text, since the server does not check
// whether bytes are UTF-8.
func (s *Store) BindPayload(payload []byte) any { return tables.Payload(payload, s.binary) }

// BinaryPayload reports whether the payload column accepts anything other than JSON.
func (s *Store) BinaryPayload() bool { return s.binary }
