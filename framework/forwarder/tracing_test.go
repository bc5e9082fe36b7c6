package forwarder_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	outboxes "github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/tracing"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

// spanRecorder records the spans of a provider of the real SDK.
type spanRecorder struct {
	*tracetest.SpanRecorder
	*sdk.TracerProvider
}

func newSpanRecorder() spanRecorder {
	spans := tracetest.NewSpanRecorder()
	return spanRecorder{spans, sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))}
}

// named returns the ended spans with a name, in order.
func (r spanRecorder) named(name string) (spans []sdk.ReadOnlySpan) {
	for _, s := range r.Ended() {
		if s.Name() == name {
			spans = append(spans, s)
		}
	}
	return spans
}

// attributesOf returns the attributes of a span as text.
func attributesOf(s sdk.ReadOnlySpan) map[string]string {
	all := make(map[string]string)
	for _, a := range s.Attributes() {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

type traced struct {
	N int `json:"n"`
}

func tracedTypes(t testing.TB) *registry.Registry {
	t.Helper()
	types := registry.New()
	require.NoError(t, registry.Register[traced](types, "traced"))
	return types
}

// traceparent returns metadata with an invented span of a trace.
func traceparent(n int) string { return fmt.Sprintf("00-%032x-%016x-01", n, n+1000) }

func TestOneTraceReachesFromThePublisherToTheReceiver(t *testing.T) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) { t.Parallel(); testOneTrace(t, openPostgres(t, outboxtest.DSN(t))) })
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		testOneTrace(t, openSQLite(t, outboxtest.File(t)))
	})
}

func testOneTrace(t *testing.T, o *outbox) {
	got := make(chan http.Header, 2)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
	defer receiver.Close()
	partner, err := httpsink.New(sinks.Instance{Name: "partner", Logger: slog.New(slog.DiscardHandler)}, httpsink.Config{URL: receiver.URL})
	require.NoError(t, err)
	stranger, err := httpsink.New(sinks.Instance{Name: "stranger", Logger: slog.New(slog.DiscardHandler)}, httpsink.Config{URL: receiver.URL + "/stranger"})
	require.NoError(t, err)

	application, engine := newSpanRecorder(), newSpanRecorder()
	f, err := forwarder.New(o.config(map[string]forwarder.Sink{"partner": {Sink: partner}, "stranger": {Sink: stranger, Trace: forwarder.TraceNone}},
		route.Routes{"*": route.To("partner", "stranger")}, inRealTime, func(c *forwarder.Config) { c.TracerProvider = engine }))
	require.NoError(t, err)
	publisher, err := outboxes.New(tracedTypes(t), o.store, outboxes.Config{TracerProvider: application, Wake: f.Wake})
	require.NoError(t, err)

	ctx, request := application.Tracer("test").Start(t.Context(), "request")
	require.NoError(t, publisher.RunInTx(ctx, o.db, nil, func(ctx context.Context, tx *sql.Tx) error { return publisher.Publish(ctx, tx, traced{N: 1}) }))
	request.End()

	e := launch(t, f)
	headers := []http.Header{<-got, <-got}
	e.end()

	publish := application.named("publish traced")
	require.Len(t, publish, 1)
	require.Equal(t, trace.SpanKindProducer, publish[0].SpanKind())
	require.Equal(t, request.SpanContext().SpanID(), publish[0].Parent().SpanID())
	require.Equal(t, "7", attributesOf(publish[0])["messaging.message.body.size"])
	require.Equal(t, "send", attributesOf(publish[0])["messaging.operation.type"])
	require.Equal(t, "traced", attributesOf(publish[0])["messaging.destination.name"])

	deliver := engine.named("deliver partner")
	require.Len(t, deliver, 1)
	require.Len(t, engine.named("deliver stranger"), 1)
	d := deliver[0]
	require.Equal(t, trace.SpanKindConsumer, d.SpanKind())
	require.Equal(t, request.SpanContext().TraceID(), d.SpanContext().TraceID())
	require.Equal(t, publish[0].SpanContext().SpanID(), d.Parent().SpanID())
	require.True(t, d.Parent().IsRemote())
	require.Len(t, d.Links(), 1)
	require.Equal(t, publish[0].SpanContext().SpanID(), d.Links()[0].SpanContext.SpanID())
	require.Equal(t, codes.Unset, d.Status().Code)
	attributes := attributesOf(d)
	require.Equal(t, attributesOf(publish[0])["messaging.message.id"], attributes["messaging.message.id"])
	for name, want := range map[string]string{
		"messaging.system": "waybill", "messaging.operation.name": "deliver", "messaging.operation.type": "process", "messaging.destination.name": "partner",
		"messaging.message.body.size": "7", "waybill.sink": "partner", "waybill.type": "traced", "waybill.attempt": "1",
	} {
		require.Equal(t, want, attributes[name], name)
	}

	parents := []string{headers[0].Get("Traceparent"), headers[1].Get("Traceparent")}
	require.ElementsMatch(t, []string{"", fmt.Sprintf("00-%s-%s-01", d.SpanContext().TraceID(), d.SpanContext().SpanID())}, parents)
	for _, header := range headers {
		require.Empty(t, header.Get("Baggage"))
	}
}

