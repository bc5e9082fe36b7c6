package tables

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/store"
)

// Cut creates a sink's cursors, or stores the wanted number of lanes; see store.Leases. If another
// process creates or replaces cursors between its statements, it starts over.
func (t *Tables) Cut(ctx context.Context, sink string, lanes int, start store.Start) (store.Created, error) {
	if err := start.Validate(); err != nil {
		return store.Created{}, fmt.Errorf("cut the lanes of sink %s: %w", sink, err)
	}
	for {
		var created store.Created
		done, err := t.cut(ctx, sink, lanes, start, &created)
		switch {
		case err != nil && t.run.Dialect.Collides(err):
		case err != nil:
			return store.Created{}, t.run.Failed(err, "cut the lanes of sink %s", sink)
		case done:
			return created, nil
		}
	}
}

// cut locks no table: behind a lock that waits for one cursor, the checkpoints of all others would
// wait too.
func (t *Tables) cut(ctx context.Context, sink string, lanes int, start store.Start, created *store.Created) (done bool, err error) {
	if t.run.Source != nil && sink != store.SinkPruner {
		return t.grow(ctx, sink, start, created)
	}
	exist, same := false, true
	err = t.run.Each(ctx, t.run.Own(), func(rows *sql.Rows) error {
		var of, wanted int
		err := rows.Scan(&of, &wanted)
		exist, same = true, same && (wanted == lanes || wanted == 0 && of == lanes)
		return err
	}, `SELECT DISTINCT lanes, coalesce(wanted, 0) FROM {cursors} WHERE sink = ? {whole cursors}`, sink)
	switch {
	case err != nil:
		return false, err
	case !exist:
		return t.create(ctx, sink, lanes, start, created)
	case same:
		return true, nil
	}
	written, err := t.run.Write(ctx, failpoint.WantLanes, `UPDATE {cursors} SET wanted = nullif(?, lanes) WHERE sink = ?`, lanes, sink)
	return written > 0, err
}

// create creates the cursors of a sink that has none. If several processes do so at once, only one
// of them creates the cursor of the first lane, which every sink has, and then the others.
func (t *Tables) create(ctx context.Context, sink string, lanes int, start store.Start, created *store.Created) (done bool, err error) {
	start, at, err := t.beginning(ctx, sink, start)
	if err != nil {
		return false, err
	}
	err = inTx(ctx, t.run.Own(), failpoint.Create, func(tx *sql.Tx) error {
		first, err := t.run.InsertNew(ctx, tx, []string{"sink", "lane"}, `INSERT INTO {cursors} (sink, lane, lanes, position) VALUES (?, 0, ?, ?)`,
			sink, lanes, NullText(at.Position))
		if err != nil || !first {
			return err
		}
		if at.Holds != nil {
			if err := at.Holds(ctx, tx); err != nil {
				return err
			}
		}
		done = true
		return t.insertCursors(ctx, tx, sink, cursorToCut{position: at.Position}, 1, lanes)
	})
	if err != nil || !done {
		return false, err
	}
	*created = store.Created{Lanes: lanes, Start: start, Passed: at.Passed}
	return true, nil
}

// beginning returns where the cursors of a sink begin.
func (t *Tables) beginning(ctx context.Context, sink string, start store.Start) (store.Start, Beginning, error) {
	if start == "" && sink != store.SinkPruner {
		var err error
		if start, err = t.defaultStart(ctx); err != nil {
			return start, Beginning{}, err
		}
	}
	since, isTime := start.Time()
	if start != store.StartNow && !isTime {
		return store.StartOldest, Beginning{}, nil
	}
	at, err := t.run.Dialect.Beginning(ctx, since)
	return start, at, err
}

// defaultStart is the start of a new sink for which none is given; see store.Leases.
func (t *Tables) defaultStart(ctx context.Context) (store.Start, error) {
	used, err := t.inUse(ctx)
	if used {
		return store.StartNow, err
	}
	return store.StartOldest, err
}

// forwarded is the position of the pruner's cursor after a sink that had been forwarded to was
// forgotten.
const forwarded = `{"forwarded":true}`

// inUse reports whether a lane of any sink was ever leased, including forgotten sinks.
func (t *Tables) inUse(ctx context.Context) (used bool, err error) {
	err = t.run.Row(ctx, t.run.Own(), `SELECT EXISTS (SELECT 1 FROM {cursors}
		WHERE sink <> ? AND epoch > 0 OR sink = ? AND position IS NOT NULL) {whole cursors}`, store.SinkPruner, store.SinkPruner).Scan(&used)
	return used, err
}

