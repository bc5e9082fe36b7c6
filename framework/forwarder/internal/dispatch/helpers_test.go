package dispatch

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/internal/budget"
	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/forwarder/internal/presence"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
)

const memoryBytes = 1 << 20 // of an idle dispatcher

// idle returns a dispatcher without workers: only the test takes items.
func idle(t *testing.T) *Dispatcher {
	t.Helper()
	routes, err := route.New(route.Routes{"*": route.To("mail")}, []string{"mail"}, nil)
	require.NoError(t, err)
	return New(Config{Sink: "mail", Caller: &caller.Caller{Path: routes.To("mail")}, Budget: budget.New(memoryBytes),
		Logger: slog.New(slog.DiscardHandler), Settings: policy.Settings{Breaker: settings.Breaker{}.WithDefaults()}})
}

// join starts the work on one of the sink's two lanes.
func join(d *Dispatcher, lane int, epoch int64) *Lane {
	return d.Join(context.Background(), store.Lease{Lane: store.NewLane("mail", lane, 2), Owner: "o", Epoch: epoch}, time.Now(), time.Minute, presence.Term{})
}

// next takes the next item, as a worker does.
func next(t *testing.T, d *Dispatcher) *item {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	from, ok := d.queue.Next(16)
	require.True(t, ok)
	it := d.queue.Pop(from)
	d.queue.Done(it)
	return it
}
