package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strconv"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// A commit is delivered after a look at the log and a page of it. Where a reader has read all there
// was, and little has come since, the look brings the new rows along, and no page is read.

const (
	// broughtRows is how many rows a look brings along. Where there are more, it brings none.
	broughtRows = 200
	// broughtBytes is how large a payload may be that a look brings along: 200 of them make a page.
	broughtBytes = 32 << 10
)

// brought are the rows that a reader wants of the delta between two snapshots: from, and the target's.
type brought struct {
	reader *reader
	from   snapshot
	asked  time.Time
	rows   []notification.Envelope
}

var _ store.Looker = (*reader)(nil)

// Look implements store.Looker.
func (r *reader) Look(ctx context.Context) (store.Target, error) {
	t, err := r.store.tracker.probe(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("look at the log: %w", advise(err))
	}
	return t, nil
}

// bring reads the offsets from a snapshot's top on, and the rows there that the reader wants. b is nil if one
// of them is too large. list is nil too if the reader stands elsewhere, and if there are too many rows or none:
// then the caller asks for the offsets alone.
func (r *reader) bring(ctx context.Context, c *sql.Conn, from snapshot) (list []int64, b *brought, err error) {
	if r.pos.until != nil || !r.pos.from.equal(from) {
		return nil, nil, nil
	}
	const limit = broughtRows + 1 // with the row at the top
	top := strconv.FormatInt(from.top, 10)
	query := "SELECT " + columnsBeforePayload + ", CASE WHEN o.`offset` > " + top + r.where + " THEN IF(LENGTH(payload) <= " + strconv.Itoa(broughtBytes) +
		", payload, '') END FROM " + r.store.names.Log() + " o FORCE INDEX (PRIMARY) WHERE o.`offset` >= " + top + " ORDER BY o.`offset` LIMIT " + strconv.Itoa(limit)
	asked, small, s := time.Now(), true, format.Scanner(1)
	_, err = format.Query(ctx, c, query, nil, func(row []driver.Value) (bool, error) {
		offset := format.Values(row)
		list = append(list, offset.Integer())
		payload := row[len(row)-1]
		if payload == nil { // the reader does not want it
			return true, offset.Err()
		}
		if text, is := payload.([]byte); is && len(text) == 0 {
			small = false
			return true, offset.Err()
		}
		_, err := s.Scan(row)
		return true, err
	})
	switch {
	case err != nil || len(list) == 0 || len(list) == limit: // what the caller asks next may see more rows
		return nil, nil, err
	case small:
		b = &brought{r, from, asked, s.Envelopes}
	}
	return list, b, nil
}

// brings returns the rows of the delta that r has just begun, if the look brought them.
func (t *target) brings(r *reader, limit int) *brought {
	b := t.brought
	if b == nil || b.reader != r || r.pos.offset != 0 || !r.pos.from.equal(b.from) || !r.pos.until.equal(t.at) || len(b.rows) > limit {
		return nil
	}
	return b
}
