package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// How much one page examines.
const (
	browseLook    = 12_000  // parked deliveries
	browseOffsets = 100_000 // of the log
)

// BrowseParked is Parked without the payloads, which it does not read. Each page examines at
// most 12,000 parked deliveries, so it may have fewer than limit, or none, although there are
// more.
func (a *Admin) BrowseParked(ctx context.Context, f Filter, after store.ParkedPlace, limit int) (store.ParkedPage, error) {
	filter, _, err := a.parse(ctx, f)
	if err != nil {
		return store.ParkedPage{}, err
	}
	return a.store.BrowseParked(ctx, store.ParkedQuery{Filter: filter, After: after, Look: browseLook, Limit: limit})
}

// ParkedCounts counts parked deliveries by sink and state, each up to store.ParkedLimit.
func (a *Admin) ParkedCounts(ctx context.Context) ([]store.ParkedCount, error) {
	figures, err := a.store.ParkedFigures(ctx)
	return store.ParkedCounts(figures), err
}

// LogFilter selects rows of the log. Each field that is set narrows the selection; the zero
// value selects all rows.
type LogFilter struct {
	// ID is the notification's id.
	ID string
	// Type is a type (order.placed), a prefix of types (order.*), or *.
	Type string
	Key  string
	// Since and Until select rows that occurred at Since or later, and before Until.
	Since, Until time.Time
}

// Validate reports all mistakes in the filter, as ErrFilter.
func (f LogFilter) Validate() error {
	_, err := f.query()
	return err
}

func (f LogFilter) query() (store.LogQuery, error) {
	types, err := parseType(f.Type)
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		err = errors.Join(err, fmt.Errorf("%w: since %s is not before until %s", ErrFilter, timeText(f.Since), timeText(f.Until)))
	}
	for _, text := range []string{f.ID, f.Key} {
		if problem := checkText(text); problem != nil {
			err = errors.Join(err, problem)
		}
	}
	return store.LogQuery{ID: f.ID, Types: types, Key: f.Key, Since: f.Since, Until: f.Until}, err
}

// Browse returns at most limit rows of the log that match the filter, newest first, without
// payloads, which it does not read. It begins before an offset, or at the end of the log if
// before is 0, and examines at most 100,000 offsets, so it may return fewer rows than limit, or
// none, although there are more. It fails with ErrFilter if the filter is not valid.
func (a *Admin) Browse(ctx context.Context, f LogFilter, before int64, limit int) (store.LogPage, error) {
	q, err := f.query()
	if err != nil {
		return store.LogPage{}, err
	}
	q.Before, q.Offsets, q.Limit = before, browseOffsets, limit
	return a.store.Browse(ctx, q)
}
