package pubsub_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// BenchmarkDeliver drains 2,000 deliveries through Google's fake in this process, with four batches at a time, as from
// the engine. The latency is that of the service's answers.
func BenchmarkDeliver(b *testing.B) {
	const deliveries, batches = 2000, 4
	for _, keys := range []int{0, 1, 100, deliveries} {
		for _, latency := range []time.Duration{0, 20 * time.Millisecond} {
			b.Run(fmt.Sprintf("keys=%d/latency=%s", keys, latency), func(b *testing.B) {
				s := start(b)
				s.answers(func(context.Context, *pubsubpb.PublishRequest) error {
					time.Sleep(latency)
					return nil
				})
				sink := newSink(b, sinks.Instance{}, s.settings("topic: orders"))
				waiting := make([][]*notification.Delivery, batches) // a key is in one of them, as in the engine
				for n := range deliveries {
					d := sinktest.NewDelivery(n)
					worker := n % batches
					if d.Key = ""; keys > 0 {
						d.Key, worker = fmt.Sprint("key-", n%keys), n%keys%batches
					}
					waiting[worker] = append(waiting[worker], d)
				}
				size := sink.BatchLimits().Size
				for b.Loop() {
					var workers sync.WaitGroup
					for _, list := range waiting {
						workers.Go(func() {
							for len(list) > 0 {
								n := min(size, len(list))
								for _, r := range sink.DeliverBatch(b.Context(), list[:n]) {
									if r.Err != nil {
										b.Error(r.Err)
									}
								}
								list = list[n:]
							}
						})
					}
					workers.Wait()
					b.StopTimer()
					s.fake.ClearMessages()
					b.StartTimer()
				}
				b.ReportMetric(float64(deliveries*b.N)/b.Elapsed().Seconds(), "msgs/s")
			})
		}
	}
}
