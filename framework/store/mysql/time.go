package mysql

import (
	"database/sql"
	"time"
)

// timeLayout is how a DATETIME(6) is written and read. A zone is not part of it: MariaDB takes
// none.
const timeLayout = "2006-01-02 15:04:05.000000"

func formatTime(t time.Time) string { return t.UTC().Format(timeLayout) }

func parseTime(text string) (time.Time, error) { return time.Parse("2006-01-02 15:04:05.999999", text) }

// nullTime is t for a column that is null where there is no time. It is a text: the driver would
// write a time.Time in the zone that its handle was opened with.
func nullTime(t time.Time) sql.NullString {
	if t.IsZero() {
		return sql.NullString{}
	}
	return sql.NullString{String: formatTime(t), Valid: true}
}
