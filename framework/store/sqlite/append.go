package sqlite

import "time"

// What a publisher needs of the log; see outbox.Log.

// InsertInto is the beginning of an INSERT into the log.
func (s *Store) InsertInto() string {
	return `INSERT INTO ` + s.names.Log() + ` (id, type, version, key, occurred_on, deliver_at, metadata, payload) VALUES`
}

// Placeholder stands for the next parameter of a statement.
func (*Store) Placeholder(int) string { return "?" }

// MaxParameters is SQLITE_MAX_VARIABLE_NUMBER where a build does not change it.
func (*Store) MaxParameters() int { return 32766 }

// BindTime is the parameter for a time; the zero time is NULL.
func (*Store) BindTime(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return formatTime(t)
}

// BindPayload is the parameter for a payload, also an empty one.
func (*Store) BindPayload(payload []byte) any { return notNil(payload) }

// BinaryPayload says whether the payload column takes anything but JSON: always.
func (*Store) BinaryPayload() bool { return true }
