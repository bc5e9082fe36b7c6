package postgres

import (
	"fmt"
	"strconv"
	"strings"
)

// lsn is a place in the write-ahead log (PostgreSQL's pg_lsn). It never goes back within the
// life of a primary.
type lsn uint64

// longHeader is how many bytes begin the first page of a WAL file; other pages begin with
// fewer.
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
	return 0, fmt.Errorf("%q is no place in the write-ahead log", text)
}

// reaches says whether all records before at end at l or before. The place where the next
// record is to be written is behind the header of a page, while the record before it ends
// where the page begins. No record fits in between: the shortest takes 24 bytes, behind a
// header of 24 at least.
func (l lsn) reaches(at lsn, pageSize int64) bool {
	return l >= at || int64(l)%pageSize == 0 && at-l <= longHeader
}