func TestEachAttemptHasItsSpan(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var log bytes.Buffer
		r := newSpanRecorder()
		s := &script{answer: func(ctx context.Context, d *notification.Delivery) error {
			if !trace.SpanFromContext(ctx).IsRecording() {
				return sinks.Permanent(errors.New("there is no span"))
			}
			if d.Attempt < 3 {
				return errors.New("500\nand more")
			}
			return sinks.Permanent(errors.New("refused"))
		}}
		f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Initial: time.Minute}}, func(c *forwarder.Config) {
			c.TracerProvider, c.Logger = r, slog.New(tracing.LogHandler(slog.NewTextHandler(&log, nil)))
		})
		o.insert(notification.Envelope{ID: "a", Type: "t", Metadata: notification.Metadata{"traceparent": traceparent(7), "tracestate": "vendor=1"}})
		f.flush()
		time.Sleep(10 * time.Minute)
		f.flush()
		f.end()

		spans := r.named("deliver sink")
		require.Len(t, spans, 3)
		for i, span := range spans {
			attributes := attributesOf(span)
			require.Equal(t, fmt.Sprint(i+1), attributes["waybill.attempt"])
			require.Equal(t, traceparent(7), fmt.Sprintf("00-%s-%s-01", span.Parent().TraceID(), span.Parent().SpanID()))
			require.Equal(t, "vendor=1", span.SpanContext().TraceState().String())
			require.Equal(t, codes.Error, span.Status().Code)
			require.Contains(t, log.String(), "trace_id="+span.SpanContext().TraceID().String()+" span_id="+span.SpanContext().SpanID().String())
		}
		require.Equal(t, "transient", attributesOf(spans[0])["error.type"])
		require.Equal(t, "500", spans[0].Status().Description)
		require.Equal(t, "permanent", attributesOf(spans[2])["error.type"])
		require.Contains(t, spans[2].Status().Description, "refused")
		require.Contains(t, log.String(), `msg="delivery is dead" sink=sink lane=0 type=t id=a attempt=3 class=permanent error=`)
	})
}

// tracedBatches is a sink that takes batches and records them.
type tracedBatches struct {
	mu      sync.Mutex
	given   []*notification.Delivery
	parents []trace.SpanContext
	answer  func(d *notification.Delivery) error
}

func (*tracedBatches) Deliver(context.Context, *notification.Delivery) (notification.Receipt, error) {
	return "", errors.New("one by one")
}

func (*tracedBatches) BatchLimits() sinks.BatchLimits { return sinks.BatchLimits{Size: 500} }

func (b *tracedBatches) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	results := make([]sinks.Result, len(batch))
	for i, d := range batch {
		kept := *d
		b.given, b.parents = append(b.given, &kept), append(b.parents, trace.SpanContextFromContext(ctx))
		if b.answer != nil {
			results[i].Err = b.answer(d)
		}
	}
	return results
}

