package config

import (
	"context"
	"log/slog"
	"net"
	"net/http"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// Options are what a program adds to a configuration in Go values, which no file can
// hold. The zero value of each is none.
type Options struct {
	// Kinds are those that sinks can have.
	Kinds *sinks.Set
	// Types are those that the application publishes: a route that matches none of them
	// is a mistake, and kinds can decode Go values.
	Types *registry.Registry
	// Logger is the forwarder's and the sinks'; default: slog's.
	Logger *slog.Logger
	// HTTPClient and Dial are handed to sinks, see [sinks.Instance].
	HTTPClient *http.Client
	Dial       func(ctx context.Context, network, address string) (net.Conn, error)
	// Middleware and Hooks are those of all sinks, see [forwarder.Sink].
	Middleware []message.HandlerMiddleware
	Hooks      forwarder.Hooks
	// Observer is the forwarder's.
	Observer forwarder.Observer
	// Published is that of the publisher of schedules, see [outbox.Config].
	Published func([]notification.Envelope)
	// TracerProvider makes the spans of deliveries.
	TracerProvider trace.TracerProvider
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// instance is what a sink of that name is built with.
func (o Options) instance(name string) sinks.Instance {
	return sinks.Instance{Name: name, Logger: o.Logger.With("sink", name), Types: o.Types, HTTPClient: o.HTTPClient, Dial: o.Dial}
}
