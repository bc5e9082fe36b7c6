// Package tracing makes the spans of publishing and delivering, and carries the W3C Trace
// Context between them in metadata.
//
// It knows the API of OpenTelemetry only: who runs the program brings the SDK, as a
// [trace.TracerProvider]. Spans follow the semantic conventions for messaging, in the version
// of the package semconv that is imported here. Without a provider there is nothing: no span,
// no context, no allocation.
//
// The files in the order in which to read them: tracing.go, metadata.go, publish.go,
// deliver.go, settle.go, log.go.
package tracing

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Attributes of Waybill's own.
const (
	AttributeType    = attribute.Key("waybill.type")    // of the notifications, where all have one
	AttributeSink    = attribute.Key("waybill.sink")    // the sink's name
	AttributeAttempt = attribute.Key("waybill.attempt") // which one it is, from 1; not of a batch
	AttributeFailed  = attribute.Key("waybill.failed")  // how many deliveries of a batch failed
)

// scope names the instrumentation.
const scope = "github.com/waybill-go/waybill"

// system is the value of messaging.system.
const system = "waybill"

func tracerOf(provider trace.TracerProvider) trace.Tracer {
	return provider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))
}
