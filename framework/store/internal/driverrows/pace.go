package driverrows

import (
	"database/sql/driver"
	"time"
)

// PageBytes is the size at which a page ends before it has reached its limit, so that large payloads do
// not add up to gigabytes.
const PageBytes = 8 << 20

const (
	// FirstRows is the LIMIT of a reader's first query. Later queries ask for as many rows as make a page,
	// by the size of earlier rows, but at most rowsGrowth times as many as the last one.
	FirstRows  = 256
	rowsGrowth = 4
	// unreadBytes is how much of a result the driver may read in vain. If more is left, it costs less to
	// cancel the statement and connect again.
	unreadBytes = 4 * PageBytes
)

// MaxWindow bounds the offsets that one query covers, and so its duration.
const MaxWindow = 1 << 20

// StatementTime bounds one statement of a reader, which would otherwise wait forever for an answer. The
// next one reads less.
const StatementTime = time.Minute

// Pace is how much a reader reads with its next query. The zero value is for the first one.
type Pace struct {
	rows   int   // LIMIT; 0: FirstRows
	window int64 // how many offsets the query covers; 0: as many as rows
}

// Restart forgets how dense the rows are, for another part of the log.
func (p *Pace) Restart() { p.window = 0 }

// Next returns the LIMIT of the next query, and how many offsets it covers.
func (p *Pace) Next(limit int) (rows int, window int64) {
	if p.rows == 0 {
		p.rows = FirstRows
	}
	rows = min(limit, p.rows)
	if p.window == 0 {
		p.window = int64(rows)
	}
	return rows, p.window
}

// Failed lets the next query read less than one that failed.
func (p *Pace) Failed(rows int) {
	p.rows = max(1, rows/2)
	p.window = max(int64(p.rows), p.window/2)
}

// Dense notes how many offsets a full page covered.
func (p *Pace) Dense(offsets int64) { p.window = offsets }

// Sparse notes that the query had fewer rows than it could: there are gaps, or rows that a filter excludes.
func (p *Pace) Sparse() { p.window = min(2*p.window, MaxWindow) }

// Had notes the rows of a query with a LIMIT.
func (p *Pace) Had(s *Scanner, limit int) {
	if len(s.Envelopes) > 0 {
		p.rows = min(rowsGrowth*limit, max(1, PageBytes/s.RowBytes()))
	}
}

// ScanPage adds the envelope of one row of a query with a LIMIT, unless the page is full: then it sets Cut,
// and cancels the query if much is left.
func (s *Scanner) ScanPage(row []driver.Value, limit int, cancel func()) (more bool, err error) {
	if s.Cut = s.Bytes >= PageBytes; s.Cut {
		if unread := limit - len(s.Envelopes); unread*s.RowBytes() > unreadBytes {
			cancel()
		}
		return false, nil
	}
	_, err = s.Scan(row)
	return true, err
}
