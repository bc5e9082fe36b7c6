package postgres

import (
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// InsertMany returns the INSERT of several rows, in their order, with one array for each column: parsing eight
// parameters for each row costs the server several times as much as the rows. rows has the parameters of one row
// after the other, as those of InsertInto.
func (s *Store) InsertMany(rows []any) (query string, args []any) {
	payload := [2]string{`text`, `json`}
	if s.binary {
		payload = [2]string{`bytea`, `bytea`}
	}
	query = `INSERT INTO ` + s.names.Log() + ` (` + appended + `) SELECT id, type, version, key, occurred_on, deliver_at, metadata::jsonb, payload::` + payload[1] + `
		FROM unnest($1::text[], $2::text[], $3::smallint[], $4::text[], $5::timestamptz[], $6::timestamptz[], $7::text[], $8::` + payload[0] + `[])
		WITH ORDINALITY AS r (` + appended + `, place) ORDER BY place`
	const columns = 8
	args = make([]any, columns)
	for column := range args {
		var b strings.Builder
		b.WriteByte('{')
		for i := column; i < len(rows); i += columns {
			if i > column {
				b.WriteByte(',')
			}
			writeElement(&b, rows[i])
		}
		b.WriteByte('}')
		args[column] = b.String()
	}
	return query, args
}

// escaped are the characters that a backslash precedes in a quoted element of an array.
var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// writeElement writes an element of an array as text; see "Array Input and Output Syntax" in the documentation of
// PostgreSQL.
func writeElement(b *strings.Builder, value any) {
	switch v := value.(type) {
	case nil:
		b.WriteString(`NULL`)
	case int:
		b.WriteString(strconv.Itoa(v))
	case time.Time:
		b.WriteString(`"` + notification.ClampTime(v).Format(`2006-01-02 15:04:05.999999Z07:00`) + `"`)
	case []byte:
		b.WriteString(`"\\x` + hex.EncodeToString(v) + `"`)
	case string:
		b.WriteByte('"')
		_, _ = escaped.WriteString(b, v) // never fails for a Builder
		b.WriteByte('"')
	}
}
