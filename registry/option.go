package registry

import (
	"fmt"
	"reflect"

	"github.com/waybill-go/waybill/serializer"
)

// Option is an option of New.
type Option func(*Registry)

// DefaultSerializer sets the serializer of types that are registered without
// [Serializer]. The default, also for nil, is serializer.JSON.
func DefaultSerializer(s serializer.Serializer) Option {
	return func(r *Registry) { r.serializer = s }
}

// TypeOption is an option of Register.
type TypeOption func(*definition) error

// Version sets the version that the program writes, 1..notification.MaxVersion. The
// default is 1. A version above 1 needs an [Upcast] from each version below it, down
// to the [Oldest].
func Version(n int) TypeOption {
	return func(d *definition) error {
		d.version = n
		return nil
	}
}

// Oldest sets the oldest version that can still be read. The default is 1. Raise it
// once no envelope of an older version is left to deliver or replay, and delete the
// upcasters of the older versions.
func Oldest(n int) TypeOption {
	return func(d *definition) error {
		d.oldest = n
		return nil
	}
}

// Aliases adds older names of the type. Envelopes with such a name are read as
// envelopes of the type; new ones always get the type's name.
func Aliases(names ...string) TypeOption {
	return func(d *definition) error {
		d.aliases = append(d.aliases, names...)
		return nil
	}
}

// Key sets the function that returns the ordering key of a notification.
// Notifications with the same key are delivered in the order of their commits, if
// their transactions wait for each other, such as on the row of the order; those with
// "", and types without this option, in any order. T is the registered type or a
// pointer to it; any other type gives ErrOption.
//
// key must be safe for concurrent use. It never gets a nil pointer.
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

// Serializer sets the serializer of this type, for all its versions, instead of the
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
