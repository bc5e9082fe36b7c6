package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// How much one page looks through.
const (
	browseLook    = 50_000  // parked deliveries
	browseOffsets = 100_000 // of the log
)

// BrowseParked is Parked without the payloads, which are not read, in pages that each look
// through fifty thousand parked deliveries at most, so that a page may have fewer than limit, or
// none, while there are more.
func (a *Admin) BrowseParked(ctx context.Context, f Filter, after store.ParkedPlace, limit int) (store.ParkedPage, error) {
	filter, err := f.parse()
	if err != nil {
		return store.ParkedPage{}, err
	}
	return a.store.BrowseParked(ctx, store.ParkedQuery{Filter: filter, After: after, Look: browseLook, Limit: limit})
}

// ParkedCounts counts what is parked by sink and state, up to store.PendingLimit of each.
func (a *Admin) ParkedCounts(ctx context.Context) ([]store.ParkedCount, error) {
	return a.store.ParkedCounts(ctx)
}

// LogFilter selects rows of the log. Each field that is set leaves out some; the zero value
// matches all.
type LogFilter struct {
	// ID is the notification's.
	ID string
	// Type is a type (order.placed), the beginning of types (order.*), or *.
	Type string
	Key  string
	// Since and Until bound when a row occurred: from Since on and before Until.
	Since, Until time.Time
}

// Browse lists at most limit rows of the log that match, the newest first, without their
// payloads, which are not read. It begins before an offset, or with 0 at the end of the log, and looks
// through a hundred thousand offsets at most, so that a page may have fewer rows than limit, or
// none, while there are more. ErrFilter if the filter makes no sense.
func (a *Admin) Browse(ctx context.Context, f LogFilter, before int64, limit int) (store.LogPage, error) {
	types, err := parseType(f.Type)
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		err = errors.Join(err, fmt.Errorf("%w: no time is since %s and before %s", ErrFilter, timeText(f.Since), timeText(f.Until)))
	}
	if err != nil {
		return store.LogPage{}, err
	}
	return a.store.Browse(ctx, store.LogQuery{
		ID: f.ID, Types: types, Key: f.Key, Since: f.Since, Until: f.Until,
		Before: before, Offsets: browseOffsets, Limit: limit,
	})
}
