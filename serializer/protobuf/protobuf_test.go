package protobuf_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/sourcecontextpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/waybill-go/waybill/serializer"
	"github.com/waybill-go/waybill/serializer/protobuf"
	"github.com/waybill-go/waybill/serializer/serializertest"
)

var implementations = map[string]serializer.Serializer{
	"binary": protobuf.Serializer{},
	"JSON":   protobuf.JSON{},
}

func TestConformance(t *testing.T) {
	t.Parallel()
	order, err := structpb.NewStruct(map[string]any{
		"id": "o-1", "total": 9.95, "paid": true, "note": "a<b>&c ü", "lines": []any{"x", nil}, "address": map[string]any{"city": "Graz"},
	})
	require.NoError(t, err)
	for name, s := range implementations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serializertest.Run(t, s, serializertest.Fixture{
				Samples:        []any{order, wrapperspb.String("o-2"), wrapperspb.Bytes([]byte{0, 1, 255}), &structpb.Struct{}},
				Unserializable: wrapperspb.String("\xff"),
				Garbage:        []byte{0xff},
				Equal:          func(a, b any) bool { return proto.Equal(a.(proto.Message), b.(proto.Message)) },
			})
		})
	}
}

func TestValuesThatAreNotMessagesAreRefused(t *testing.T) {
	t.Parallel()
	type OrderPlaced struct{ ID string }
	var nilMessage *wrapperspb.StringValue
	for what, tc := range map[string]struct {
		value any
		wants string
	}{
		"a plain struct":           {&OrderPlaced{}, "*protobuf_test.OrderPlaced; use a type that protoc generated, or serializer.JSON{}"},
		"nil":                      {nil, "nil; pass a pointer to a message"},
		"a nil message":            {nilMessage, "*wrapperspb.StringValue is a nil pointer"},
		"a pointer to the pointer": {&nilMessage, "use *wrapperspb.StringValue"},
		"a message by value": {
			reflect.ValueOf(wrapperspb.String("x")).Elem().Interface(), "use its pointer type *wrapperspb.StringValue",
		},
	} {
		for name, s := range implementations {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				_, err := s.Marshal(tc.value)
				require.ErrorIs(t, err, protobuf.ErrNoMessage)
				require.ErrorContains(t, err, tc.wants)
				err = s.Unmarshal([]byte(`"x"`), tc.value)
				require.ErrorIs(t, err, protobuf.ErrNoMessage)
				require.ErrorContains(t, err, tc.wants)
			})
		}
	}
}

func TestCheckTypeRefusesTheTypesThatMarshalRefuses(t *testing.T) {
	t.Parallel()
	for name, s := range implementations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := s.(serializer.TypeChecker).CheckType
			require.NoError(t, check(reflect.TypeFor[*wrapperspb.StringValue]()))
			require.ErrorIs(t, check(reflect.TypeFor[wrapperspb.StringValue]()), protobuf.ErrNoMessage)
			require.ErrorIs(t, check(reflect.TypeFor[struct{ ID string }]()), protobuf.ErrNoMessage)
		})
	}
}

func TestOlderContentTypesAreAccepted(t *testing.T) {
	t.Parallel()
	for contentType, by := range map[string]serializer.Serializer{
		"application/x-protobuf":                   protobuf.Serializer{},
		"application/x-protobuffer":                protobuf.Serializer{},
		"application/protobuf; encoding=binary":    protobuf.Serializer{},
		"application/protobuf+json; charset=utf-8": protobuf.JSON{},
		"application/json":                         protobuf.JSON{},
	} {
		for _, s := range implementations {
			require.Equal(t, s == by, serializer.Accepts(s, contentType), "%s by %T", contentType, s)
		}
	}
}

func TestFieldsOfANewerSchemaAreAccepted(t *testing.T) {
	t.Parallel()
	var got sourcecontextpb.SourceContext
	require.NoError(t, protobuf.Serializer{}.Unmarshal([]byte("\x0a\x01a\x78\x01"), &got), "file_name and field 15")
	require.Equal(t, "a", got.GetFileName())
	require.NoError(t, protobuf.JSON{}.Unmarshal([]byte(`{"fileName":"b","lineNumber":15}`), &got))
	require.Equal(t, "b", got.GetFileName())
}

func TestJSONOutputIsValidForAJSONColumn(t *testing.T) {
	t.Parallel()
	require.True(t, serializer.IsJSON(protobuf.JSON{}.ContentType()))
	require.False(t, serializer.IsJSON(protobuf.Serializer{}.ContentType()))
	data, err := protobuf.JSON{}.Marshal(wrapperspb.String("o-1"))
	require.NoError(t, err)
	require.True(t, json.Valid(data))
	require.Equal(t, `"o-1"`, string(data))
}
