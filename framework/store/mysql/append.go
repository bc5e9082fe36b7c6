package mysql

import "time"

// The methods of outbox.Log, for publishers.

// InsertInto returns the beginning of an INSERT into the log.
func (s *Store) InsertInto() string {
	return "INSERT INTO " + s.names.Log() + " (id, type, version, `key`, occurred_on, deliver_at, metadata, payload) VALUES"
}

// Placeholder returns the placeholder of the next parameter of a statement.
func (*Store) Placeholder(int) string { return "?" }

// MaxParameters returns the limit of a prepared statement.
func (*Store) MaxParameters() int { return 65535 }

// BindTime returns the parameter for a time. It is a text, since the driver would write a time.Time in
// the zone of its handle. The zero time is NULL.
func (*Store) BindTime(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return formatTime(t)
}

// BindPayload returns the parameter for a payload.
func (s *Store) BindPayload(payload []byte) any { return payloadArg(payload, s.binary) }

// BinaryPayload reports whether the payload column accepts anything other than JSON.
func (s *Store) BinaryPayload() bool { return s.binary }

// payloadArg passes JSON as text, since the server does not check whether bytes are UTF-8.
func payloadArg(payload []byte, binary bool) any {
	switch {
	case !binary:
		return string(payload)
	case payload == nil:
		return []byte{} // nil would be NULL
	}
	return payload
}
