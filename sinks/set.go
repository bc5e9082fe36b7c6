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
	ErrDuplicateKind = errors.New("two sink kinds have the same name")
	ErrUnknownKind   = errors.New("unknown sink kind")
	ErrKind          = errors.New("invalid sink kind")
)

// Instance is what the program provides to a sink when it is built, besides the sink's
// configuration. Every field may be zero.
type Instance struct {
	// Name is the sink's name in the configuration.
	Name string
	// Logger already has the sink's name as an attribute. [Kind.Build] never passes nil.
	Logger *slog.Logger
	// Types are the program's notification types, for sinks that decode payloads to Go
	// values.
	Types *registry.Registry
	// Contracts are the schemas of the program's types and of those in the configuration; nil: none.
	Contracts Contracts
	// HTTPClient makes the requests of sinks that speak HTTP, instead of a client that the
	// sink makes. Settings of connections in the sink's configuration (proxy, tls, guard)
	// are then refused, because they belong to the client.
	HTTPClient *http.Client
	// Dial opens the TCP connections of sinks, instead of a dialer that the sink makes. It
	// must be safe for concurrent use.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Stores open the stores of bodies that are too large for a message, by the scheme of their addresses.
	Stores map[string]OpenStore
}

// Defaulter is a configuration that sets its own defaults. SetDefaults changes only fields that
// are zero. It is called before the user's values are decoded, and may be called again.
type Defaulter interface {
	SetDefaults()
}

// Validator is a configuration that checks itself. Validate returns all mistakes, joined with
// errors.Join. Each error begins with the key as the user typed it.
type Validator interface {
	Validate() error
}

// Builder is the configuration of a kind, such as email.Config, that builds its sink without a file. Build
// fills in defaults, and opens nothing. Its error joins all mistakes, each of which begins with the key.
type Builder interface {
	Build(in Instance) (Sink, error)
}

// Kind is a kind of sink: kafka, http, email, or one of your own. Make it with [NewKind].
type Kind struct {
	// Name is the value of "kind" in the configuration.
	Name string
	// Summary describes the kind in one line, for the reference.
	Summary string
	// Answers explain the destination's answers, for the reference.
	Answers []Answer

	newConfig func() any
	build     func(Instance, any) (Sink, error)
}

// Answer is an answer of a destination and what it means to the engine, in Markdown.
type Answer struct {
	// Says is the answer in the destination's terms, such as "HTTP 401, 403".
	Says string
	// Means is "delivered" or the class of the error, with a condition if there is one.
	Means string
}

// NewKind makes a kind whose configuration is the struct C (not a pointer). [Defaulter] sets its
// defaults and [Validator] checks it. Its field tags are:
//
//   - "yaml": the key; yaml:"-" for fields that only Go code sets
//   - "doc": the description, for the reference and the schema; it ends with "Required" or
//     "Default …" if one of them applies
//   - "enum": the allowed values of a text, separated by commas
//   - "secret": the part of the value that neither waybill config show nor errors show
//
// The values of "secret" are:
//
//   - "true": the whole value, and all values below it, but not the names in a map
//   - "password": the password in an address, which is a URL or has the form key=value
//   - "url": everything in a URL but scheme, user, host and port; also a user without a password
//   - "arguments": everything in a list of arguments but the program and the names of flags
//   - "false": nothing
//
// The default is "true" for keys with the name of a secret, such as api_key or token, and
// "password" for all others. An unknown value means "true".
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

// Config returns a pointer to a new configuration of the kind with its defaults, for the
// reference and for tests.
func (k Kind) Config() any { return k.newConfig() }

// Build makes a sink. decode fills the configuration through a pointer, as yaml.Node.Decode does.
// The configuration is validated before the sink is built. Nothing is opened or connected. If the
// constructor panics, Build returns an error.
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
	if sink, err = k.build(in, config); err != nil {
		return nil, err // the constructor may return a typed nil
	}
	return sink, nil
}

// Set is the kinds that a configuration can use. It is immutable and safe for concurrent use. A nil
// set is empty. There is no global set: each program makes its own.
type Set struct{ kinds map[string]Kind }

// NewSet makes a set. Its error joins all mistakes: ErrDuplicateKind for two kinds with the same
// name, and ErrKind for a kind without a name or a constructor, or whose configuration is not a
// struct.
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
		return fmt.Errorf("%w: the configuration of %q is %s: use a struct, not a pointer", ErrKind, k.Name, c)
	}
	return nil
}

// Build makes a sink of the named kind with [Kind.Build]. It returns ErrUnknownKind if the set
// does not have it.
func (s *Set) Build(kind string, in Instance, decode func(config any) error) (Sink, error) {
	k, known := s.Kind(kind)
	if !known {
		return nil, fmt.Errorf("%w %q; the known kinds are %s", ErrUnknownKind, kind, strings.Join(s.Names(), ", "))
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
