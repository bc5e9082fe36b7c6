// Package tracing makes the spans of publishing and delivering, and carries the W3C Trace
// Context from one to the other in the metadata.
//
// It depends only on the API of OpenTelemetry. The program that runs it provides the SDK, as a
// [trace.TracerProvider]. Without a provider it makes no spans and allocates nothing. Spans
// follow the semantic conventions for messaging, in the version of the imported package
// semconv.
package tracing

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Waybill's own attributes.
const (
	AttributeType    = attribute.Key("waybill.type")    // type of the notifications, if all have the same
	AttributeSink    = attribute.Key("waybill.sink")    // the sink's name
	AttributeAttempt = attribute.Key("waybill.attempt") // number of the attempt, from 1; not for a batch
	AttributeFailed  = attribute.Key("waybill.failed")  // number of failed deliveries in a batch
)

// scope names the instrumentation.
const scope = "github.com/waybill-go/waybill"

// system is the value of messaging.system.
const system = "waybill"

func tracerOf(provider trace.TracerProvider) trace.Tracer {
	return provider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))
}
