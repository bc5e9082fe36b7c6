package dispatch

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/tracing"
	"github.com/waybill-go/waybill/sinks"
)

// idleCall returns a dispatcher without workers, and a call of one delivery whose sink does nothing.
func idleCall(t testing.TB, deliveries *tracing.Deliveries) (*Dispatcher, *call) {
	t.Helper()
	routes, err := route.New(route.Routes{"*": route.To("sink")}, []string{"sink"}, nil)
	require.NoError(t, err)
	d := &Dispatcher{name: "sink", tracing: deliveries, caller: &caller.Caller{
		Path:    routes.To("sink"),
		Deliver: func(context.Context, *notification.Delivery) (notification.Receipt, error) { return "", nil },
	}}
	metadata := notification.Metadata{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	return d, &call{
		ctx: t.Context(), began: time.Now(), results: make([]sinks.Result, 0, 1),
		items:      []*item{{}},
		deliveries: []*notification.Delivery{{Envelope: &notification.Envelope{ID: "a", Type: "t", Metadata: metadata}, Attempt: 1}},
	}
}

func (w *call) again() { w.results, w.span = w.results[:0], nil }

func TestWithoutTracingADeliveryAllocatesNothing(t *testing.T) { // not parallel: AllocsPerRun counts allocations of all goroutines
	d, worker := idleCall(t, nil)
	direct := testing.AllocsPerRun(100, func() {
		worker.again()
		worker.results = d.caller.Call(worker.ctx, d.caller.Batcher, worker.deliveries, worker.follows, worker.results, nil)
	})
	require.Equal(t, direct, testing.AllocsPerRun(100, func() {
		worker.again()
		d.makeCall(worker)
	}))
}

// BenchmarkDeliver compares the cost of a delivery without its sink: without tracing, without a
// provider, and with spans that are dropped or kept.
func BenchmarkDeliver(b *testing.B) {
	b.Run("direct", func(b *testing.B) {
		d, worker := idleCall(b, nil)
		b.ReportAllocs()
		for b.Loop() {
			worker.again()
			worker.results = d.caller.Call(worker.ctx, d.caller.Batcher, worker.deliveries, worker.follows, worker.results, nil)
		}
	})
	for name, deliveries := range map[string]*tracing.Deliveries{
		"off":       nil,
		"hidden":    tracing.NewDeliveries(nil, "sink", true),
		"unsampled": tracing.NewDeliveries(sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample())), "sink", false),
		"sampled":   tracing.NewDeliveries(sdk.NewTracerProvider(), "sink", false),
	} {
		b.Run(name, func(b *testing.B) {
			d, worker := idleCall(b, deliveries)
			b.ReportAllocs()
			for b.Loop() {
				worker.again()
				d.makeCall(worker)
			}
		})
	}
}
