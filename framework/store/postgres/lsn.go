package postgres

import (
	"fmt"
	"strconv"
	"strings"
)

// lsn is a position in the write-ahead log (PostgreSQL's pg_lsn). It never decreases during the
// life of a primary.
type lsn uint64

// longHeader is the size in bytes of the header of a WAL file's first page; other pages have
// shorter headers.
const longHeader = 40

// parseLSN reads the text form, two hexadecimal halves.
func parseLSN(text string) (lsn, error) {
	high, low, found := strings.Cut(text, "/")
	h, err := strconv.ParseUint(high, 16, 32)
	if err == nil {
		var l uint64
		if l, err = strconv.ParseUint(low, 16, 32); err == nil && found {
			return lsn(h<<32 | l), nil
		}
	}
	return 0, fmt.Errorf("%q is not a position in the write-ahead log", text)
}

// reaches reports whether all records before at end at l or before. The position of the next
// record may be after the header of a page, while the record before it ends where the page
// begins. No record fits between the two: the shortest has 24 bytes, after a header of at least
// 24.
func (l lsn) reaches(at lsn, pageSize int64) bool {
	return l >= at || int64(l)%pageSize == 0 && at-l <= longHeader
}
