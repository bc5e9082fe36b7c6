package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/waybill-go/waybill/framework/store"
)

// LogRow is a row of the log, and where it is at each sink.
type LogRow struct {
	RowView
	// Verdicts are as in an Answer. Conditions that read a payload are not evaluated, and rows before it are
	// not counted.
	Verdicts []Verdict `json:"sinks"`
}

// LogPage is a page of rows of the log.
type LogPage struct {
	// Rows are the rows found, newest first.
	Rows []LogRow `json:"rows"`
	// Searched is the oldest row that was examined; nil if there was none.
	Searched *store.Row `json:"searched"`
	// Next is the offset before which to continue; 0: there is nothing more.
	Next int64 `json:"next,omitempty"`
}

// Log is Browse, and says where each row is at each sink. Ask for at most a thousand rows. It fails with ErrFilter if
// the log is a source outside the database.
func (a *Admin) Log(ctx context.Context, f LogFilter, before int64, limit int, routing Routing) (LogPage, error) {
	if source := store.SourceOf(a.store); source != nil {
		return LogPage{}, fmt.Errorf("%w: the log is %s, whose records are not listed: use its own tools, or waybill parked list", ErrFilter, source.Name())
	}
	page, err := a.Browse(ctx, f, before, limit)
	if err != nil {
		return LogPage{}, err
	}
	found := LogPage{Rows: make([]LogRow, len(page.Rows)), Searched: page.Last, Next: page.Next}
	if len(page.Rows) == 0 {
		return found, nil
	}
	traces, err := a.store.TraceRows(ctx, page.Rows)
	if err != nil {
		return LogPage{}, err
	}
	w, err := a.inquire(ctx, routing)
	if err != nil {
		return LogPage{}, err
	}
	w.uncounted = true
	for i := range page.Rows {
		w.trace = traces[i]
		answer, err := w.answer(ctx, page.Rows[i].ID)
		if err != nil {
			return LogPage{}, err
		}
		found.Rows[i] = LogRow{ViewOfRow(&page.Rows[i]), answer.Verdicts}
	}
	return found, nil
}

// WhyKey reads at most keyPages pages of keyParked parked deliveries of one key, sink and kind of state, from the oldest on,
// and keeps the newest keyParked ones.
const (
	keyParked = 500
	keyPages  = 20
)

// keyStates are the states in which indexes find parked deliveries by key: those of the first list by sink and key,
// scheduled ones by key.
var keyStates = [][]store.State{{store.StateRetrying, store.StateBlocked, store.StateQuiet, store.StateDead}, {store.StateScheduled}}

// KeyAnswer says where notifications of a key are.
type KeyAnswer struct {
	Key string `json:"key"`
	// Answers are about the notifications found, newest first.
	Answers []Answer `json:"notifications"`
	// Source is the name of a source outside the database, whose records are not searched; "" if the log is in
	// the database.
	Source string `json:"source,omitempty"`
	// Searched is the oldest row of the log that was examined; nil if there was none.
	Searched *store.Row `json:"searched,omitempty"`
	// Next is the offset before which to continue; 0: there is nothing more.
	Next int64 `json:"next,omitempty"`
}

// WhyKey is Why for the notifications of f.Key, newest first, limit at most. It finds them in the part of the log
// that Browse examines, which no index supports, and by an index among parked deliveries that are retrying, blocked,
// quiet, dead or scheduled.
func (a *Admin) WhyKey(ctx context.Context, f LogFilter, before int64, limit int, routing Routing) (KeyAnswer, error) {
	if f.Key == "" {
		return KeyAnswer{}, fmt.Errorf("%w: the key is empty", ErrFilter)
	}
	found := KeyAnswer{Key: f.Key, Answers: []Answer{}}
	var page store.LogPage
	var err error
	if source := store.SourceOf(a.store); source != nil {
		found.Source = source.Name()
	} else if page, err = a.Browse(ctx, f, before, limit); err != nil {
		return found, err
	}
	var refs []store.Ref
	for i := range page.Rows {
		refs = append(refs, store.RefOf(&page.Rows[i]))
	}
	parked, err := a.parkedOf(ctx, f, before)
	if err != nil {
		return found, err
	}
	for _, ref := range parked { // all are in the first answer, and later ones among the rows of their time
		if before == 0 || ref.Offset >= page.Next {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, func(a, b store.Ref) int { return cmp.Or(cmp.Compare(b.Offset, a.Offset), cmp.Compare(a.ID, b.ID)) })
	refs = slices.Compact(refs)
	found.Searched, found.Next = page.Last, page.Next
	if len(refs) > limit {
		refs = refs[:limit]
		found.Next = refs[limit-1].Offset
	}
	for _, ref := range refs {
		answer, _, lookErr := a.Look(ctx, store.TraceQuery{ID: ref.ID, Offset: ref.Offset}, routing)
		found.Answers, err = append(found.Answers, answer), errors.Join(err, lookErr)
	}
	return found, err
}

// parkedOf returns the last parked deliveries of a key and type before an offset, unless that is 0.
func (a *Admin) parkedOf(ctx context.Context, f LogFilter, before int64) (parked []store.Ref, err error) {
	sinks, err := a.Sinks(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range sinks {
		for _, states := range keyStates {
			var last []store.Ref
			var after store.ParkedPlace
			for range keyPages {
				some, err := a.Parked(ctx, Filter{Sink: s.Sink, Key: f.Key, Type: f.Type, States: states}, after, keyParked)
				if err != nil {
					return nil, err
				}
				for i := range some {
					if after = some[i].Place(); before == 0 || after.Offset < before {
						last = append(last, after.Ref)
					}
				}
				if last = last[max(0, len(last)-keyParked):]; len(some) == 0 || before > 0 && after.Offset >= before {
					break
				}
			}
			parked = append(parked, last...)
		}
	}
	return parked, nil
}
