package tables

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/store"
)

// SinkProgress is how far one sink has settled the log, and so which rows it keeps.
type SinkProgress struct {
	Sink string
	// Places are the places of its cursors.
	Places []Place
	// Reason says why it keeps everything; otherwise "".
	Reason string

	positions []json.RawMessage // of its cursors
}

// Progress is how far all sinks have settled the log.
type Progress []SinkProgress

// Progress reads the cursors of each sink with cursors that are not idle, and of the given ones, and
// compares them with the log.
func (r *Runner) Progress(ctx context.Context, q Querier, sinks []string) (Progress, error) {
	all, err := r.sinkCursors(ctx, q, sinks)
	if err != nil {
		return nil, err
	}
	err = r.place(ctx, q, all)
	if !errors.Is(err, store.ErrPosition) {
		return all, err
	}
	for i := range all {
		err := r.place(ctx, q, all[i:i+1])
		if errors.Is(err, store.ErrPosition) {
			all[i].Reason = err.Error()
		} else if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// place compares positions with the log. A sink with a cursor of another log keeps everything.
func (r *Runner) place(ctx context.Context, q Querier, sinks Progress) error {
	var positions []json.RawMessage
	for i := range sinks {
		positions = append(positions, sinks[i].positions...)
	}
	places, err := r.Dialect.Places(ctx, q, positions)
	if err != nil {
		return err
	}
	for i := range sinks {
		s := &sinks[i]
		s.Places, places = places[:len(s.positions)], places[len(s.positions):]
		for _, p := range s.Places {
			if s.Reason == "" {
				s.Reason = p.Conflict
			}
		}
	}
	return nil
}

func (r *Runner) sinkCursors(ctx context.Context, q Querier, sinks []string) (all Progress, err error) {
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
			all = append(all, SinkProgress{Sink: sink})
		}
		s := &all[len(all)-1]
		s.positions = append(s.positions, position)
		if alike != of {
			s.Reason = fmt.Sprintf("%d of its %d lanes have a cursor", alike, of)
		}
		return nil
	}, `SELECT sink, lanes, position, ?, (SELECT count(*) FROM {cursors} same WHERE same.sink = c.sink AND same.lanes = c.lanes)
		FROM {cursors} c WHERE sink <> ? ORDER BY sink, lane {whole cursors}`, idle(), store.SinkPruner)
	for _, sink := range sinks {
		if !slices.ContainsFunc(all, func(s SinkProgress) bool { return s.Sink == sink }) {
			all = append(all, SinkProgress{Sink: sink, Reason: "it has no cursor yet"})
		}
	}
	return all, err
}

// KeepsAll reports whether any sink keeps everything. Without sinks it is unknown what is settled.
func (p Progress) KeepsAll() bool {
	return len(p) == 0 || slices.ContainsFunc(p, func(s SinkProgress) bool { return s.Reason != "" })
}

// maxPlaces limits how many conditions are evaluated for each row.
const maxPlaces = 64

// settled is the condition that all sinks have settled a row. Nearly all old rows are below the common
// bound, through. The places decide about the others: the last rows of a quiet log, and those around a
// transaction that stays open.
func (r *Runner) settled(p Progress) (condition Expr, through int64) {
	through = math.MaxInt64
	behind := []Expr{SQL(`true`)}
	distinct := make(map[string]bool)
	for _, sink := range p {
		for _, place := range sink.Places {
			through = min(through, place.Through)
			settled := r.Settled(&Cursor{Place: place})
			if name := fmt.Sprint(settled); !distinct[name] {
				distinct[name] = true
				behind = append(behind, settled)
			}
		}
	}
	if len(distinct) > maxPlaces {
		return SQL(`"offset" <= ?`, through), through
	}
	return SQL(`("offset" <= ? OR ?)`, through, Join(` AND `, behind)), through
}

// SettledByAll is the condition that all sinks have settled a row of the log; never, if one keeps everything.
func (r *Runner) SettledByAll(ctx context.Context) (Expr, error) {
	progress, err := r.Progress(ctx, r.DB, nil)
	if err != nil || progress.KeepsAll() {
		return SQL(`false`), err
	}
	settled, _ := r.settled(progress)
	return settled, nil
}

// Old is the condition that a row of the log is old enough.
func (r *Runner) Old(age time.Duration) Expr {
	d := r.Dialect
	return SQL(d.LogTime(`occurred_on`)+` < `+d.LogTime(`(SELECT ?)`), d.NowPlus(-age))
}

