package registry

import (
	"fmt"
	"reflect"

	"github.com/waybill-go/waybill/serializer"
)

// Option is an option of New.
type Option func(*Registry)

// DefaultSerializer serializes the types that are registered without one of
// their own. Without this option, and with nil, that is serializer.JSON.
func DefaultSerializer(s serializer.Serializer) Option {
	return func(r *Registry) { r.serializer = s }
}

// TypeOption is an option of Register.
type TypeOption func(*definition) error

// Version is the version that the program writes, 1..notification.MaxVersion.
// Without this option it is 1. A version above 1 needs an [Upcast] from each
// version below it, down to the [Oldest].
func Version(n int) TypeOption {
	return func(d *definition) error {
		d.version = n
		return nil
	}
}

// Oldest is the oldest version that can still be read; without this option, 1.
// Raise it once no envelope of an older version is left to deliver or replay,
// and delete the upcasters from those.
func Oldest(n int) TypeOption {
	return func(d *definition) error {
		d.oldest = n
		return nil
	}
}

// Aliases are older names of the type. Envelopes that bear them are read as if
// they bore its name; it is never written under them. Given twice, they add up.
func Aliases(names ...string) TypeOption {
	return func(d *definition) error {
		d.aliases = append(d.aliases, names...)
		return nil
	}
}

// Key takes the ordering key from each notification: those with the same key
// are delivered in the order in which they were published. "", and a type
// without this option, ask for no order. T is the registered type or the
// pointer to it; any other gives ErrOption.
//
// key must be safe for parallel calls. It gets no nil pointer.
func Key[T any](key func(T) string) TypeOption {
	return func(d *definition) error {
		if key == nil {
			return fmt.Errorf("%w: registry.Key is nil; leave it out for a type without order", ErrOption)
		}
		if t := reflect.TypeFor[T](); !isOrPointsTo(t, d.base) {
			return fmt.Errorf("%w: registry.Key takes %s; it must take %s", ErrOption, t, d.goType)
		}
		d.key = func(p any) string { return key(valueAt[T](p)) }
		return nil
	}
}

// Serializer serializes this type, in all its versions, in place of the
// registry's default.
func Serializer(s serializer.Serializer) TypeOption {
	return func(d *definition) error {
		if s == nil {
			return fmt.Errorf("%w: registry.Serializer is nil; leave it out for the default", ErrOption)
		}
		d.serializer = s
		return nil
	}
}