// NoteUse stores what inUse knows from the cursors of a sink that is about to be forgotten.
func (r *Runner) NoteUse(ctx context.Context, tx *sql.Tx, sink string) error {
	var leased bool
	err := r.Row(ctx, tx, `SELECT EXISTS (SELECT 1 FROM {cursors} WHERE sink = ? AND epoch > 0)`, sink).Scan(&leased)
	if err != nil || !leased {
		return err
	}
	_, err = r.Exec(ctx, tx, `INSERT INTO {cursors} (sink, lane, lanes, position) VALUES (?, 0, 1, ?)`+
		r.Dialect.OnConflict([]string{"sink", "lane"}, []string{"position"}, Condition{}), store.SinkPruner, forwarded)
	return err
}

// insertCursors creates the cursors of the lanes from first on, all alike.
func (t *Tables) insertCursors(ctx context.Context, tx *sql.Tx, sink string, like cursorToCut, first, lanes int) error {
	var values []Expr
	for number := first; number < lanes; number++ {
		values = append(values, list(sink, number, lanes, like.epoch, NullText(like.position), like.paused, like.types, like.typesWanted, like.typesBefore))
		like.typesBefore = sql.NullString{} // only in lane 0
	}
	size := func(*Expr) int {
		return len(like.position) + len(like.types.String) + len(like.typesWanted.String) + rowBytes
	}
	for chunk := range store.Chunks(values, chunkRows, t.run.Dialect.Limits().Bytes, size) {
		if _, err := t.run.Exec(ctx, tx, `INSERT INTO {cursors} (sink, lane, lanes, epoch, position, paused, types, types_wanted, types_before) VALUES ?`, Join(", ", chunk)); err != nil {
			return err
		}
	}
	return nil
}

// NullText returns a text for a nullable column.
func NullText(raw json.RawMessage) sql.NullString {
	return sql.NullString{String: string(raw), Valid: len(raw) > 0}
}

// Recut replaces the lanes of a sink; see store.Leases.
func (t *Tables) Recut(ctx context.Context, sink string, leases []store.Lease) (err error) {
	defer t.run.Tried(&err, "cut the lanes of sink %s again", sink)
	err = t.run.InTxOf(ctx, failpoint.Recut, []string{sink}, func(tx *sql.Tx) error { return t.recut(ctx, tx, sink, leases) })
	return err
}

func (t *Tables) recut(ctx context.Context, tx *sql.Tx, sink string, leases []store.Lease) error {
	cursors, err := t.cursorsToCut(ctx, tx, sink)
	if err != nil {
		return err
	}
	if err := checkRecut(cursors, leases); err != nil {
		return err
	}
	positions := make([]json.RawMessage, len(cursors))
	epoch := int64(0)
	for i, c := range cursors {
		positions[i] = c.position
		epoch = max(epoch, c.epoch)
	}
	at, err := t.run.Dialect.Level(positions)
	if err != nil {
		return err
	}
	if _, err := t.run.Exec(ctx, tx, `DELETE FROM {cursors} WHERE sink = ?`, sink); err != nil {
		return err
	}
	// The epoch goes on, so that no earlier lease is valid for a new lane.
	like := cursors[0]
	like.epoch, like.position = epoch, at
	return t.insertCursors(ctx, tx, sink, like, 0, like.wanted)
}

// cursorToCut is a row of the cursors, with what recut needs.
type cursorToCut struct {
	lane, wanted int
	owner        string
	epoch        int64
	position     json.RawMessage // empty: before the oldest row
	settled      string
	paused       bool

	types, typesWanted, typesBefore sql.NullString
}

func (t *Tables) cursorsToCut(ctx context.Context, tx *sql.Tx, sink string) ([]cursorToCut, error) {
	return List(ctx, t.run, tx, func(rows *sql.Rows, c *cursorToCut) error {
		return rows.Scan(&c.lane, &c.wanted, &c.owner, &c.epoch, (*[]byte)(&c.position), &c.settled, &c.paused, &c.types, &c.typesWanted, &c.typesBefore)
	}, `SELECT lane, coalesce(wanted, 0), coalesce(owner, ''), epoch, position, settled, paused, types, types_wanted, types_before FROM {cursors} WHERE sink = ? ORDER BY lane`, sink)
}

// checkRecut returns why the holder of the leases cannot replace the cursors, which are all cursors
// of a sink: ErrLeaseLost, ErrNotLevel, or ErrLanes if no other number is wanted. The dialect
// compares their positions.
func checkRecut(cursors []cursorToCut, leases []store.Lease) error {
	if len(cursors) == 0 || cursors[0].wanted == 0 {
		return fmt.Errorf("%w: no other number of lanes is wanted", store.ErrLanes)
	}
	if len(cursors) != len(leases) {
		return store.ErrLeaseLost
	}
	held := make(map[int]store.Lease, len(leases))
	for _, l := range leases {
		held[l.Lane.Number] = l
	}
	for _, c := range cursors {
		l, ok := held[c.lane]
		switch {
		case !ok || l.Owner != c.owner || l.Epoch != c.epoch:
			return store.ErrLeaseLost
		case c.settled != "":
			return fmt.Errorf("%w: lane %d has settled %s ahead", store.ErrNotLevel, c.lane, c.settled)
		}
	}
	return nil
}
