package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/metrics"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

func TestMiddlewareWrapsADelivery(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		seen := make(map[string]string) // correlation ids by id
		s.answer = func(ctx context.Context, d *notification.Delivery) error {
			s.mu.Lock()
			seen[d.ID] = d.Metadata.Get("correlation")
			n := len(s.ids)
			s.mu.Unlock()
			switch d.ID {
			case "panics":
				panic("index out of range")
			case "hangs":
				<-ctx.Done()
				return ctx.Err()
			case "third":
				if n%3 != 0 {
					return errors.New("500")
				}
			}
			return nil
		}
		metered := prometheus.NewRegistry()
		measured := metrics.NewPrometheusMetricsBuilder(metered, "", "").NewRouterMiddleware().Middleware
		again := middleware.Retry{MaxRetries: 2, InitialInterval: time.Millisecond}
		setID := func(next message.HandlerFunc) message.HandlerFunc {
			return func(m *message.Message) ([]*message.Message, error) {
				m.Metadata.Set("correlation", "correlation of "+m.UUID)
				return next(m)
			}
		}
		f := o.one(forwarder.Sink{Sink: &s, Timeout: time.Hour, Retry: later, Parallelism: alone, Middleware: []message.HandlerMiddleware{
			measured, middleware.Recoverer, setID, again.Middleware, middleware.Timeout(3 * time.Second),
		}})
		f.publish("t", "", "third")
		require.Equal(t, []string{"third", "third", "third"}, s.given())
		require.Empty(t, o.parked(), "the middleware retried it")
		require.Equal(t, 1, s.attempts["third"])
		require.Equal(t, "taken", value[string](o, `SELECT receipt FROM outbox_receipts`))

		f.publish("t", "", "panics")
		require.Equal(t, []string{"sink retrying panics"}, o.parked())
		require.Contains(t, o.parkedOf("panics").LastError, "index out of range")
		require.Equal(t, "correlation of panics", seen["panics"])

		f.publish("t", "", "hangs")
		pass(10 * time.Second)
		require.Contains(t, o.parked(), "sink retrying hangs", "three times three seconds")
		measures, err := metered.Gather()
		require.NoError(t, err)
		require.Len(t, measures, 1)
		count := uint64(0)
		for _, m := range measures[0].GetMetric() {
			count += m.GetHistogram().GetSampleCount()
		}
		require.EqualValues(t, 3, count, "measured deliveries")
	})
}

// around records that it was called.
func around(name string, to *[]string) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			*to = append(*to, name+" in")
			defer func() { *to = append(*to, name+" out") }()
			return next(m)
		}
	}
}

func TestTheFirstMiddlewareIsTheOutermost(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var passed []string
		s := &script{answer: func(context.Context, *notification.Delivery) error {
			passed = append(passed, "sink")
			return nil
		}}
		f := o.one(forwarder.Sink{Sink: s, Middleware: []message.HandlerMiddleware{around("first", &passed), around("second", &passed)}})
		f.publish("t", "", "a")
		require.Equal(t, []string{"first in", "second in", "sink", "second out", "first out"}, passed)
	})
}

func TestChangesByMiddlewareReachOnlyTheSink(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		type contextKey struct{}
		change := func(next message.HandlerFunc) message.HandlerFunc {
			return func(m *message.Message) ([]*message.Message, error) {
				m.Payload[0] = '['
				m.Payload = append(m.Payload, "!"...)
				m.Metadata.Set("signature", "s")
				delete(m.Metadata, "secret")
				m.SetContext(context.WithValue(m.Context(), contextKey{}, "from outside"))
				produced, err := next(m)
				return append(produced, message.NewMessage("dropped", nil)), err
			}
		}
		var got notification.Envelope
		s := &script{answer: func(ctx context.Context, d *notification.Delivery) error {
			got = *d.Envelope
			got.Payload = append([]byte{}, d.Payload...)
			require.Equal(t, "from outside", ctx.Value(contextKey{}))
			require.Equal(t, "sink", d.Sink)
			if d.Attempt == 1 {
				return errors.New("500")
			}
			return nil
		}}
		f := o.one(forwarder.Sink{Sink: s, Middleware: []message.HandlerMiddleware{change}})
		o.insert(notification.Envelope{ID: "a", Type: "t", Key: "k", Metadata: notification.Metadata{"secret": "x"}})
		f.flush()
		require.Equal(t, "[}!", string(got.Payload))
		require.Equal(t, notification.Metadata{"signature": "s"}, got.Metadata)
		require.Equal(t, "a", got.ID)
		require.Equal(t, "k", got.Key)
		require.Equal(t, []string{"sink retrying a"}, o.parked())
		parked := o.parkedOf("a").Envelope
		require.Equal(t, "{}", string(parked.Payload))
		require.Equal(t, notification.Metadata{"secret": "x"}, parked.Metadata)
		pass(time.Minute)
		require.Equal(t, "[}!", string(got.Payload), "changed once, not twice")
		require.Empty(t, o.parked())
	})
}

func TestTheClassOfAnErrorPassesThroughMiddleware(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		wrap := func(next message.HandlerFunc) message.HandlerFunc {
			return func(m *message.Message) ([]*message.Message, error) {
				produced, err := next(m)
				if err != nil {
					err = fmt.Errorf("around: %w", err)
				}
				return produced, err
			}
		}
		s := &script{answer: either(
			fails(sinks.Permanent(errors.New("400")), always, "dies"), fails(sinks.Unavailable(errors.New("connection refused")), always),
		)}
		f := o.one(forwarder.Sink{Sink: s, Parallelism: alone, Middleware: []message.HandlerMiddleware{wrap}})
		o.append("t", "", "dies", "waits")
		time.Sleep(time.Minute)
		require.Equal(t, []string{"sink dead dies"}, o.parked())
		s.mended.Store(true)
		pass(time.Minute)
		for _, id := range s.given() {
			require.Contains(t, []string{"dies", "waits"}, id)
		}
		require.Equal(t, 1, s.attempts["waits"])
		require.Equal(t, int64(1), f.Stats()[0].Delivered)
	})
}

// single is a batch sink that also gets single deliveries.
type single struct {
	batches
	script
}

func (s *single) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	return s.script.Deliver(ctx, d)
}

func TestWithMiddlewareABatchSinkGetsSingleDeliveries(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &single{batches: batches{limits: sinks.BatchLimits{Size: 10, Wait: time.Hour}}}
		f := o.one(forwarder.Sink{Sink: s, Middleware: []message.HandlerMiddleware{middleware.Recoverer}})
		f.publish("t", "", numbered("", 20)...)
		require.ElementsMatch(t, numbered("", 20), s.script.given())
		require.Empty(t, s.batches.given())
	})
}
