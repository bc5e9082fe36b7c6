package serializertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/serializer"
)

type parcel struct {
	ID    string
	Notes json.RawMessage
}

func fixture() Fixture {
	return Fixture{
		Samples:        []any{&parcel{ID: "p-1", Notes: json.RawMessage(`{"fragile":true}`)}, &parcel{ID: "p-2", Notes: json.RawMessage(`[]`)}},
		Unserializable: func() {},
		Garbage:        []byte("{"),
	}
}

// TestEachRuleCanFail runs the suite with serializers that have one fault each.
func TestEachRuleCanFail(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	shared := make([]byte, 0, 1024)
	for _, tc := range []struct {
		rule  string
		fault faulty
	}{
		{"the content type is a media type in lower case", faulty{contentType: "Application/JSON"}},
		{"the content type is a media type in lower case", faulty{contentType: "json"}},
		{"the content type is a media type in lower case", faulty{contentType: "application/"}},
		{"the serializer accepts its own content type", faulty{contentTypes: func() string {
			return fmt.Sprintf("application/json%d", calls.Add(1))
		}}},
		{"values are unchanged after a round trip", faulty{marshal: func(any) ([]byte, error) { return []byte(`{}`), nil }}},
		{"values are unchanged after a round trip", faulty{unmarshal: func([]byte, any) error { return nil }}},
		{"equal values have equal payloads", faulty{marshal: func(v any) ([]byte, error) {
			return fmt.Appendf(nil, `{"ID":%q}`, fmt.Sprint(rand.Int())), nil
		}}},
		{"payloads of a JSON content type are compact JSON", faulty{marshal: func(v any) ([]byte, error) {
			data, err := json.Marshal(v)
			return append(data, '\n'), err
		}}},
		{"payloads of a JSON content type are compact JSON", faulty{marshal: func(any) ([]byte, error) {
			return []byte("\x0a\x03p-1"), nil
		}}},
		{"a payload belongs to the caller", faulty{marshal: func(v any) ([]byte, error) {
			data, err := json.Marshal(v)
			shared = append(shared[:0], data...)
			return shared, err
		}}},
		{"unmarshalled values keep no reference to the payload", faulty{unmarshal: func(data []byte, v any) error {
			err := json.Unmarshal(data, v)
			p := v.(*parcel)
			if at := bytes.Index(data, p.Notes); at >= 0 {
				p.Notes = data[at : at+len(p.Notes)]
			}
			return err
		}}},
		{"the error of an unserializable value names its Go type", faulty{marshal: func(any) ([]byte, error) { return nil, nil }}},
		{"the error of an unserializable value names its Go type", faulty{marshal: func(any) ([]byte, error) {
			return nil, errors.New("no")
		}}},
		{"the error of an invalid payload names the Go type", faulty{unmarshal: func([]byte, any) error { return nil }}},
		{"the error of an invalid payload names the Go type", faulty{unmarshal: func([]byte, any) error { return errors.New("no") }}},
		{"calls can be concurrent", faulty{marshal: func(v any) ([]byte, error) {
			if calls.Add(1)%7 == 0 {
				return []byte(`{}`), nil
			}
			return json.Marshal(v)
		}}},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			require.NoError(t, checkOf(t, tc.rule)(serializer.JSON{}, fixture()), "without the fault")
			require.Error(t, checkOf(t, tc.rule)(tc.fault, fixture()), "with the fault")
		})
	}
}

func checkOf(t *testing.T, rule string) func(serializer.Serializer, Fixture) error {
	t.Helper()
	for _, r := range rules {
		if r.name == rule {
			return r.check
		}
	}
	t.Fatalf("the suite has no rule %q", rule)
	return nil
}

// faulty is serializer.JSON, except for the fields that are set.
type faulty struct {
	contentType  string
	contentTypes func() string
	marshal      func(any) ([]byte, error)
	unmarshal    func([]byte, any) error
}

func (f faulty) ContentType() string {
	switch {
	case f.contentTypes != nil:
		return f.contentTypes()
	case f.contentType != "":
		return f.contentType
	}
	return serializer.JSON{}.ContentType()
}

func (f faulty) Marshal(v any) ([]byte, error) {
	if f.marshal != nil {
		return f.marshal(v)
	}
	return serializer.JSON{}.Marshal(v)
}

func (f faulty) Unmarshal(data []byte, v any) error {
	if f.unmarshal != nil {
		return f.unmarshal(data, v)
	}
	return serializer.JSON{}.Unmarshal(data, v)
}
