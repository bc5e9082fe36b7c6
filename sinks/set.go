package sinks

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// Errors of a Set.
var (
	ErrDuplicateKind = errors.New("sink kind is registered twice")
	ErrUnknownKind   = errors.New("unknown sink kind")
)

// Instance is what the engine tells a sink about itself when it is built.
type Instance struct {
	// Name is the sink's name in the configuration.
	Name string
	// Logger carries the sink's name already. Never nil.
	Logger *slog.Logger
}

// Defaulter is a configuration that fills what the user left out. It runs
// before the user's values are decoded over it.
type Defaulter interface {
	SetDefaults()
}

// Validator is a configuration that can tell what is wrong with it. All
// mistakes are reported at once, joined with errors.Join, each naming the field
// as the user typed it.
type Validator interface {
	Validate() error
}

// Kind is a way of delivering: kafka, http, email, or one of the user's own.
type Kind struct {
	// Name is what stands behind "kind:" in the configuration.
	Name string
	// Summary is one line for the reference.
	Summary string

	newConfig func() any
	build     func(Instance, any) (Sink, error)
}

// Config returns a new pointer to the kind's configuration with its defaults
// set, for the reference and for tests.
func (k Kind) Config() any { return k.newConfig() }

// Set is the kinds that a program knows. There is no global one: the program's
// composition root makes it and registers what it wants to offer. The zero
// value is an empty set; it is safe for concurrent use.
type Set struct {
	mu    sync.RWMutex
	kinds map[string]Kind
}

// Register adds a kind whose configuration is the struct C. C is the only
// source of decoding (field tag "yaml"), defaults ([Defaulter]), validation
// ([Validator]) and of the generated reference and schema: field tag "doc", which
// ends with "Required" or "Default …" where one of them is true, and "enum", the
// values of a text with commas in between, where only these are valid. Field tag
// "secret" says what nobody is shown, in waybill config show and in mistakes:
//
//   - "true": the whole value, and all values below, but no names of a map
//   - "password": the password in an address, which is a URL or a list of key=value
//   - "url": all of a URL but scheme, user, host and port; a user without a password too
//   - "arguments": all of a command line, as a list, but the program and names of flags
//   - "false": nothing
//
// Without the tag it is "password", and "true" where the key has the name of a secret,
// such as api_key or token. Whatever else the tag says is "true".
// A name that is taken gives ErrDuplicateKind.
func Register[C any](s *Set, name, summary string, build func(Instance, C) (Sink, error)) error {
	kind := Kind{
		Name:    name,
		Summary: summary,
		newConfig: func() any {
			c := new(C)
			if d, ok := any(c).(Defaulter); ok {
				d.SetDefaults()
			}
			return c
		},
		build: func(in Instance, config any) (Sink, error) { return build(in, *config.(*C)) },
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.kinds[name]; taken {
		return fmt.Errorf("%w: %q", ErrDuplicateKind, name)
	}
	if s.kinds == nil {
		s.kinds = make(map[string]Kind)
	}
	s.kinds[name] = kind
	return nil
}

// Build makes a sink of the named kind. decode fills the configuration that it
// is handed a pointer to, such as yaml.Node.Decode; the result is validated
// before the sink is built. Nothing is opened or connected.
func (s *Set) Build(kind string, in Instance, decode func(config any) error) (Sink, error) {
	s.mu.RLock()
	k, known := s.kinds[kind]
	s.mu.RUnlock()
	if !known {
		return nil, fmt.Errorf("%w %q; known are %s", ErrUnknownKind, kind, strings.Join(s.Names(), ", "))
	}
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
	return k.build(in, config)
}

// Names lists the registered kinds in alphabetical order.
func (s *Set) Names() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	names := make([]string, 0, len(s.kinds))
	for name := range s.kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Kind returns the kind of that name.
func (s *Set) Kind(name string) (Kind, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	k, ok := s.kinds[name]
	return k, ok
}
