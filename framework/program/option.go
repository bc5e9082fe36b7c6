package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/function"
	"github.com/waybill-go/waybill/sinks/httpsink"
	"github.com/waybill-go/waybill/sinks/jsonlines"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/watermill"
	"github.com/waybill-go/waybill/sinks/process"
)

// Option adds to the program, or configures it. Options that contradict each other, such
// as two names, make every command fail with exit code 1.
type Option func(*parts)

// parts is what options set.
type parts struct {
	config.Options
	name      string
	licenses  string
	hooked    bool
	kinds     []sinks.Kind
	supplied  map[string]func(sinks.Instance) (sinks.Sink, error)
	functions map[string][]function.Handler
	once      map[string]bool // the sinks whose functions are those of FunctionsTx
	mistakes  []error
}

// Kinds adds sink kinds to the built-in ones: email, function, go, http, jsonlines, kafka
// and process. Names must be unique.
func Kinds(kinds ...sinks.Kind) Option {
	return func(p *parts) { p.kinds = append(p.kinds, kinds...) }
}

// Name sets the program's name in help and errors. The default is "waybill".
func Name(name string) Option {
	return func(p *parts) { once(p, "a name", &p.name, name) }
}

// Licenses adds the licences of your program's own modules to those that version --licenses
// prints. The default is none.
func Licenses(text string) Option {
	return func(p *parts) { once(p, "licences", &p.licenses, text) }
}

// Types registers the application's notification types. A route that matches none of them
// is then a mistake in the configuration, and sinks can decode payloads to Go values: see
// [sinks.Instance].
func Types(types *registry.Registry) Option {
	return func(p *parts) { once(p, "a registry of types", &p.Types, types) }
}

// Sink supplies the Go code of a sink of kind go. The configuration has the sink under the
// same name, with its routes, start, retries and all other settings. build runs whenever
// the configuration is read, so it must not open anything: see [sinks.Opener].
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

// Functions supplies the handlers of a sink of kind function. Their types must be
// registered with [Types].
func Functions(sink string, handlers ...function.Handler) Option {
	return func(p *parts) { p.supply(sink, false, handlers) }
}

// FunctionsTx supplies the handlers of a sink of kind function, whose effects happen once, even where a delivery
// is repeated. Make them with [inbox.OnTx]:
//
//	program.FunctionsTx("warehouse", inbox.OnTx(func(ctx context.Context, tx *sql.Tx, n OrderPlaced) error { … }))
//
// Each delivery has a transaction of the database that the configuration names, on PostgreSQL, MySQL and SQLite. If all
// handlers of the type return nil, it commits, with what they have written in tx and with the notification's
// id, and a repeated delivery calls no handler. An error rolls everything back, and has its class as with
// Functions. A delivery in flight holds one of the program's ten connections to a server; see [inbox.Mux] for
// the rest. The sink cannot be used with several databases.
func FunctionsTx(sink string, handlers ...function.Handler) Option {
	return func(p *parts) { p.supply(sink, true, handlers) }
}

func (p *parts) supply(sink string, once bool, handlers []function.Handler) {
	if before, taken := p.once[sink]; taken && before != once {
		p.mistakes = append(p.mistakes, fmt.Errorf("the sink %q has functions from both Functions and FunctionsTx: use two sinks", sink))
	}
	p.functions[sink], p.once[sink] = append(p.functions[sink], handlers...), once
}

// inTransactions makes a sink of functions work in transactions, if FunctionsTx supplies them.
func (p *parts) inTransactions(in sinks.Instance, functions sinks.Sink) sinks.Sink {
	if !p.once[in.Name] {
		return functions
	}
	return &onceFunctions{Sink: functions, types: in.Types, handlers: p.functions[in.Name]}
}

// Middleware wraps every delivery of every sink, the first one outermost; see
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

// Hooks sets functions that are called with the outcome of every delivery of every sink;
// see [forwarder.Hooks].
func Hooks(hooks forwarder.Hooks) Option {
	return func(p *parts) {
		if p.hooked {
			p.mistakes = append(p.mistakes, errTwice("hooks"))
		}
		p.Hooks, p.hooked = hooks, true
	}
}

// Observer sets an observer of what the forwarder does, beside the program's own metrics.
func Observer(observer event.Observer) Option {
	return func(p *parts) { once(p, "an observer", &p.Observer, observer) }
}

// HTTPClient sets the client for the requests of all sinks that speak HTTP; see
// [sinks.Instance].
func HTTPClient(client *http.Client) Option {
	return func(p *parts) { once(p, "an HTTP client", &p.HTTPClient, client) }
}

// Dial sets the function that opens the TCP connections of sinks; see [sinks.Instance].
// Connections to the database do not use it.
func Dial(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return func(p *parts) {
		if p.Dial != nil {
			p.mistakes = append(p.mistakes, errTwice("a dial function"))
		}
		p.Dial = dial
	}
}

// Stores adds object stores for bodies that are too large for a message, by the schemes of their
// addresses, such as s3. Schemes must be unique.
func Stores(stores map[string]sinks.OpenStore) Option {
	return func(p *parts) {
		for _, scheme := range slices.Sorted(maps.Keys(stores)) {
			add(p, "store", p.Stores, scheme, stores[scheme], stores[scheme] == nil)
		}
	}
}

// Masters adds places of the master key of private values, by the schemes of their addresses, such as
// awskms. Schemes must be unique.
func Masters(masters map[string]privacy.OpenMaster) Option {
	return func(p *parts) {
		for _, scheme := range slices.Sorted(maps.Keys(masters)) {
			add(p, "master key", p.Masters, scheme, masters[scheme], masters[scheme] == nil)
		}
	}
}

// add adds what opens addresses of a scheme.
func add[T any](p *parts, what string, all map[string]T, scheme string, open T, none bool) {
	switch _, taken := all[scheme]; {
	case taken:
		p.mistakes = append(p.mistakes, fmt.Errorf("the %s %s:// is supplied twice", what, scheme))
	case none:
		p.mistakes = append(p.mistakes, fmt.Errorf("the constructor of the %s %s:// is nil", what, scheme))
	}
	all[scheme] = open
}

// once sets an option that may be given once only.
func once[T comparable](p *parts, what string, field *T, value T) {
	var none T
	if *field != none {
		p.mistakes = append(p.mistakes, errTwice(what))
	}
	*field = value
}

func errTwice(what string) error { return fmt.Errorf("the options give the program %s twice", what) }

// partsOf applies the options, and adds the built-in kinds.
func partsOf(options []Option) (*parts, error) {
	p := &parts{
		Options:   config.Options{Stores: make(map[string]sinks.OpenStore), Masters: make(map[string]privacy.OpenMaster)},
		supplied:  make(map[string]func(sinks.Instance) (sinks.Sink, error)),
		functions: make(map[string][]function.Handler),
		once:      make(map[string]bool),
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
		function.Kind(p.functions, p.inTransactions),
		httpsink.Kind(),
		jsonlines.Kind(),
		kafka.Kind(watermill.Library{}),
		process.Kind(),
		sinks.GoKind(p.supplied),
		webhooks.Kind(),
	}, p.kinds...)...)
	return p, errors.Join(append(p.mistakes, err)...)
}
