package outbox

import (
	"database/sql"
	"math/bits"
	"strings"
	"sync/atomic"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// Log is the table that a Publisher appends to, in the SQL of its database. The stores
// implement it. All methods are safe for concurrent use.
type Log interface {
	// InsertInto returns the beginning of an INSERT, up to and including VALUES. It names the
	// columns id, type, version, key, occurred_on, deliver_at, metadata and payload,
	// in this order.
	InsertInto() string
	// Placeholder returns the n-th parameter of a statement; n counts from 1.
	Placeholder(n int) string
	// Limits returns how large a statement can be: its parameters are at least 8, which
	// is one row.
	Limits() store.Limits
	// BindTime returns the parameter for a time, which is in UTC with microseconds. The
	// zero time becomes NULL.
	BindTime(t time.Time) any
	// BindPayload returns the parameter for a payload. A nil payload is empty, not NULL.
	BindPayload(payload []byte) any
	// BinaryPayload reports whether a payload may be anything other than JSON.
	BinaryPayload() bool
	// CheckPayload reports why the payload column would refuse a payload. So Publish fails before
	// it writes, and no error of the database spoils the caller's transaction.
	CheckPayload(payload []byte) error
}

// prepared is a Log whose INSERT of one row is prepared on each connection of a database.
type prepared interface {
	// Prepared returns that statement; nil: there is none.
	Prepared() *sql.Stmt
}

// plentiful is a Log with a cheaper INSERT of many rows than that of InsertInto.
type plentiful interface {
	// InsertMany returns the INSERT of rows, in their order, from the parameters of one row after the
	// other.
	InsertMany(rows []any) (query string, args []any)
}

// leastMany is from how many rows on InsertMany is used.
const leastMany = 16

// columns is the number of parameters of a row; see Log.InsertInto.
const columns = 8

// keptRows bounds the text that an insertSQL keeps, to about 60 KB. It is a power of two, as
// are the lengths of kept texts. Calls with more rows make their text each time, which costs
// little beside their rows.
const keptRows = 1024

// insertSQL makes the INSERT for any number of rows. The text for fewer rows is the
// beginning of the text for more, so it keeps only the longest text needed so far.
type insertSQL struct {
	log     Log
	longest atomic.Pointer[insertText]
}

// insertText is an INSERT of len(ends) rows; row i ends at byte ends[i] of the text.
type insertText struct {
	sql  string
	ends []int
}

// rows returns the INSERT of n rows; n is at least 1.
func (q *insertSQL) rows(n int) string {
	text := q.longest.Load()
	if text == nil || len(text.ends) < n {
		if n > keptRows {
			return newInsertText(q.log, n).sql
		}
		text = newInsertText(q.log, 1<<bits.Len(uint(n-1)))
		q.longest.Store(text) // may replace a longer text of a concurrent call, which is then made again
	}
	return text.sql[:text.ends[n-1]]
}

func newInsertText(log Log, rows int) *insertText {
	text := &insertText{ends: make([]int, rows)}
	var b strings.Builder
	b.WriteString(log.InsertInto())
	parameter := 0
	for i := range text.ends {
		separator := " ("
		if i > 0 {
			separator = ", ("
		}
		for range columns {
			parameter++
			b.WriteString(separator)
			b.WriteString(log.Placeholder(parameter))
			separator = ", "
		}
		b.WriteString(")")
		text.ends[i] = b.Len()
	}
	text.sql = b.String()
	return text
}
