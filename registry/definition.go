package registry

import (
	"fmt"
	"reflect"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/serializer"
)

// definition is one registered type. It is immutable after registration. Internally, a notification
// is always a pointer to the base type, in an any. So T and *T are handled in the same way, without
// copies.
type definition struct {
	name    string
	goType  reflect.Type // T of Register
	base    reflect.Type // goType without its pointer
	version int
	oldest  int
	aliases []string

	serializer  serializer.Serializer
	contentType string
	key         func(p any) string // nil without an ordering key
	private     []private
	// privateFields are those of Private, one list for each of private.
	privateFields [][]string
	upcasters     []upcaster      // from the versions oldest to version-1
	value         func(p any) any // converts p to goType

	about   Description
	schemas map[int]string // given JSON Schemas by version
}

func newDefinition[T any](name string) *definition {
	t := reflect.TypeFor[T]()
	return &definition{
		name:    name,
		goType:  t,
		base:    baseOf(t),
		version: 1,
		oldest:  1,
		value:   func(p any) any { return valueAt[T](p) },
	}
}

// apply applies the options and returns their errors.
func (d *definition) apply(opts []TypeOption, fallback serializer.Serializer) []error {
	d.serializer = fallback
	var problems []error
	for _, opt := range opts {
		if err := opt(d); err != nil {
			problems = append(problems, err)
		}
	}
	d.contentType = d.serializer.ContentType()
	return append(problems, d.resolvePrivate()...)
}

// check returns the mistakes in the definition itself.
func (d *definition) check() []error {
	var problems []error
	given := make(map[string]bool)
	for _, name := range d.names() {
		if err := notification.ValidateType(name); err != nil {
			problems = append(problems, err)
		}
		if notification.IsReserved(name) {
			problems = append(problems, fmt.Errorf("%w: %q begins with %q, as only Waybill's own types do: choose another name; for what the log has as %[2]q, add a route of that name, since * does not match it",
				ErrReservedName, name, notification.ReservedPrefix))
		}
		if given[name] {
			problems = append(problems, fmt.Errorf("%w: %q is also among the aliases", ErrDuplicateName, name))
		}
		given[name] = true
	}
	if err := d.checkSerializer(d.goType); err != nil {
		problems = append(problems, fmt.Errorf("%w: %w", ErrOption, err))
	}
	if d.version < 1 || d.version > notification.MaxVersion {
		return append(problems, fmt.Errorf("%w: version %d is outside 1..%d", notification.ErrInvalid, d.version, notification.MaxVersion))
	}
	if d.oldest < 1 || d.oldest > d.version {
		return append(problems, fmt.Errorf("%w: oldest version %d is outside 1..%d", notification.ErrInvalid, d.oldest, d.version))
	}
	return append(append(problems, d.checkUpcasters()...), d.checkDescription()...)
}

func (d *definition) checkSerializer(t reflect.Type) error {
	if c, ok := d.serializer.(serializer.TypeChecker); ok {
		return c.CheckType(t)
	}
	return nil
}

// encode returns the envelope of *p.
func (d *definition) encode(p any) (*notification.Envelope, error) {
	payload, err := d.serializer.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w", ErrEncode, d.name, err)
	}
	e := &notification.Envelope{
		Type:     d.name,
		Version:  d.version,
		Metadata: notification.Metadata{notification.MetadataContentType: d.contentType},
		Payload:  payload,
	}
	if d.key != nil {
		e.Key = d.key(p)
	}
	return e, nil
}

// decode returns a pointer to the notification of e in the newest version.
func (d *definition) decode(e *notification.Envelope) (any, error) {
	if err := d.readable(e); err != nil {
		return nil, fmt.Errorf("decode %q version %d: %w", e.Type, e.Version, err)
	}
	steps := d.upcasters[e.Version-d.oldest:]
	stored := d.base
	if len(steps) > 0 {
		stored = baseOf(steps[0].input)
	}
	p := reflect.New(stored).Interface()
	if err := d.serializer.Unmarshal(e.Payload, p); err != nil {
		return nil, fmt.Errorf("decode %q version %d: %w: %w", e.Type, e.Version, ErrDecode, err)
	}
	for _, step := range steps {
		var err error
		if p, err = step.convert(p); err != nil {
			return nil, fmt.Errorf("decode %q version %d: %w: upcast from %d: %w", e.Type, e.Version, ErrDecode, step.from, err)
		}
	}
	return p, nil
}

// readable returns an error if this program cannot read e's payload.
func (d *definition) readable(e *notification.Envelope) error {
	switch contentType := e.Metadata.Get(notification.MetadataContentType); {
	case e.Version < 1:
		return fmt.Errorf("%w: versions begin with 1", ErrVersion)
	case e.Version > d.version:
		return fmt.Errorf("%w: the newest registered is %d; deploy the program that reads version %d first", ErrNewerVersion, d.version, e.Version)
	case e.Version < d.oldest:
		return fmt.Errorf("%w: the oldest registered is %d; lower registry.Oldest and add registry.Upcast(%d, …)", ErrVersion, d.oldest, e.Version)
	case contentType != "" && contentType != d.contentType && !serializer.Accepts(d.serializer, contentType):
		return fmt.Errorf("%w: it is %q, but the type is registered with %q; set the type's serializer with registry.Serializer, or correct the metadata %q in the publisher",
			ErrContentType, contentType, d.contentType, notification.MetadataContentType)
	}
	return nil
}

// names returns the name and the aliases.
func (d *definition) names() []string { return append([]string{d.name}, d.aliases...) }

// String identifies the definition in errors of other types.
func (d *definition) String() string { return fmt.Sprintf("%s (%q)", d.goType, d.name) }
