package api

import (
	"context"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

// pageRows is the default size of a page, and maxPageRows its limit.
const (
	pageRows    = 50
	maxPageRows = 500
)

// parkedPage is a page of matching deliveries. It may have fewer than the limit, even none,
// although more match, since the search for one page is limited.
type parkedPage struct {
	Parked []admin.ParkedView `json:"parked"`
	// Next is the cursor of the next page; "" if there is none.
	Next string `json:"next,omitempty"`
}

func parked(ctx context.Context, r *request) (any, error) {
	filter, err := r.filter()
	if err != nil {
		return nil, err
	}
	var place store.ParkedPlace
	if err := parseCursor(r.values.Get("cursor"), &place.Sink, &place.Offset, &place.ID); err != nil {
		return nil, err
	}
	limit, err := r.number("limit", pageRows, 1, maxPageRows)
	if err != nil {
		return nil, err
	}
	found, err := r.Admin.BrowseParked(ctx, filter, place, limit)
	page := parkedPage{Parked: views(found.Deliveries)}
	if found.Next != (store.ParkedPlace{}) {
		page.Next = cursor(found.Next.Sink, found.Next.Offset, found.Next.ID)
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
	filter, err := r.filter()
	if err != nil {
		return nil, err
	}
	counts, err := r.Admin.Count(ctx, filter)
	return map[string]any{"counts": append([]store.ParkedCount{}, counts...)}, err
}

func parkedCauses(ctx context.Context, r *request) (any, error) {
	filter, err := r.filter()
	if err != nil {
		return nil, err
	}
	return answered(r.Admin.Causes(ctx, filter))
}
