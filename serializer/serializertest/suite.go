// Package serializertest is the conformance suite of serializers. Every serializer runs it, and you
// can run it for your own:
//
//	func TestConformance(t *testing.T) {
//		serializertest.Run(t, msgpack.Serializer{}, serializertest.Fixture{
//			Samples:        []any{&OrderPlaced{OrderID: "o-1"}},
//			Unserializable: func() {},
//			Garbage:        []byte{0xc1},
//		})
//	}
package serializertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/waybill-go/waybill/serializer"
)

// Fixture has the test data for a serializer.
type Fixture struct {
	// Samples are pointers to values that the serializer must preserve. At least one is
	// required; it should have every kind of field.
	Samples []any
	// Unserializable is a value that Marshal must refuse.
	Unserializable any
	// Garbage is a payload that Unmarshal must refuse for the type of the first sample.
	Garbage []byte
	// Equal compares two pointers of a sample's type; nil means reflect.DeepEqual.
	Equal func(a, b any) bool
}

// Run checks s against the contract of [serializer.Serializer], with a subtest for each rule.
func Run(t *testing.T, s serializer.Serializer, f Fixture) {
	t.Helper()
	if len(f.Samples) == 0 {
		t.Fatal("serializertest: the fixture has no samples")
	}
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			if err := rule.check(s, f); err != nil {
				t.Error(err)
			}
		})
	}
}

// rules are functions that return errors, so that the tests of the suite can check that each of them
// fails.
var rules = []struct {
	name  string
	check func(serializer.Serializer, Fixture) error
}{
	{"the content type is a media type in lower case", checkContentType},
	{"the serializer accepts its own content type", checkAcceptsOwn},
	{"values are unchanged after a round trip", checkRoundTrip},
	{"equal values have equal payloads", checkEqualPayloads},
	{"payloads of a JSON content type are compact JSON", checkJSON},
	{"a payload belongs to the caller", checkPayloadOwned},
	{"unmarshalled values keep no reference to the payload", checkInputReleased},
	{"the error of an unserializable value names its Go type", checkUnserializable},
	{"the error of an invalid payload names the Go type", checkGarbage},
	{"calls can be concurrent", checkParallel},
}

func checkContentType(s serializer.Serializer, _ Fixture) error {
	contentType := s.ContentType()
	if contentType != s.ContentType() {
		return errors.New("ContentType differs from call to call")
	}
	if contentType != strings.ToLower(contentType) {
		return fmt.Errorf("content type %q is not in lower case", contentType)
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return fmt.Errorf("content type %q: %w", contentType, err)
	}
	if !strings.Contains(media, "/") {
		return fmt.Errorf("content type %q has no subtype", contentType)
	}
	return nil
}

func checkAcceptsOwn(s serializer.Serializer, _ Fixture) error {
	for _, contentType := range []string{s.ContentType(), strings.ToUpper(s.ContentType()), s.ContentType() + "; v=1"} {
		if !serializer.Accepts(s, contentType) {
			return fmt.Errorf("content type %q is not accepted", contentType)
		}
	}
	return nil
}

func checkRoundTrip(s serializer.Serializer, f Fixture) error {
	for _, sample := range f.Samples {
		data, err := s.Marshal(sample)
		if err != nil {
			return fmt.Errorf("marshal %T: %w", sample, err)
		}
		if err := f.reads(s, data, sample); err != nil {
			return err
		}
	}
	return nil
}

func checkEqualPayloads(s serializer.Serializer, f Fixture) error {
	for _, sample := range f.Samples {
		first, err := s.Marshal(sample)
		if err != nil {
			return err
		}
		for range 20 { // the order of maps differs each time
			again, err := s.Marshal(sample)
			if err != nil {
				return err
			}
			if !bytes.Equal(first, again) {
				return fmt.Errorf("%T became %q, then %q", sample, first, again)
			}
		}
	}
	return nil
}

func checkJSON(s serializer.Serializer, f Fixture) error {
	if !serializer.IsJSON(s.ContentType()) {
		return nil
	}
	for _, sample := range f.Samples {
		data, err := s.Marshal(sample)
		if err != nil {
			return err
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, data); err != nil {
			return fmt.Errorf("%T became %q, which is not JSON: %w", sample, data, err)
		}
		if !bytes.Equal(compact.Bytes(), data) {
			return fmt.Errorf("%T became %q, which has unnecessary spaces", sample, data)
		}
	}
	return nil
}

func checkPayloadOwned(s serializer.Serializer, f Fixture) error {
	for _, sample := range f.Samples {
		data, err := s.Marshal(sample)
		if err != nil {
			return err
		}
		before := bytes.Clone(data)
		for _, other := range f.Samples {
			second, err := s.Marshal(other)
			if err != nil {
				return err
			}
			clear(second)
		}
		if !bytes.Equal(before, data) {
			return fmt.Errorf("a later Marshal changed the payload of %T", sample)
		}
	}
	return nil
}

func checkInputReleased(s serializer.Serializer, f Fixture) error {
	for _, sample := range f.Samples {
		data, err := s.Marshal(sample)
		if err != nil {
			return err
		}
		got := newLike(sample)
		if err := s.Unmarshal(data, got); err != nil {
			return err
		}
		clear(data)
		if !f.equal(sample, got) {
			return fmt.Errorf("%T changed with the payload that it was read from", sample)
		}
	}
	return nil
}

func checkUnserializable(s serializer.Serializer, f Fixture) error {
	data, err := s.Marshal(f.Unserializable)
	if err == nil {
		return fmt.Errorf("%T was serialized as %q", f.Unserializable, data)
	}
	if len(data) > 0 {
		return fmt.Errorf("for %T, Marshal returned an error and the payload %q", f.Unserializable, data)
	}
	return namesType(err, f.Unserializable)
}

func checkGarbage(s serializer.Serializer, f Fixture) error {
	target := newLike(f.Samples[0])
	err := s.Unmarshal(f.Garbage, target)
	if err == nil {
		return fmt.Errorf("%q was read as %T", f.Garbage, target)
	}
	return namesType(err, target)
}

func checkParallel(s serializer.Serializer, f Fixture) error {
	const callers = 8
	problems := make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for range 50 {
				problems[i] = errors.Join(problems[i], checkRoundTrip(s, f))
			}
		})
	}
	wg.Wait()
	return errors.Join(problems...)
}

// reads checks that data is read as a value that equals sample.
func (f Fixture) reads(s serializer.Serializer, data []byte, sample any) error {
	got := newLike(sample)
	if err := s.Unmarshal(data, got); err != nil {
		return fmt.Errorf("unmarshal %q into %T: %w", data, got, err)
	}
	if !f.equal(sample, got) {
		return fmt.Errorf("%+v became %q, which was read as %+v", sample, data, got)
	}
	return nil
}

func (f Fixture) equal(a, b any) bool {
	if f.Equal != nil {
		return f.Equal(a, b)
	}
	return reflect.DeepEqual(a, b)
}

// newLike returns a pointer to a zero value of the type that sample points to.
func newLike(sample any) any {
	return reflect.New(reflect.TypeOf(sample).Elem()).Interface()
}

// namesType checks that an error contains the Go type of v.
func namesType(err error, v any) error {
	name := strings.TrimLeft(reflect.TypeOf(v).String(), "*")
	if !strings.Contains(err.Error(), name) {
		return fmt.Errorf("error %q does not name the Go type %s", err.Error(), name)
	}
	return nil
}
