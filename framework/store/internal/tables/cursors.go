package tables

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// cursor is how far a sink has settled one of its lanes.
type cursor struct {
	store.CursorStatus // without pending rows
	lane               store.Lane
	position           json.RawMessage
	ahead              []store.OffsetRange // settled after the position
	place              Place
	types, wanted      *notification.TypeFilter // that the sink takes, and shall take
	past               []past                   // of the sink, in lane 0
}

// idle is the condition that a cursor is that of SinkUnrouted while every type has a route. It stands
// still, and keeps nothing.
func idle() Expr {
	return SQL(`(sink = ? AND coalesce(types, '') = ?)`, store.SinkUnrouted, encodeTypes(&notification.TypeFilter{}))
}

// cursors reads the cursors of a sink, or of all sinks that are not idle for "".
func (t *Tables) cursors(ctx context.Context, q Querier, sink string) (cursors []cursor, err error) {
	err = t.run.Each(ctx, q, func(rows *sql.Rows) error {
		var c cursor
		var of int
		var settled string
		var types, wanted, past sql.NullString
		until, updated := t.run.time(), t.run.time()
		err := rows.Scan(&c.Sink, &c.Lane, &of, (*[]byte)(&c.position), &settled, &c.Owner, &c.Epoch, &until, &c.Paused, &updated, &types, &wanted, &past)
		if err != nil {
			return err
		}
		c.lane, c.LeaseUntil, c.UpdatedAt = store.NewLane(c.Sink, c.Lane, of), until.Time, updated.Time
		if c.ahead, err = store.DecodeOffsets(settled); err == nil {
			c.types, err = decodeTypes(types)
		}
		if err == nil {
			c.wanted, err = decodeTypes(wanted)
		}
		if err == nil && past.Valid {
			err = json.Unmarshal([]byte(past.String), &c.past)
		}
		cursors = append(cursors, c)
		return err
	}, `SELECT sink, lane, lanes, position, settled, `+ownerNow+`, epoch, lease_until, paused, updated_at, types, types_wanted, types_before
		FROM {cursors} WHERE sink <> ? AND (sink = ? OR ? = '' AND NOT ?) ORDER BY sink, lane {whole cursors}`, store.SinkPruner, sink, sink, idle())
	return cursors, err
}

// placed reads cursors and compares their positions with the log.
func (t *Tables) placed(ctx context.Context, q Querier, sink string) ([]cursor, error) {
	cursors, err := t.cursors(ctx, q, sink)
	if err != nil || len(cursors) == 0 {
		return nil, err
	}
	positions := make([]json.RawMessage, len(cursors))
	for i := range cursors {
		positions[i] = cursors[i].position
	}
	if t.source != nil {
		return cursors, t.placeInSource(cursors)
	}
	places, err := t.dialect.Places(ctx, q, positions)
	if err != nil {
		return nil, err
	}
	for i := range cursors {
		cursors[i].place = places[i]
	}
	return cursors, nil
}

// placesOf returns the cursors of a sink, if they belong to this log.
func (t *Tables) placesOf(ctx context.Context, q Querier, sink string) ([]cursor, error) {
	cursors, err := t.placed(ctx, q, sink)
	if err == nil && len(cursors) == 0 {
		err = t.unknownSink(ctx, q, sink)
	}
	for i := range cursors {
		if reason := cursors[i].place.Conflict; reason != "" {
			return nil, fmt.Errorf("%w: %s", store.ErrOtherLog, reason)
		}
	}
	return cursors, err
}

// settled is the condition that a row of the lane is settled.
func (t *Tables) settled(c *cursor) Expr {
	conditions := []Expr{SQL(`"offset" <= ?`, c.place.Through)}
	if c.place.Settled.Text != "" {
		conditions = append(conditions, c.place.Settled)
	}
	if len(c.ahead) > 0 {
		conditions = append(conditions, t.dialect.Ranges(c.ahead))
	}
	return SQL(`(?)`, join(` OR `, conditions))
}

// settledInAny is the condition that a row is settled in its lane.
func (t *Tables) settledInAny(cursors []cursor) Expr {
	conditions := make([]Expr, len(cursors))
	for i := range cursors {
		conditions[i] = t.settled(&cursors[i])
		if slots := cursors[i].lane.Slots; !slots.All() {
			conditions[i] = SQL(`slot BETWEEN ? AND ? AND ?`, slots.First, slots.Last, conditions[i])
		}
	}
	return SQL(`(?)`, join(` OR `, conditions))
}

// Status reports the log, the cursors and the parked deliveries; see store.Inspector.
func (t *Tables) Status(ctx context.Context, q store.StatusQuery) (status store.Status, err error) {
	sample, err := t.sample(ctx, store.SampleQuery(q))
	if err != nil {
		return status, t.failed(err, "look at the outbox")
	}
	holders, err := t.Holders(ctx, nil)
	return sample.Status(holders), err
}

// SinkCursors are the cursors of one sink, which decide which rows it keeps in the log.
type SinkCursors struct {
	Sink string
	// Positions are the positions of its cursors.
	Positions []json.RawMessage
	// Reason says why it keeps everything; otherwise "".
	Reason string
}

// SinkCursors returns the cursors of each sink with cursors that are not idle, and of the given ones.
func (r *Runner) SinkCursors(ctx context.Context, q Querier, sinks []string) (all []SinkCursors, err error) {
	err = r.Each(ctx, q, func(rows *sql.Rows) error {
		var sink string
		var of, alike int
		var isIdle bool
		var position json.RawMessage
		if err := rows.Scan(&sink, &of, (*[]byte)(&position), &isIdle, &alike); err != nil {
			return err
		}
		if isIdle {
			sinks = slices.DeleteFunc(slices.Clone(sinks), func(s string) bool { return s == sink })
			return nil
		}
		if n := len(all); n == 0 || all[n-1].Sink != sink {
			all = append(all, SinkCursors{Sink: sink})
		}
		c := &all[len(all)-1]
		c.Positions = append(c.Positions, position)
		if alike != of {
			c.Reason = fmt.Sprintf("%d of its %d lanes have a cursor", alike, of)
		}
		return nil
	}, `SELECT sink, lanes, position, ?, (SELECT count(*) FROM {cursors} same WHERE same.sink = c.sink AND same.lanes = c.lanes)
		FROM {cursors} c WHERE sink <> ? ORDER BY sink, lane {whole cursors}`, idle(), store.SinkPruner)
	for _, sink := range sinks {
		if !slices.ContainsFunc(all, func(c SinkCursors) bool { return c.Sink == sink }) {
			all = append(all, SinkCursors{Sink: sink, Reason: "it has no cursor yet"})
		}
	}
	return all, err
}
