package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/internal/budget"
	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/forwarder/internal/presence"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// BenchmarkDispatchByKey adds a page, schedules its items, settles each and takes the outcome:
// the engine's part of a delivery, without sink and database.
func BenchmarkDispatchByKey(b *testing.B) {
	const rows, slots = 1000, 256
	routes, err := route.New(route.Routes{"*": route.To("nowhere")}, []string{"nowhere"}, nil)
	require.NoError(b, err)
	for _, keys := range []int{0, 1, 100, rows} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			d := New(Config{
				Sink: "nowhere", Caller: &caller.Caller{Path: routes.To("nowhere")}, Budget: budget.New(1 << 30), Logger: slog.New(slog.DiscardHandler),
				Settings: policy.Settings{
					Parallelism: settings.Parallelism{Threshold: slots}.WithDefaults(),
					Breaker:     settings.Breaker{}.WithDefaults(), Retry: settings.Retry{}.WithDefaults(), Timeout: time.Minute,
				},
			})
			d.workers = make([]*call, slots) // no worker is started, so only the benchmark takes items
			d.watch.at = time.Now()          // set, so that it is not set again
			l := d.Join(context.Background(), store.Lease{Lane: store.NewLane("nowhere", 0, 1)}, time.Now(), time.Hour, presence.Term{})
			envelopes := make([]notification.Envelope, rows)
			for i := range envelopes {
				envelopes[i] = notification.Envelope{Offset: int64(i + 1)}
				if keys > 0 {
					envelopes[i].Key = fmt.Sprint("k", i%keys)
				}
			}
			worker := &call{}
			b.ReportAllocs()
			for b.Loop() {
				l.Add(store.Page{Envelopes: envelopes})
				d.mu.Lock()
				for d.fill(worker, time.Now()) {
					worker.results = append(worker.results, sinks.Result{})
					d.calls--
					d.judge(worker, time.Now())
					worker.reset()
				}
				d.mu.Unlock()
				out := l.Take(nil)
				if len(out.Settled) != rows {
					b.Fatalf("%d of %d items had their turn", len(out.Settled), rows)
				}
				l.Written(out.Settled, nil)
			}
			require.Zero(b, d.Stats().Pending)
			b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "items/s")
		})
	}
}
