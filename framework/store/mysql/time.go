package mysql

import (
	"database/sql"
	"time"
)

// timeLayout is the text of a DATETIME(6). It has no zone, which MariaDB would not accept.
const timeLayout = "2006-01-02 15:04:05.000000"

func formatTime(t time.Time) string { return t.UTC().Format(timeLayout) }

func parseTime(text string) (time.Time, error) { return time.Parse("2006-01-02 15:04:05.999999", text) }

// nullTime returns the argument for a nullable time. It is a text, since the driver would write a
// time.Time in the zone of its handle.
func nullTime(t time.Time) sql.NullString {
	if t.IsZero() {
		return sql.NullString{}
	}
	return sql.NullString{String: formatTime(t), Valid: true}
}
