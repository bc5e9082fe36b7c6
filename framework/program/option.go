package program

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/function"
	"github.com/waybill-go/waybill/sinks/httpsink"
	"github.com/waybill-go/waybill/sinks/jsonlines"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/process"
)

// Option adds something of one's own to the program.
type Option func(*parts)

// parts are what options set.
type parts struct {
	config.Options
	kinds     []sinks.Kind
	supplied  map[string]func(sinks.Instance) (sinks.Sink, error)
	functions map[string][]function.Handler
	mistakes  []error
}

// Kinds adds sink kinds to those that Waybill has: email, function, go, http, jsonlines,
// kafka and process. A name that is taken is an error of every command.
func Kinds(kinds ...sinks.Kind) Option {
	return func(p *parts) { p.kinds = append(p.kinds, kinds...) }
}

// Types are the application's notification types. A route that matches none of them is a
// mistake then, and kinds can decode Go values: see [sinks.Instance].
func Types(types *registry.Registry) Option {
	return func(p *parts) { p.Types = types }
}

// Sink supplies a sink of kind go: the configuration names it, and says where it starts,
// what is routed to it, how often it is tried again and so on. build runs whenever a
// configuration is read, and opens nothing.
func Sink(name string, build func(sinks.Instance) (sinks.Sink, error)) Option {
	return func(p *parts) {
		if _, taken := p.supplied[name]; taken {
			p.mistakes = append(p.mistakes, fmt.Errorf("the sink %q is supplied twice", name))
		}
		p.supplied[name] = build
	}
}

// Functions supplies the handlers of a sink of kind function. Their types have to be among
// [Types].
func Functions(sink string, handlers ...function.Handler) Option {
	return func(p *parts) { p.functions[sink] = append(p.functions[sink], handlers...) }
}

// Middleware is put around each delivery of all sinks, the first one outermost; see
// [forwarder.Sink].
func Middleware(middleware ...message.HandlerMiddleware) Option {
	return func(p *parts) { p.Middleware = append(p.Middleware, middleware...) }
}

// Hooks are called with what becomes of the deliveries of all sinks; see [forwarder.Hooks].
func Hooks(hooks forwarder.Hooks) Option {
	return func(p *parts) { p.Hooks = hooks }
}

// Observer is called with what the forwarder does.
func Observer(observer forwarder.Observer) Option {
	return func(p *parts) { p.Observer = observer }
}

// HTTPClient makes the requests of all sinks that speak HTTP; see [sinks.Instance].
func HTTPClient(client *http.Client) Option {
	return func(p *parts) { p.HTTPClient = client }
}

// Dial opens the TCP connections of all sinks that make any; see [sinks.Instance]. Those
// to the database are not among them.
func Dial(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return func(p *parts) { p.Dial = dial }
}

// optionsOf puts together what the program is made of.
func optionsOf(options []Option) (config.Options, error) {
	p := &parts{
		supplied:  make(map[string]func(sinks.Instance) (sinks.Sink, error)),
		functions: make(map[string][]function.Handler),
	}
	for _, set := range options {
		set(p)
	}
	var err error
	p.Kinds, err = sinks.NewSet(append([]sinks.Kind{
		email.Kind(),
		function.Kind(p.functions),
		httpsink.Kind(),
		jsonlines.Kind(),
		kafka.Kind(),
		process.Kind(),
		sinks.GoKind(p.supplied),
	}, p.kinds...)...)
	return p.Options, errors.Join(append(p.mistakes, err)...)
}
