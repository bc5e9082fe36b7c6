package outbox_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
)

const remoteParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// remoteSpan returns a context with a span of another process.
func remoteSpan(t testing.TB) context.Context {
	t.Helper()
	state, err := trace.ParseTraceState("vendor=1")
	require.NoError(t, err)
	span := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80, 0x31, 0x9c},
		SpanID:  trace.SpanID{0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31}, TraceFlags: trace.FlagsSampled, TraceState: state,
	})
	member, err := baggage.NewMember("user", "ada")
	require.NoError(t, err)
	bag, err := baggage.New(member)
	require.NoError(t, err)
	return baggage.ContextWithBaggage(trace.ContextWithSpanContext(t.Context(), span), bag)
}

func TestThePublishersTraceIsAddedToMetadataWithoutOne(t *testing.T) {
	t.Parallel()
	given := map[string]string{"tenant": "acme"}
	db, s, p := setup(t, outbox.Config{Metadata: func(context.Context) map[string]string { return given }})
	publish := func(ctx context.Context, n any) notification.Metadata {
		require.NoError(t, p.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error { return p.Publish(ctx, tx, n) }))
		all := published(t, s)
		m := all[len(all)-1].Metadata
		delete(m, "content-type")
		delete(m, "tenant")
		return m
	}
	order := orderPlaced{OrderID: "a"}
	require.Empty(t, publish(t.Context(), order), "there is no span")
	require.Equal(t, notification.Metadata{"traceparent": remoteParent, "tracestate": "vendor=1"}, publish(remoteSpan(t), order), "without baggage")
	require.Equal(t, map[string]string{"tenant": "acme"}, given, "the application's map is not changed")
	require.Equal(t, notification.Metadata{"traceparent": "mine"}, publish(remoteSpan(t), outbox.With(order, outbox.Metadata("traceparent", "mine"))))
	require.Equal(t, notification.Metadata{"traceparent": "", "tracestate": "x=1"}, publish(remoteSpan(t), outbox.With(order, outbox.Metadata("traceparent", ""), outbox.Metadata("tracestate", "x=1"))))
	given["traceparent"], given["tracestate"] = "ours", ""
	require.Equal(t, notification.Metadata{"traceparent": "ours"}, publish(remoteSpan(t), order))
	delete(given, "traceparent")
	given["tracestate"] = "of=another"
	require.Equal(t, notification.Metadata{"traceparent": remoteParent, "tracestate": "vendor=1"}, publish(remoteSpan(t), order))
}

func TestACallOfPublishIsASpan(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	db, s, p := setup(t, outbox.Config{TracerProvider: sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))})
	publish := func(notifications ...any) (map[string]string, sdk.ReadOnlySpan) {
		_ = p.RunInTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
			return p.Publish(ctx, tx, notifications...)
		})
		ended := spans.Ended()
		last := ended[len(ended)-1]
		attributes := make(map[string]string)
		for _, a := range last.Attributes() {
			attributes[string(a.Key)] = a.Value.String()
		}
		return attributes, last
	}
	once := func(id string) outbox.Item {
		return outbox.With(orderPlaced{OrderID: "a"}, outbox.ID(id), outbox.Unique("a", time.Hour))
	}
	attributes, span := publish(once("1"))
	require.Equal(t, "publish order.placed", span.Name())
	require.Equal(t, map[string]string{
		"messaging.system": "waybill", "messaging.operation.name": "publish", "messaging.operation.type": "send", "messaging.destination.name": "order.placed",
		"waybill.type": "order.placed", "messaging.message.id": "1", "messaging.message.body.size": "26",
	}, attributes)
	attributes, span = publish(orderPlaced{OrderID: "b"}, orderPlaced{OrderID: "c"})
	require.Equal(t, "2", attributes["messaging.batch.message_count"])
	require.NotContains(t, attributes, "messaging.message.id")
	all := published(t, s)
	require.Len(t, all, 3)
	for _, e := range all[1:] {
		require.Contains(t, e.Metadata.Get("traceparent"), span.SpanContext().SpanID().String(), "one span for the call")
	}

	for want, notifications := range map[string][]any{
		"duplicate": {once("2")},
		"invalid":   {orderPlaced{OrderID: "d"}, "no notification"},
	} {
		attributes, span = publish(notifications...)
		require.Equal(t, want, attributes["error.type"])
		require.Equal(t, sdk.Status{Code: codes.Error}, span.Status(), "the span does not have the text of the error")
	}
	require.Error(t, p.RunInTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `SELECT 1/0`) // breaks the transaction
		require.Error(t, err)
		return p.Publish(ctx, tx, orderPlaced{OrderID: "e"})
	}))
	n := len(spans.Ended())
	require.Contains(t, spans.Ended()[n-1].Attributes(), attribute.String("error.type", "database"))
	require.NoError(t, p.Publish(t.Context(), discardingTx{}))
	require.Len(t, spans.Ended(), n, "nothing was published")
	require.Len(t, published(t, s), 3)
}

func TestWithoutAProviderASpanOfTheContextCostsAMap(t *testing.T) { // not parallel: AllocsPerRun counts allocations of all goroutines
	p := newPaperPublisher(t)
	orders := largeOrders(1)
	count := func(ctx context.Context) float64 {
		return testing.AllocsPerRun(100, func() {
			if err := p.Publish(ctx, discardingTx{}, orders...); err != nil {
				t.Fatal(err)
			}
		})
	}
	without, with := count(t.Context()), count(remoteSpan(t))
	t.Logf("%.0f allocations without a span in the context, %.0f with one", without, with)
	require.LessOrEqual(t, with, without+15)
}
