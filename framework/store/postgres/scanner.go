package postgres

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/store/internal/driverrows"
)

// slotOf is the slot of a row of the log. It is computed when the row is read, since a generated column
// costs each INSERT as much as its whole row.
const slotOf = `(hashtextextended(CASE WHEN key = '' THEN id ELSE key END, 0) & 1023)::smallint`

// The columns of an envelope as a scanner reads them, in the parked table and in the log. Times are in
// binary form, which is less work for the server and for the scanner.
const (
	selected = `"offset", slot` + rest
	logged   = `"offset", ` + slotOf + rest

	rest = `, id, type, version, key, timestamptz_send(occurred_on), timestamptz_send(deliver_at), metadata, payload`
)

var format = &driverrows.Format{Drivers: "lib/pq or pgx", Time: sentTime}

// sentTime decodes the format of timestamptz_send: microseconds since the year 2000.
func sentTime(sent []byte) (time.Time, error) {
	if len(sent) != 8 {
		return time.Time{}, fmt.Errorf("a time of %d bytes instead of 8", len(sent))
	}
	const second = int64(time.Second / time.Microsecond)
	micros := int64(binary.BigEndian.Uint64(sent)) // plus those until 2000 it may overflow
	return time.Unix(year2000.Unix()+micros/second, micros%second*int64(time.Microsecond)), nil
}

var year2000 = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)
