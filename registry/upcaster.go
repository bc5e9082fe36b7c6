package registry

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// Upcast converts a payload of version from to version from + 1:
//
//	registry.Register[OrderPlaced](types, "order.placed",
//		registry.Version(3),
//		registry.Upcast(1, func(old OrderPlacedV1) (OrderPlacedV2, error) { … }),
//		registry.Upcast(2, func(old OrderPlacedV2) (OrderPlaced, error) { … }),
//	)
//
// The type's serializer reads an old payload into From, and the upcasters convert it
// step by step. Each To is the From of the next step, and the last To is the
// registered type; a pointer and its value count as the same. A missing step, or
// steps that do not fit together, give ErrUpcaster. Keep the structs of old versions
// for this, but do not register them.
//
// convert must be safe for concurrent use. It never gets a nil pointer, and must not
// return one. If it returns an error, Decode fails.
func Upcast[From, To any](from int, convert func(From) (To, error)) TypeOption {
	u := upcaster{from: from, input: reflect.TypeFor[From](), output: reflect.TypeFor[To]()}
	u.convert = func(p any) (any, error) {
		to, err := convert(valueAt[From](p))
		if err != nil {
			return nil, err
		}
		return pointerAt(to)
	}
	return func(d *definition) error {
		if convert == nil {
			return fmt.Errorf("%w: the one from %d is nil", ErrUpcaster, from)
		}
		if err := errors.Join(checkGoType(u.input), checkGoType(u.output)); err != nil {
			return fmt.Errorf("%w: the one from %d: %w", ErrUpcaster, from, err)
		}
		d.upcasters = append(d.upcasters, u)
		return nil
	}
}

// upcaster converts a version to the next one. convert gets and returns a pointer.
type upcaster struct {
	from          int
	input, output reflect.Type
	convert       func(p any) (any, error)
}

// checkUpcasters sorts the upcasters. It returns the mistakes unless there is exactly one for each
// version from the oldest to the one before the newest, and each fits the next.
func (d *definition) checkUpcasters() []error {
	slices.SortStableFunc(d.upcasters, func(a, b upcaster) int { return a.from - b.from })
	var problems []error
	given := make(map[int]bool, len(d.upcasters))
	for _, u := range d.upcasters {
		switch {
		case given[u.from]:
			problems = append(problems, fmt.Errorf("%w: two from version %d", ErrUpcaster, u.from))
		case u.from < d.oldest || u.from >= d.version:
			problems = append(problems, fmt.Errorf("%w: there is one from version %d, but the oldest version is %d and the newest %d", ErrUpcaster, u.from, d.oldest, d.version))
		}
		given[u.from] = true
	}
	var missing []int
	for from := d.oldest; from < d.version; from++ {
		if !given[from] {
			missing = append(missing, from)
		}
	}
	if len(missing) > 0 {
		problems = append(problems, fmt.Errorf("%w: version %d needs an upcaster from each version since %d; missing %v: add registry.Upcast(%d, …), or registry.Oldest(%d) if no older version is stored",
			ErrUpcaster, d.version, d.oldest, missing, missing[0], missing[len(missing)-1]+1))
	}
	if len(problems) > 0 {
		return problems
	}
	return d.checkSteps()
}

// checkSteps returns an error for each upcaster whose result does not fit the next one, and for each
// old type that the serializer refuses.
func (d *definition) checkSteps() []error {
	var problems []error
	for i, u := range d.upcasters {
		next, receiver := d.goType, "the registered type is"
		if i+1 < len(d.upcasters) {
			next, receiver = d.upcasters[i+1].input, fmt.Sprintf("the one from %d takes", u.from+1)
		}
		if baseOf(u.output) != baseOf(next) {
			problems = append(problems, fmt.Errorf("%w: the one from %d returns %s, but %s %s", ErrUpcaster, u.from, u.output, receiver, next))
		}
		if err := d.checkSerializer(u.input); err != nil {
			problems = append(problems, fmt.Errorf("%w: the one from %d: %w", ErrUpcaster, u.from, err))
		}
	}
	return problems
}
