// Package registry gives Go types names as notifications. It also has each type's
// version, ordering key and serializer, and how to read older versions.
//
// Any struct can be a notification; it needs no base type and no marker. Register
// each type at the start of the program, under a name that never changes:
//
//	types := registry.New()
//	err := errors.Join(
//		registry.Register[OrderPlaced](types, "order.placed", registry.Key(OrderPlaced.Customer)),
//		registry.Register[OrderShipped](types, "order.shipped"),
//	)
//
// The publisher turns values into envelopes with [Registry.Encode], and handlers
// get the values back with [Decode]. Stored envelopes outlive the code that wrote
// them, so plan changes of a type:
//
//   - For a new name, register the type under it, with [Aliases] for the old name.
//   - For a changed payload, keep the old struct, raise [Version], and convert the
//     old version to the new one with [Upcast]. Handlers see only the newest version.
//   - A new field needs neither.
package registry

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/serializer"
)

// Registry is a set of notification types. The zero value is an empty registry that
// serializes to JSON; New takes options. It must not be copied.
//
// All methods and Register are safe for concurrent use; Encode and Decode take no lock.
type Registry struct {
	serializer serializer.Serializer

	registering sync.Mutex
	// types is immutable. Register replaces it.
	types atomic.Pointer[catalogue]
}

// catalogue is an immutable set of types.
type catalogue struct {
	byName map[string]*definition       // also by alias
	byType map[reflect.Type]*definition // also by pointer type
}

// New returns an empty registry.
func New(opts ...Option) *Registry {
	r := new(Registry)
	for _, opt := range opts {
		opt(r)
	}
	return r
}

// Register registers T as a notification type with this name. T is a struct or another type that can
// be serialized, or a pointer to one; generated Protocol Buffers messages must be registered by their
// pointer. T and *T are the same notification type, so either can be published and handled.
// [Registry.Decode] returns a T.
//
// Its error joins all mistakes; see [ErrDuplicateName] and the other errors. The registry is then
// unchanged.
func Register[T any](r *Registry, name string, opts ...TypeOption) error {
	d := newDefinition[T](name)
	if err := r.register(d, opts); err != nil {
		return fmt.Errorf("register %s as %q: %w", d.goType, name, err)
	}
	return nil
}

func (r *Registry) register(d *definition, opts []TypeOption) error {
	if err := checkGoType(d.goType); err != nil {
		return err
	}
	problems := d.apply(opts, r.defaultSerializer())
	problems = append(problems, d.check()...)

	r.registering.Lock()
	defer r.registering.Unlock()
	now := r.catalogue()
	problems = append(problems, now.conflicts(d)...)
	if err := errors.Join(problems...); err != nil {
		return err
	}
	r.types.Store(now.with(d))
	return nil
}

// Encode returns an envelope of v with type, version, key and payload, and with the
// content type in the metadata. The publisher adds id, time and other metadata; the
// caller may change the envelope. v is a value of a registered type or a pointer to
// one; it is not kept.
//
// It fails with ErrNil, ErrUnregistered or ErrEncode.
func (r *Registry) Encode(v any) (*notification.Envelope, error) {
	d, err := r.definitionOf(v)
	if err != nil {
		return nil, err
	}
	p, err := pointerTo(v)
	if err != nil {
		return nil, err
	}
	return d.encode(p)
}

// Decode returns the notification of e in the newest version of its type, as a value
// of the Go type that was registered, never a nil pointer. It does not change e.
//
// It fails with ErrUnknownType, ErrVersion (ErrNewerVersion, which wraps it, for a newer version),
// ErrContentType or ErrDecode, and with ErrNil if e is nil.
func (r *Registry) Decode(e *notification.Envelope) (any, error) {
	d, err := r.definitionFor(e)
	if err != nil {
		return nil, err
	}
	p, err := d.decode(e)
	if err != nil {
		return nil, err
	}
	return d.value(p), nil
}

// Newest returns e with its payload in the newest version of its type, for those who read payloads
// without the Go type, such as templates and expressions. It returns e itself if it has that version,
// and otherwise a copy; it does not change e.
//
// It fails with ErrUnknownType, and for another version like Decode, or with ErrEncode.
func (r *Registry) Newest(e *notification.Envelope) (*notification.Envelope, error) {
	d, err := r.definitionFor(e)
	if err != nil {
		return nil, err
	}
	if e.Version == d.version {
		return e, nil
	}
	p, err := d.decode(e)
	if err != nil {
		return nil, err
	}
	converted, err := d.encode(p)
	if err != nil {
		return nil, err
	}
	newest := *e
	newest.Version, newest.Payload = converted.Version, converted.Payload
	newest.Metadata = e.Metadata.Clone()
	maps.Copy(newest.Metadata, converted.Metadata) // the content type
	return &newest, nil
}

