package forwarder

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// BenchmarkDispatchByKey gives a page of items their turns, and lets each go and be
// settled: what the engine adds to a delivery, without sink and database.
func BenchmarkDispatchByKey(b *testing.B) {
	const rows, slots = 1000, 256
	for _, keys := range []int{0, 1, 100, rows} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			sink := Sink{Sink: sinks.Func(nil)}.WithDefaults()
			sink.Parallelism.Threshold = 0 // no workers: nobody else takes the items
			c := newCourier("nowhere", sink, nil, slog.New(slog.DiscardHandler))
			l := &lane{courier: c, keys: make(map[string]*keyState)}
			envelopes := make([]notification.Envelope, rows)
			for i := range envelopes {
				envelopes[i] = notification.Envelope{Offset: int64(i + 1)}
				if keys > 0 {
					envelopes[i].Key = fmt.Sprint("k", i%keys)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				p := &page{}
				items := make([]item, rows)
				c.mu.Lock()
				for i := range items {
					items[i] = item{Delivery: notification.Delivery{Envelope: &envelopes[i], Sink: "nowhere", Attempt: 1}, lane: l, page: p, index: i}
					l.enqueue(&items[i])
				}
				settled := 0
				for from, ok := c.turns.Next(slots); ok; from, ok = c.turns.Next(slots) {
					it := c.turns.Pop(from)
					c.turns.Done(it)
					l.advanceKey(it)
					settled++
				}
				c.mu.Unlock()
				if settled != rows {
					b.Fatalf("%d of %d items had their turn", settled, rows)
				}
			}
			require.Empty(b, l.keys)
			b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "items/s")
		})
	}
}
