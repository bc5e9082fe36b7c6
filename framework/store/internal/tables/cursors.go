package tables

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Cursor is how far a sink has settled one of its lanes.
type Cursor struct {
	store.CursorStatus // without pending rows
	StoreLane          store.Lane
	Position           json.RawMessage
	Ahead              []store.OffsetRange // settled after the position
	Place              Place
	Types, Wanted      *notification.TypeFilter // that the sink takes, and shall take
	Past               []Past                   // of the sink, in lane 0
}

// idle is the condition that a cursor is that of SinkUnrouted while every type has a route. It stands
// still, and keeps nothing.
func idle() Expr {
	return SQL(`(sink = ? AND coalesce(types, '') = ?)`, store.SinkUnrouted, EncodeTypes(&notification.TypeFilter{}))
}

// Cursors reads the cursors of a sink, or of all sinks that are not idle for "".
func (r *Runner) Cursors(ctx context.Context, q Querier, sink string) ([]Cursor, error) {
	return List(ctx, r, q, func(rows *sql.Rows, c *Cursor) error {
		var of int
		var settled string
		var types, wanted, past sql.NullString
		err := rows.Scan(&c.Sink, &c.Lane, &of, (*[]byte)(&c.Position), &settled, &c.Owner, &c.Epoch, r.Into(&c.LeaseUntil), &c.Paused, r.Into(&c.UpdatedAt), &types, &wanted, &past)
		if err != nil {
			return err
		}
		c.StoreLane = store.NewLane(c.Sink, c.Lane, of)
		if c.Ahead, err = store.DecodeOffsets(settled); err == nil {
			c.Types, err = DecodeTypes(types)
		}
		if err == nil {
			c.Wanted, err = DecodeTypes(wanted)
		}
		if err == nil && past.Valid {
			err = json.Unmarshal([]byte(past.String), &c.Past)
		}
		return err
	}, `SELECT sink, lane, lanes, position, settled, `+ownerNow+`, epoch, lease_until, paused, updated_at, types, types_wanted, types_before
		FROM {cursors} WHERE sink <> ? AND (sink = ? OR ? = '' AND NOT ?) ORDER BY sink, lane {whole cursors}`, store.SinkPruner, sink, sink, idle())
}

// Placed reads cursors and compares their positions with the log.
func (r *Runner) Placed(ctx context.Context, q Querier, sink string) ([]Cursor, error) {
	cursors, err := r.Cursors(ctx, q, sink)
	if err != nil || len(cursors) == 0 {
		return nil, err
	}
	positions := make([]json.RawMessage, len(cursors))
	for i := range cursors {
		positions[i] = cursors[i].Position
	}
	if r.Source != nil {
		return cursors, r.placeInSource(cursors)
	}
	places, err := r.Dialect.Places(ctx, q, positions)
	if err != nil {
		return nil, err
	}
	for i := range cursors {
		cursors[i].Place = places[i]
	}
	return cursors, nil
}

// PlacesOf returns the cursors of a sink, if they belong to this log.
func (r *Runner) PlacesOf(ctx context.Context, q Querier, sink string) ([]Cursor, error) {
	cursors, err := r.Placed(ctx, q, sink)
	if err == nil && len(cursors) == 0 {
		err = r.UnknownSink(ctx, q, sink)
	}
	for i := range cursors {
		if reason := cursors[i].Place.Conflict; reason != "" {
			return nil, fmt.Errorf("%w: %s", store.ErrOtherLog, reason)
		}
	}
	return cursors, err
}

// Settled is the condition that a row of the lane is settled.
func (r *Runner) Settled(c *Cursor) Expr {
	conditions := []Expr{SQL(`"offset" <= ?`, c.Place.Through)}
	if c.Place.Settled.Text != "" {
		conditions = append(conditions, c.Place.Settled)
	}
	if len(c.Ahead) > 0 {
		conditions = append(conditions, r.Dialect.Ranges(c.Ahead))
	}
	return SQL(`(?)`, Join(` OR `, conditions))
}

// SettledInAny is the condition that a row is settled in its lane.
func (r *Runner) SettledInAny(cursors []Cursor) Expr {
	conditions := make([]Expr, len(cursors))
	for i := range cursors {
		conditions[i] = r.Settled(&cursors[i])
		if slots := cursors[i].StoreLane.Slots; !slots.All() {
			conditions[i] = SQL(`{slot} BETWEEN ? AND ? AND ?`, slots.First, slots.Last, conditions[i])
		}
	}
	return SQL(`(?)`, Join(` OR `, conditions))
}

func (r *Runner) Traces(ctx context.Context, sink string) (store.Traces, error) {
	traces := store.Traces{Sink: sink}
	err := r.Row(ctx, r.DB, `SELECT (SELECT count(*) FROM {cursors} WHERE sink = ? AND sink <> ?),
			(SELECT count(*) FROM {parked} WHERE sink = ?), (SELECT count(*) FROM {receipts} WHERE sink = ?)
		{whole cursors parked receipts}`,
		sink, store.SinkPruner, sink, sink).Scan(&traces.Cursors, &traces.Parked, &traces.Receipts)
	return traces, err
}

// UnknownSink returns an error that names the known sinks. It does not search for sinks that have
// only receipts left.
func (r *Runner) UnknownSink(ctx context.Context, q Querier, sink string) error {
	known, err := Column[string](ctx, r, q, `SELECT sink FROM {cursors} WHERE sink <> ? UNION SELECT sink FROM {parked} ORDER BY sink {whole cursors parked}`, store.SinkPruner)
	switch {
	case err != nil:
		return err
	case len(known) == 0:
		return fmt.Errorf("%w %q: the outbox knows none yet", store.ErrUnknownSink, sink)
	}
	return fmt.Errorf("%w %q: the outbox knows %s", store.ErrUnknownSink, sink, strings.Join(known, ", "))
}

// Past is what a sink took until it was at a place: the rows that were settled there by then. With
// SinkUnrouted it is that of a sink that was forgotten.
type Past struct {
	Types    notification.TypeFilter `json:"types"`
	Slots    store.SlotRange         `json:"slots"`
	Position json.RawMessage         `json:"position,omitempty"`
	Settled  string                  `json:"settled,omitempty"`
	UpTo     int64                   `json:"up_to"` // no row that was settled has a higher offset

	Cursor Cursor // at the place
}

// ownerNow is the owner of an unexpired lease, or "".
const ownerNow = `CASE WHEN lease_until > {now} THEN coalesce(owner, '') ELSE '' END`

// EncodeTypes encodes a filter for a column; NULL for nil.
func EncodeTypes(f *notification.TypeFilter) sql.NullString {
	if f == nil {
		return sql.NullString{}
	}
	raw, err := json.Marshal(f)
	if err != nil {
		panic(err) // texts can always be encoded
	}
	return sql.NullString{String: string(raw), Valid: true}
}

// DecodeTypes is the inverse of EncodeTypes.
func DecodeTypes(text sql.NullString) (*notification.TypeFilter, error) {
	if !text.Valid {
		return nil, nil
	}
	f := &notification.TypeFilter{}
	return f, json.Unmarshal([]byte(text.String), f)
}

// SinksOf returns the cursors of each sink. They are ordered by sink.
func SinksOf(cursors []Cursor) func(yield func([]Cursor) bool) {
	return func(yield func([]Cursor) bool) {
		for first, i := 0, 0; i < len(cursors); i++ {
			if i+1 == len(cursors) || cursors[i+1].Sink != cursors[first].Sink {
				if !yield(cursors[first : i+1]) {
					return
				}
				first = i + 1
			}
		}
	}
}