// Decode returns the notification of e as a T, which is a registered type or a
// pointer to one. It fails like [Registry.Decode], and with ErrOtherType if e is
// not a T.
func Decode[T any](r *Registry, e *notification.Envelope) (T, error) {
	var none T
	d, err := r.definitionFor(e)
	if err != nil {
		return none, err
	}
	if want := reflect.TypeFor[T](); !isOrPointsTo(want, d.base) {
		return none, fmt.Errorf("%w: %q is %s, not %s; decode it as that, or route it elsewhere", ErrOtherType, e.Type, d.goType, want)
	}
	p, err := d.decode(e)
	if err != nil {
		return none, err
	}
	return valueAt[T](p), nil
}

// Name returns the registered name of v's type. v is a value or a pointer, which may be nil. Name
// fails with ErrNil if v is nil without a type, or with ErrUnregistered.
func (r *Registry) Name(v any) (string, error) {
	d, err := r.definitionOf(v)
	if err != nil {
		return "", err
	}
	return d.name, nil
}

// NameOf returns the registered name of T, which may be a pointer type. It fails with
// ErrUnregistered.
func NameOf[T any](r *Registry) (string, error) {
	t := reflect.TypeFor[T]()
	d, known := r.catalogue().byType[t]
	if !known {
		return "", unregistered(t)
	}
	return d.name, nil
}

// NamesOf returns the registered names of T in alphabetical order: one, or, if T is an interface, that
// of each registered type which implements it, or to which a pointer does. It fails with ErrUnregistered if there is none.
func NamesOf[T any](r *Registry) ([]string, error) {
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Interface {
		name, err := NameOf[T](r)
		return []string{name}, err
	}
	var names []string
	for registered, d := range r.catalogue().byType {
		if registered == d.goType && (registered.Implements(t) || reflect.PointerTo(registered).Implements(t)) {
			names = append(names, d.name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: no registered type implements %s", ErrUnregistered, t)
	}
	slices.Sort(names)
	return names, nil
}

// Lookup returns the type with this name or alias.
func (r *Registry) Lookup(name string) (Info, bool) {
	d, known := r.catalogue().byName[name]
	if !known {
		return Info{}, false
	}
	return d.info(), true
}

// Types lists the registered types in the order of their names.
func (r *Registry) Types() []Info {
	byName := r.catalogue().byName
	types := make([]Info, 0, len(byName))
	for name, d := range byName {
		if name == d.name {
			types = append(types, d.info())
		}
	}
	slices.SortFunc(types, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return types
}

func (r *Registry) defaultSerializer() serializer.Serializer {
	if r.serializer == nil {
		return serializer.JSON{}
	}
	return r.serializer
}

// definitionOf returns the definition of a value's type.
func (r *Registry) definitionOf(v any) (*definition, error) {
	t := reflect.TypeOf(v)
	if t == nil {
		return nil, fmt.Errorf("%w: publish a value of a registered type", ErrNil)
	}
	d, known := r.catalogue().byType[t]
	if !known {
		return nil, unregistered(t)
	}
	return d, nil
}

// definitionFor returns the definition of an envelope's type.
func (r *Registry) definitionFor(e *notification.Envelope) (*definition, error) {
	if e == nil {
		return nil, fmt.Errorf("%w: the envelope to decode is nil", ErrNil)
	}
	d, known := r.catalogue().byName[e.Type]
	if !known {
		return nil, fmt.Errorf("%w %q: register it, or add registry.Aliases(%q) to the type that replaces it", ErrUnknownType, e.Type, e.Type)
	}
	return d, nil
}

var empty catalogue

func (r *Registry) catalogue() *catalogue {
	if c := r.types.Load(); c != nil {
		return c
	}
	return &empty
}

// conflicts returns the mistakes in d together with the registered types.
func (c *catalogue) conflicts(d *definition) []error {
	var problems []error
	for _, name := range d.names() {
		if other, taken := c.byName[name]; taken {
			problems = append(problems, fmt.Errorf("%w: %q is already the name of %s; choose another", ErrDuplicateName, name, other))
		}
	}
	if other, taken := c.byType[d.base]; taken {
		problems = append(problems, fmt.Errorf("%w: it is already %q, which %s and *%[3]s share; add older names with registry.Aliases", ErrDuplicateType, other.name, d.base))
	}
	return problems
}

// with returns a catalogue that also has d.
func (c *catalogue) with(d *definition) *catalogue {
	next := &catalogue{
		byName: make(map[string]*definition, len(c.byName)+1),
		byType: make(map[reflect.Type]*definition, len(c.byType)+2),
	}
	maps.Copy(next.byName, c.byName)
	maps.Copy(next.byType, c.byType)
	for _, name := range d.names() {
		next.byName[name] = d
	}
	next.byType[d.base] = d
	next.byType[reflect.PointerTo(d.base)] = d
	return next
}
