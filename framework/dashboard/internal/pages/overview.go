package pages

import (
	"context"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// sinkRow is a sink in the overview.
type sinkRow struct {
	store.SinkSample
	Pending, Dead int64
}

// overview is the first page.
func overview(ctx context.Context, r *request) (any, error) {
	sample, err := r.Store.Sample(ctx, store.SampleQuery{Types: r.types()})
	if err != nil {
		return nil, err
	}
	var page struct{ Sinks []sinkRow }
	for _, s := range sample.Sinks {
		row := sinkRow{SinkSample: s, Pending: int64(s.Pending)}
		for _, p := range s.Parked {
			if p.State == store.StateDead {
				row.Dead = int64(p.Count)
			}
		}
		page.Sinks = append(page.Sinks, row)
	}
	return page, nil
}

// types are those that go to each sink, as far as the routes are known.
func (r *request) types() map[string]notification.TypeFilter {
	if r.Routing.Routes == nil {
		return nil
	}
	types := r.Routing.Routes.Filters()
	types[store.SinkUnrouted] = r.Routing.Routes.Unrouted()
	return types
}
