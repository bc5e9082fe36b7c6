package api

import (
	"context"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

// The size of a page.
const (
	pageRows    = 50
	maxPageRows = 500
)

// parkedPage is a part of what matches.
type parkedPage struct {
	Parked []admin.ParkedView `json:"parked"`
	// Next is the cursor of the next part; "" if there is none.
	Next string `json:"next,omitempty"`
}

func parked(ctx context.Context, r *request) (any, error) {
	values, err := r.query(append([]string{"cursor", "limit"}, filterNames...)...)
	if err != nil {
		return nil, err
	}
	filter, err := filterOf(values)
	if err != nil {
		return nil, err
	}
	place, err := placeOf(values.Get("cursor"))
	if err != nil {
		return nil, err
	}
	limit, err := number(values, "limit", pageRows, 1, maxPageRows)
	if err != nil {
		return nil, err
	}
	found, err := r.Admin.Parked(ctx, filter, place, limit)
	if err != nil {
		return nil, err
	}
	page := parkedPage{Parked: views(found)}
	if len(found) == 0 {
		return page, nil
	}
	place = found[len(found)-1].Place()
	more, err := r.Admin.Parked(ctx, filter, place, 1) // large payloads may have ended the page
	if len(more) > 0 {
		page.Next = cursor(place)
	}
	return page, err
}

func views(found []store.ParkedDelivery) []admin.ParkedView {
	views := make([]admin.ParkedView, len(found))
	for i := range found {
		views[i] = admin.ViewOf(&found[i])
	}
	return views
}

func parkedCounts(ctx context.Context, r *request) (any, error) {
	values, err := r.query(filterNames...)
	if err != nil {
		return nil, err
	}
	filter, err := filterOf(values)
	if err != nil {
		return nil, err
	}
	counts, err := r.Admin.Count(ctx, filter)
	return map[string]any{"counts": append([]store.ParkedCount{}, counts...)}, err
}