// Removable is the condition that a row of the log is old, and that all sinks have settled it.
func (r *Runner) Removable(age time.Duration, p Progress) Expr {
	settled, _ := r.settled(p)
	return SQL(`? AND ?`, r.Old(age), settled)
}

// LookForOld examines the next rows of a table of the log, and returns how many of them may be removed.
func (r *Runner) LookForOld(ctx context.Context, q Querier, table string, p store.Pruning, removable Expr) (pruned store.Pruned, may int, err error) {
	err = r.Row(ctx, q, `SELECT count(*), coalesce(max("offset"), ?), count(CASE WHEN removable THEN 1 END)
		FROM (SELECT "offset", ? AS removable FROM `+table+` WHERE "offset" > ? ORDER BY "offset" {limit} ?) looked`+r.Dialect.Whole([]string{table}),
		p.After, removable, p.After, p.Limit).Scan(&pruned.Looked, &pruned.Through, &may)
	return pruned, may, err
}

// RemoveOld removes the rows that LookForOld found.
func (r *Runner) RemoveOld(ctx context.Context, tx *sql.Tx, table string, p store.Pruning, removable Expr, pruned *store.Pruned) error {
	n, err := r.Exec(ctx, tx, `DELETE FROM `+table+` WHERE "offset" > ? AND "offset" <= ? AND ?`, p.After, pruned.Through, removable)
	pruned.Removed = int(n)
	return err
}

// Prune is store.Pruner.Prune for databases whose rows mean the same in every snapshot. It reads first, and
// locks rows only if there is something to remove. Then the log is used before the cursors are read again,
// so that it cannot be started again in between.
func (r *Runner) Prune(ctx context.Context, p store.Pruning) (store.Pruned, error) {
	nothing := store.Pruned{Through: p.After}
	if r.Source != nil {
		return nothing, nil
	}
	progress, err := r.Progress(ctx, r.DB, p.Sinks)
	if err != nil || progress.KeepsAll() {
		return nothing, err
	}
	log := r.named("log")
	pruned, may, err := r.LookForOld(ctx, r.DB, log, p, r.Removable(p.Age, progress))
	if err != nil || may == 0 {
		return pruned, err
	}
	return pruned, r.InTxOf(ctx, failpoint.Prune, []string{store.SinkPruner}, func(tx *sql.Tx) error {
		if _, err := r.Oldest(ctx, tx, p.After); err != nil {
			return err
		}
		now, err := r.Progress(ctx, tx, p.Sinks)
		if err != nil || now.KeepsAll() {
			return err
		}
		return r.RemoveOld(ctx, tx, log, p, r.Removable(p.Age, now), &pruned)
	})
}

// Kept is what sinks keep in the log.
type Kept struct {
	Holders []store.Holder
	Faults  map[string]string // by sink, why it keeps everything
}

// keptRows is how many rows after a sink's bound are searched for the first one that it has not settled.
const keptRows = 5000

// Kept returns what the sinks with cursors, and the given ones, keep.
func (r *Runner) Kept(ctx context.Context, q Querier, sinks []string) (k Kept, err error) {
	progress, err := r.Progress(ctx, q, sinks)
	if err != nil {
		return k, err
	}
	k.Faults = make(map[string]string)
	for _, s := range progress {
		if s.Reason != "" {
			k.Faults[s.Sink] = s.Reason
		}
		row, err := r.oldestKept(ctx, q, s)
		if err != nil {
			return k, err
		}
		if row != nil {
			k.Holders = append(k.Holders, store.Holder{Sink: s.Sink, Row: *row, Reason: s.Reason})
		}
	}
	return k, nil
}

// oldestKept returns the first row that a sink keeps, or nil.
func (r *Runner) oldestKept(ctx context.Context, q Querier, s SinkProgress) (*store.Row, error) {
	if s.Reason != "" {
		return r.Oldest(ctx, q, 0)
	}
	settled, through := r.settled(Progress{s})
	return r.ScanRow(r.Row(ctx, q, `SELECT "offset", occurred_on FROM (
			SELECT "offset", occurred_on, ? AS settled FROM {log} WHERE "offset" > ? ORDER BY "offset" {limit} ?) looked
		WHERE NOT settled ORDER BY "offset" LIMIT 1 {whole log}`, settled, through, keptRows))
}
