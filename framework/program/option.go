package program

import (
	"cmp"
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
	name      string
	hooked    bool
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

// Name is the program's, as help and errors call it; default "waybill".
func Name(name string) Option {
	return func(p *parts) { once(p, "a name", &p.name, name) }
}

// Types are the application's notification types. A route that matches none of them is a
// mistake then, and kinds can decode Go values: see [sinks.Instance].
func Types(types *registry.Registry) Option {
	return func(p *parts) { once(p, "a registry of types", &p.Types, types) }
}

// Sink supplies a sink of kind go: the configuration names it, and says where it starts,
// what is routed to it, how often it is tried again and so on. build runs whenever a
// configuration is read, and opens nothing.
func Sink(name string, build func(sinks.Instance) (sinks.Sink, error)) Option {
	return func(p *parts) {
		switch _, taken := p.supplied[name]; {
		case taken:
			p.mistakes = append(p.mistakes, fmt.Errorf("the sink %q is supplied twice", name))
		case build == nil:
			p.mistakes = append(p.mistakes, fmt.Errorf("the constructor of the sink %q is nil", name))
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
	return func(p *parts) {
		for _, m := range middleware {
			if m == nil {
				p.mistakes = append(p.mistakes, errors.New("a middleware is nil"))
			}
		}
		p.Middleware = append(p.Middleware, middleware...)
	}
}

// Hooks are called with what becomes of the deliveries of all sinks; see [forwarder.Hooks].
func Hooks(hooks forwarder.Hooks) Option {
	return func(p *parts) {
		if p.hooked {
			p.mistakes = append(p.mistakes, errTwice("hooks"))
		}
		p.Hooks, p.hooked = hooks, true
	}
}

// Observer is called with what the forwarder does.
func Observer(observer forwarder.Observer) Option {
	return func(p *parts) { once(p, "an observer", &p.Observer, observer) }
}

// HTTPClient makes the requests of all sinks that speak HTTP; see [sinks.Instance].
func HTTPClient(client *http.Client) Option {
	return func(p *parts) { once(p, "an HTTP client", &p.HTTPClient, client) }
}

// Dial opens the TCP connections of all sinks that make any; see [sinks.Instance]. Those
// to the database are not among them.
func Dial(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return func(p *parts) {
		if p.Dial != nil {
			p.mistakes = append(p.mistakes, errTwice("a dial function"))
		}
		p.Dial = dial
	}
}

// once sets what a program has one of.
func once[T comparable](p *parts, what string, field *T, value T) {
	var none T
	if *field != none {
		p.mistakes = append(p.mistakes, errTwice(what))
	}
	*field = value
}

func errTwice(what string) error { return fmt.Errorf("the program is given %s twice", what) }

// partsOf puts together what the program is made of.
func partsOf(options []Option) (*parts, error) {
	p := &parts{
		supplied:  make(map[string]func(sinks.Instance) (sinks.Sink, error)),
		functions: make(map[string][]function.Handler),
	}
	for _, set := range options {
		if set == nil {
			p.mistakes = append(p.mistakes, errors.New("an option is nil"))
			continue
		}
		set(p)
	}
	p.name = cmp.Or(p.name, "waybill")
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
	return p, errors.Join(append(p.mistakes, err)...)
}
