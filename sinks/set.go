package sinks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/registry"
)

// Errors of a Set.
var (
	ErrDuplicateKind = errors.New("two sink kinds have one name")
	ErrUnknownKind   = errors.New("unknown sink kind")
	ErrKind          = errors.New("a sink kind is of no use")
)

// Instance is what the program gives a sink that is built, beside its configuration.
// The zero value of each field stands for none.
type Instance struct {
	// Name is the sink's name in the configuration.
	Name string
	// Logger carries the sink's name already. A kind gets one in any case.
	Logger *slog.Logger
	// Types are those that the program knows, for sinks that decode payloads into Go
	// values.
	Types *registry.Registry
	// HTTPClient makes the requests of sinks that speak HTTP, in place of a client of
	// their own. What the configuration says of connections (proxy, TLS, guard) is then
	// the client's affair, and refused.
	HTTPClient *http.Client
	// Dial opens the TCP connections of sinks that make any, in place of a dialer of
	// their own. It must be safe for concurrent use.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Defaulter is a configuration that fills what the user left out, and nothing else: a
// field that is not zero stays as it is. It runs before the user's values are decoded
// over it, and may run again.
type Defaulter interface {
	SetDefaults()
}

// Validator is a configuration that can tell what is wrong with it. All
// mistakes are reported at once, joined with errors.Join, each naming the field
// as the user typed it.
type Validator interface {
	Validate() error
}

// Kind is a way of delivering: kafka, http, email, or one of the user's own. Make it with
// [NewKind].
type Kind struct {
	// Name is what stands behind "kind:" in the configuration.
	Name string
	// Summary is one line for the reference.
	Summary string
	// Answers are for the reference, in the order of their importance.
	Answers []Answer

	newConfig func() any
	build     func(Instance, any) (Sink, error)
}

// Answer is what a destination may say to a delivery, and what the sink makes of it, in
// Markdown.
type Answer struct {
	// Says is in the destination's words, such as "HTTP 401, 403".
	Says string
	// Means is "delivered", or the class of the error, with a condition where there is one.
	Means string
}

// NewKind makes a kind whose configuration is the struct C, not a pointer to one. C is the only
// source of decoding (field tag "yaml"), defaults ([Defaulter]), validation
// ([Validator]) and of the generated reference and schema: field tag "doc", which
// ends with "Required" or "Default …" where one of them is true, and "enum", the
// values of a text with commas in between, where only these are valid. Fields with the
// tag yaml:"-" are for Go only. Field tag
// "secret" says what is shown neither in waybill config show nor in mistakes:
//
//   - "true": the whole value, and all values below, but no names of a map
//   - "password": the password in an address, which is a URL or a list of key=value
//   - "url": all of a URL but scheme, user, host and port; a user without a password too
//   - "arguments": all of a command line, as a list, but the program and names of flags
//   - "false": nothing
//
// Without the tag it is "password", and "true" where the key has the name of a secret,
// such as api_key or token. Whatever else the tag says is "true".
func NewKind[C any](name, summary string, build func(Instance, C) (Sink, error), answers ...Answer) Kind {
	k := Kind{
		Name:    name,
		Summary: summary,
		Answers: answers,
		newConfig: func() any {
			c := new(C)
			if d, ok := any(c).(Defaulter); ok {
				d.SetDefaults()
			}
			return c
		},
	}
	if build != nil {
		k.build = func(in Instance, config any) (Sink, error) { return build(in, *config.(*C)) }
	}
	return k
}

// Config returns a new pointer to the kind's configuration with its defaults
// set, for the reference and for tests.
func (k Kind) Config() any { return k.newConfig() }

// Build makes a sink. decode fills the configuration that it is handed a pointer to, such
// as yaml.Node.Decode; the result is validated before the sink is built. Nothing is opened
// or connected. A constructor that panics is an error.
func (k Kind) Build(in Instance, decode func(config any) error) (sink Sink, err error) {
	config := k.newConfig()
	if err := decode(config); err != nil {
		return nil, err
	}
	if v, ok := config.(Validator); ok {
		if err := v.Validate(); err != nil {
			return nil, err
		}
	}
	if in.Logger == nil {
		in.Logger = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if p := recover(); p != nil {
			in.Logger.Error("the constructor of a sink panicked", "kind", k.Name, "panic", p, "stack", string(debug.Stack()))
			sink, err = nil, fmt.Errorf("the constructor of the kind %s panicked: %v", k.Name, p)
		}
	}()
	return k.build(in, config)
}

// Set is the kinds that a program knows. There is no global one: the program's
// composition root makes it of what it wants to offer. A nil one is empty. It does not
// change, and is safe for concurrent use.
type Set struct{ kinds map[string]Kind }

// NewSet makes a set. The error joins what is wrong with the kinds: ErrDuplicateKind for two
// of one name, and ErrKind for one that NewKind has not made of a name, a struct and a
// constructor.
func NewSet(kinds ...Kind) (*Set, error) {
	s := &Set{make(map[string]Kind, len(kinds))}
	var mistakes []error
	for _, k := range kinds {
		if err := k.check(); err != nil {
			mistakes = append(mistakes, err)
			continue
		}
		if _, taken := s.kinds[k.Name]; taken {
			mistakes = append(mistakes, fmt.Errorf("%w: %q", ErrDuplicateKind, k.Name))
		}
		s.kinds[k.Name] = k
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	return s, nil
}

func (k Kind) check() error {
	switch {
	case k.Name == "":
		return fmt.Errorf("%w: one has no name", ErrKind)
	case k.build == nil:
		return fmt.Errorf("%w: %q has no constructor: make it with NewKind", ErrKind, k.Name)
	}
	if c := reflect.TypeOf(k.newConfig()).Elem(); c.Kind() != reflect.Struct {
		return fmt.Errorf("%w: the configuration of %q is %s: use a struct, and not a pointer to one", ErrKind, k.Name, c)
	}
	return nil
}

// Build makes a sink of the named kind, as [Kind.Build] does.
func (s *Set) Build(kind string, in Instance, decode func(config any) error) (Sink, error) {
	k, known := s.Kind(kind)
	if !known {
		return nil, fmt.Errorf("%w %q; known are %s", ErrUnknownKind, kind, strings.Join(s.Names(), ", "))
	}
	return k.Build(in, decode)
}

// Names lists the kinds in alphabetical order.
func (s *Set) Names() []string {
	if s == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.kinds))
}

// Kind returns the kind of that name.
func (s *Set) Kind(name string) (Kind, bool) {
	if s == nil {
		return Kind{}, false
	}
	k, ok := s.kinds[name]
	return k, ok
}