func TestABatchHasOneSpanThatLinksToEach(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		r := newSpanRecorder()
		b := &tracedBatches{answer: func(d *notification.Delivery) error {
			if d.ID == "7" {
				return errors.New("500")
			}
			return nil
		}}
		envelopes := make([]notification.Envelope, 200)
		for i := range envelopes {
			envelopes[i] = notification.Envelope{ID: fmt.Sprint(i), Type: "t", Metadata: notification.Metadata{"traceparent": traceparent(i + 1)}}
		}
		envelopes[1].Metadata["traceparent"] = "00-nonsense"
		o.insert(envelopes...)
		o.deliver(0, forwarder.Sink{Sink: b, Parallelism: alone, Retry: later}, func(c *forwarder.Config) { c.TracerProvider = r })

		spans := r.named("deliver sink")
		require.Len(t, spans, 1)
		require.False(t, spans[0].Parent().IsValid(), "a separate root")
		require.Len(t, spans[0].Links(), 127, "of the first 128, one has no context")
		require.Equal(t, []attribute.KeyValue{attribute.String("messaging.message.id", "2")}, spans[0].Links()[1].Attributes)
		attributes := attributesOf(spans[0])
		require.Equal(t, "200", attributes["messaging.batch.message_count"])
		require.Equal(t, "1", attributes["waybill.failed"])
		require.Equal(t, "t", attributes["waybill.type"])
		require.NotContains(t, attributes, "waybill.attempt")
		require.Equal(t, codes.Error, spans[0].Status().Code)
		for i, d := range b.given {
			require.Equal(t, envelopes[i].Metadata.Get("traceparent"), d.Metadata.Get("traceparent"), "each keeps its own trace")
			require.Equal(t, spans[0].SpanContext().SpanID(), b.parents[i].SpanID())
		}
	})
}

func TestAnOutageDoesNotFillTheTraces(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		r := newSpanRecorder()
		s := down(sinks.Unavailable(errors.New("connection refused")))
		f := o.one(forwarder.Sink{Sink: s, Parallelism: alone}, func(c *forwarder.Config) { c.TracerProvider = r })
		o.insert(notification.Envelope{ID: "a", Type: "t", Metadata: notification.Metadata{"traceparent": traceparent(1)}})
		f.flush()
		time.Sleep(time.Hour)
		s.mended.Store(true)
		pass(time.Minute)
		f.end()
		require.Greater(t, len(s.given()), 100)

		spans := r.named("deliver sink")
		require.Len(t, spans, 2, "the first failure, and the probe that succeeded")
		require.Equal(t, "unavailable", attributesOf(spans[0])["error.type"])
		require.Equal(t, codes.Unset, spans[1].Status().Code)
		require.Equal(t, spans[0].Parent(), spans[1].Parent())
	})
}

func TestWithoutAProviderThereIsNoSpan(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		r := newSpanRecorder()
		var pass, none script
		seen := make(map[string]notification.Metadata)
		note := func(sink string) func(context.Context, *notification.Delivery) error {
			return func(ctx context.Context, d *notification.Delivery) error {
				pass.mu.Lock()
				defer pass.mu.Unlock()
				seen[sink] = d.Metadata.Clone()
				if trace.SpanContextFromContext(ctx).IsValid() {
					return sinks.Permanent(errors.New("the span of Run's context reached a sink"))
				}
				return nil
			}
		}
		pass.answer, none.answer = note("pass"), note("none")
		ctx, mine := r.Tracer("test").Start(t.Context(), "main")
		f, err := forwarder.New(o.config(map[string]forwarder.Sink{"pass": {Sink: &pass}, "none": {Sink: &none, Trace: forwarder.TraceNone}},
			route.Routes{"*": {{Sink: "pass"}, {Sink: "none", When: "metadata.traceparent != nil"}}})) // a condition sees the published payload
		require.NoError(t, err)
		ctx, stop := context.WithCancel(ctx)
		e := &engine{Forwarder: f, t: t, stop: stop, ended: make(chan error, 1)}
		go func() { e.ended <- f.Run(ctx) }()
		o.insert(notification.Envelope{ID: "a", Type: "t", Metadata: notification.Metadata{
			"traceparent": traceparent(1), "tracestate": "v=1", "Traceparent": "of a format that ignores case", "tenant": "acme",
		}})
		e.flush()
		e.end()
		mine.End()
		require.Empty(t, o.parked())
		require.Len(t, r.Ended(), 1)
		require.Equal(t, traceparent(1), seen["pass"].Get("traceparent"))
		require.Equal(t, "v=1", seen["pass"].Get("tracestate"))
		require.Equal(t, notification.Metadata{"tenant": "acme"}, seen["none"])
	})
}
