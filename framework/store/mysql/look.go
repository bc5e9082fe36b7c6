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
	"github.com/waybill-go/waybill/framework/store/mysql/internal/session"
)

// To deliver a commit, a forwarder probes the log and reads a page. If a reader has read everything
// before, and there are few new rows, the probe returns these rows, and no page is read.

const (
	// broughtRows is how many rows a probe returns. If there are more, it returns none.
	broughtRows = 200
	// broughtBytes is how large the payloads of these rows may be: 200 of them make a page.
	broughtBytes = 32 << 10
)

// brought has the rows of the delta between two snapshots, from and the target's, that a reader wants.
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
		return nil, fmt.Errorf("look at the log: %w", session.Advise(err))
	}
	return t, nil
}

// bring reads the offsets from a snapshot's top on, and the rows there that the reader wants. b is nil
// if one of the rows is too large. list is also nil if the reader is at another place, or if there are
// no rows or too many: then the caller queries only the offsets.
func (r *reader) bring(ctx context.Context, c *sql.Conn, from snapshot) (list []int64, b *brought, err error) {
	if r.pos.until != nil || !r.pos.from.equal(from) {
		return nil, nil, nil
	}
	const limit = broughtRows + 1 // including the row at the top
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
	case err != nil || len(list) == 0 || len(list) == limit: // the caller's next query may see more rows
		return nil, nil, err
	case small:
		b = &brought{r, from, asked, s.Envelopes}
	}
	return list, b, nil
}

// brings returns the rows of the delta that r has just begun, if the probe returned them.
func (t *target) brings(r *reader, limit int) *brought {
	b := t.brought
	if b == nil || b.reader != r || r.pos.offset != 0 || !r.pos.from.equal(b.from) || !r.pos.until.equal(t.at) || len(b.rows) > limit {
		return nil
	}
	return b
}
