package mysql

import "time"

// What a publisher needs of the log; see outbox.Log.

// InsertInto is the beginning of an INSERT into the log.
func (s *Store) InsertInto() string {
	return "INSERT INTO " + s.names.Log() + " (id, type, version, `key`, occurred_on, deliver_at, metadata, payload) VALUES"
}

// Placeholder stands for the next parameter of a statement.
func (*Store) Placeholder(int) string { return "?" }

// MaxParameters is the limit of a prepared statement.
func (*Store) MaxParameters() int { return 65535 }

// BindTime is the parameter for a time, as text: the driver would write a time.Time in the zone that
// its handle was opened with. The zero time is NULL.
func (*Store) BindTime(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return formatTime(t)
}

// BindPayload is the parameter for a payload.
func (s *Store) BindPayload(payload []byte) any { return payloadArg(payload, s.binary) }

// BinaryPayload says whether the payload column takes anything but JSON.
func (s *Store) BinaryPayload() bool { return s.binary }

// payloadArg hands JSON over as text: bytes would not be checked to be UTF-8.
func payloadArg(payload []byte, binary bool) any {
	switch {
	case !binary:
		return string(payload)
	case payload == nil:
		return []byte{} // nil would be NULL
	}
	return payload
}
