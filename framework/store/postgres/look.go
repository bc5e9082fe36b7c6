package postgres

import (
	"context"
	"database/sql/driver"
	"fmt"
	"slices"
	"strconv"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/driverrows"
)

// Before a commit is delivered, the forwarder looks at the log and reads a page. If a reader has
// read everything and little was added, one statement does both: its snapshot is the probe's, so
// the delta is what it sees and the base's snapshot does not.

const (
	// broughtRows is how many rows a look can return. If there are more, it returns none.
	broughtRows = 200
	// nearOffsets is how far before and after the base's end a look searches. If late rows, or
	// those of later transactions, can be further back, or the log has grown by more, pages read
	// them, each a bounded part.
	nearOffsets = 1000
)

// brought is the delta from a reader's base to the probe.
type brought struct {
	reader *reader
	since  string // the base's snapshot
	rows   []notification.Envelope
}

// brings returns the rows of the delta up to p that r has just begun, if p has all of them.
func (p *probe) brings(r *reader) (rows []notification.Envelope, all bool) {
	b := p.brought
	if b == nil || b.reader != r || b.since != r.pos.delta.From.Snapshot.text {
		return nil, false
	}
	return b.rows, true
}

var _ store.Looker = (*reader)(nil)

// Look implements store.Looker.
func (r *reader) Look(ctx context.Context) (store.Target, error) {
	q, limit := r.look()
	if q == nil {
		return r.store.probeLog(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, driverrows.StatementTime)
	defer cancel()
	known, p := r.store.known(), &probe{}
	var snapshot string
	s := format.Scanner(0)
	run := stream
	if r.store.prepares(limit) {
		run = streamPrepared
	}
	err := run(ctx, r.store.db, q.String(), q.args, func(row []driver.Value) (more bool, err error) {
		columns := len(row) - probeColumns
		if snapshot == "" {
			v := format.Values(row[columns:])
			snapshot, p.last = v.Text(), v.Integer()
			p.history.Sequence, p.history.Log = v.Integer(), v.Integer()
			p.server = v.Text()
			if v.Err() != nil {
				return false, v.Err()
			}
		}
		if row[0] == nil { // there is none
			return true, nil
		}
		_, err = s.Scan(row[:columns])
		return s.Bytes < driverrows.PageBytes, err
	})
	if err == nil {
		err = r.store.complete(ctx, r.store.db, p, snapshot, known)
	}
	if err != nil {
		return nil, fmt.Errorf("look at the log: %w", advise(err))
	}
	if len(s.Envelopes) < limit && s.Bytes < driverrows.PageBytes && p.last <= r.pos.base.Last+nearOffsets {
		slices.SortFunc(s.Envelopes, func(a, b notification.Envelope) int { return int(a.Offset - b.Offset) })
		p.brought = &brought{reader: r, since: r.pos.base.Snapshot.text, rows: s.Envelopes}
	}
	r.store.note(ctx, p)
	return p, nil
}

// probeColumns is the number of columns of a probe.
const probeColumns = 5

// look returns a probe with the rows after the reader's base; nil if the reader cannot use it: it
// is within a delta, or late rows may be far back.
func (r *reader) look() (q *statement, limit int) {
	if r.pos.delta != nil || r.pos.isNew() {
		return nil, 0
	}
	b := r.pos.base
	floor := b.settled()
	if b.Last-floor > nearOffsets || b.Reach > 0 {
		return nil, 0
	}
	pace := r.pace // a look does not count
	limit, _ = pace.Next(broughtRows)
	sql := &r.store.sql
	q = &statement{}
	q.WriteString(`SELECT o.*, p.snapshot, p.last, coalesce(p.sequence, 0)::bigint, p.log::bigint, p.server
		FROM (` + sql.probe + ` OFFSET 0) p(snapshot, last, sequence, log, server) LEFT JOIN (SELECT ` + logged + ` FROM ` + r.store.names.Log() + ` o WHERE "offset" > ` + q.arg(floor) +
		` AND "offset" <= ` + q.arg(b.Last+nearOffsets) + ` AND (transaction_id >= ` + q.arg(b.Snapshot.xmax.String()) + `::xid8 AND "offset" > ` + q.arg(b.Bound) + ` OR transaction_id = ANY(` + q.arg(pq.Array(textsOf(b.Snapshot.running))) + `::xid8[]))`)
	r.wanted(q)
	q.WriteString(` AND ` + sql.notCancelled + ` ORDER BY "offset" LIMIT ` + strconv.Itoa(limit) + sql.whole + `) o ON true`)
	return q, limit
}
