package api

import (
	"context"
	"strconv"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

// logPage is a page of matching rows, the newest first. It may have fewer rows than the limit, even
// none, although more rows match, since the search for one page is limited.
type logPage struct {
	Rows []admin.RowView `json:"rows"`
	// Searched is the oldest row that the search has reached; nil if there was none.
	Searched *store.Row `json:"searched"`
	// Next is the cursor of the next page; "" if there is none.
	Next string `json:"next,omitempty"`
}

func logged(ctx context.Context, r *request) (any, error) {
	var err error
	filter := admin.LogFilter{ID: r.values.Get("id"), Type: r.values.Get("type"), Key: r.values.Get("key")}
	if filter.Since, err = r.moment("since"); err != nil {
		return nil, err
	}
	if filter.Until, err = r.moment("until"); err != nil {
		return nil, err
	}
	before, err := r.offset("cursor")
	if err != nil {
		return nil, err
	}
	limit, err := r.number("limit", pageRows, 1, maxPageRows)
	if err != nil {
		return nil, err
	}
	found, err := r.Admin.Browse(ctx, filter, before, limit)
	page := logPage{Rows: make([]admin.RowView, len(found.Rows)), Searched: found.Last}
	for i := range found.Rows {
		page.Rows[i] = admin.ViewOfRow(&found.Rows[i])
	}
	if found.Next > 0 {
		page.Next = strconv.FormatInt(found.Next, 10)
	}
	return page, err
}
