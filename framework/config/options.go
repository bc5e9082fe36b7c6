package config

import (
	"context"
	"log/slog"
	"net"
	"net/http"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// Options add to a configuration what only Go values can express. All are optional.
type Options struct {
	// Kinds are the sink kinds that the configuration can use.
	Kinds *sinks.Set
	// Types are the application's notification types. A route that matches none of them is
	// then a mistake, and sinks can decode payloads to Go values.
	Types *registry.Registry
	// Logger is for the forwarder and the sinks; nil means slog's default.
	Logger *slog.Logger
	// HTTPClient and Dial are passed to every sink; see [sinks.Instance].
	HTTPClient *http.Client
	Dial       func(ctx context.Context, network, address string) (net.Conn, error)
	// Stores open the object stores of sinks, by the schemes of their addresses; see [sinks.Instance].
	Stores map[string]sinks.OpenStore
	// Masters open the master key of private values, by the scheme of its address.
	Masters map[string]privacy.OpenMaster
	// Middleware and Hooks apply to every sink; see [forwarder.Sink].
	Middleware []message.HandlerMiddleware
	Hooks      forwarder.Hooks
	// Observer observes the forwarder.
	Observer event.Observer
	// Published is called with what schedules publish; see [outbox.Config].
	Published func([]notification.Envelope)
	// TracerProvider makes the spans of deliveries; nil means no tracing.
	TracerProvider trace.TracerProvider
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// instance returns what the program provides to a sink of that name.
func (c *Config) instance(name string) sinks.Instance {
	o := c.options
	return sinks.Instance{
		Name: name, Logger: o.Logger.With("sink", name), Types: o.Types, Contracts: contract.Lazy(c.contracts), HTTPClient: o.HTTPClient, Dial: o.Dial,
		Stores: o.Stores,
	}
}
