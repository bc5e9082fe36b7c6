package encoding_test

import (
	"encoding/json"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/encoding"
)

const everythingProto = `syntax = "proto2";
package p;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/wrappers.proto";
message All {
	optional bool b = 1; optional int32 i32 = 2; optional sint32 s32 = 3; optional uint32 u32 = 4;
	optional int64 i64 = 5; optional sint64 s64 = 6; optional uint64 u64 = 7;
	optional sfixed32 sf32 = 8; optional fixed32 f32 = 9; optional float f = 10;
	optional sfixed64 sf64 = 11; optional fixed64 f64 = 12; optional double d = 13;
	optional string text = 14; optional bytes raw = 15; optional E e = 16; optional All all = 17;
	optional group G = 18 { optional int32 in_group = 1; }
	repeated int32 many = 19; repeated int32 packed = 20 [packed = true]; repeated string texts = 21; repeated All list = 22;
	map<string, int64> by_text = 23; map<int32, string> by_number = 24; map<bool, All> by_truth = 25; map<uint64, E> by_u64 = 26;
	oneof one { string first = 27; int32 second_choice = 28; google.protobuf.Value any = 29; }
	optional google.protobuf.Timestamp at = 30; optional google.protobuf.Duration took = 31; optional google.protobuf.Struct object = 32;
	optional google.protobuf.Int64Value boxed = 33; optional google.protobuf.NullValue nothing = 34; optional google.protobuf.DoubleValue boxed_double = 35;
	optional string odd = 37 [json_name = "@odd"]; repeated google.protobuf.Value values = 38; optional Plain plain = 39;
}
message Plain { optional string a = 1; }
enum E { ZERO = 0; ONE = 1; MINUS = -1; }
`

// everyPayload has each kind of field, in most forms of ProtoJSON.
var everyPayload = []string{
	`{}`,
	`{"b": true, "i32": -5, "s32": -5, "u32": 4294967295, "i64": "-9223372036854775808", "s64": -7, "u64": "18446744073709551615"}`,
	`{"b": false, "i32": 0, "s32": 1.0, "u32": 1e3, "i64": 9007199254740993, "u64": 1}`,
	`{"sf32": -1, "f32": 1, "f": 0.1, "sf64": "-1", "f64": 1, "d": 1.5, "text": "x\u00e9\n", "raw": "AQI=", "e": "ONE"}`,
	`{"f": "NaN", "d": "-Infinity", "raw": "_-8", "e": -1}`, `{"f": "1.5", "d": -0.0, "raw": "AQ", "e": 7}`,
	`{"all": {"all": {"text": ""}}, "G": {"inGroup": 3}, "many": [1, 2], "packed": [3, 400, -1], "texts": ["a", ""], "list": [{}, {"b": true}]}`,
	`{"g": {"in_group": 3}}`, `{"many": [], "by_text": {}, "packed": []}`,
	`{"byText": {"a": 1, "b": "2", "": 0}, "byNumber": {"-1": "x", "0": ""}, "byTruth": {"true": {}, "false": {"i32": 1}}, "by_u64": {"18446744073709551615": "ONE"}}`,
	`{"first": "x"}`, `{"secondChoice": 0, "first": null}`, `{"any": null}`, `{"any": {"a": [1, "b", null, 2.5]}}`, `{"first": "x", "secondChoice": 1}`, `{"any": null, "first": "a"}`,
	`{"at": "2026-03-01T12:00:00.123456789Z", "took": "1.5s", "object": {"a": {"b": [true]}}, "boxed": "5", "nothing": null, "boxedDouble": 1.5}`,
	`{"@odd": "x"}`, `{"odd": "x"}`, `{"values": [null, 1]}`, `{"plain": {"a": "x"}}`,
	`{"i32": 2147483648}`, `{"i32": "1.5"}`, `{"i32": " 1"}`, `{"i32": ""}`, `{"i32": true}`, `{"u32": -1}`, `{"u64": -1}`, `{"u64": 18446744073709551616}`, `{"f": 1e39}`, `{"d": 1e400}`, `{"d": "inf"}`,
	`{"b": "true"}`, `{"text": 1}`, `{"raw": "%"}`, `{"e": "TWO"}`, `{"all": 1}`, `{"many": 1}`, `{"many": [null]}`, `{"texts": [null]}`, `{"byText": []}`, `{"byText": {"a": null}}`,
	`{"byNumber": {"1.0": "x"}}`, `{"byNumber": {"01": "x"}}`, `{"byTruth": {"True": {}}}`, `{"at": "yesterday"}`, `{"at": null}`, `{"unknown": 1}`, `{"i32": 1, "i32": 2}`, `{"byText": {"a": 1, "a": 2}}`, `{"b": null}`, `null`, `[]`, `1`,
}

// comparer compares the encoder with protojson.
func comparer(t testing.TB) func(t testing.TB, payload string) {
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
		Accessor: protocompile.SourceAccessorFromMap(map[string]string{"p.proto": everythingProto}),
	})}
	files, err := compiler.Compile(t.Context(), "p.proto")
	require.NoError(t, err)
	all := files[0].FindDescriptorByName("p.All").(protoreflect.MessageDescriptor)
	e := newEncoder(t, contracts{sinks.Protobuf: {Text: everythingProto}}, newRegistry(t), encoding.FormatProtobuf)
	return func(t testing.TB, payload string) {
		want := dynamicpb.NewMessage(all)
		refused := protojson.Unmarshal([]byte(payload), want)
		encoded, err := e.Encode(t.Context(), "orders", order(payload))
		if err != nil {
			require.Error(t, refused, "%q: %v", payload, err)
			return
		}
		require.NoError(t, refused, "%q", payload)
		got := dynamicpb.NewMessage(all)
		require.NoError(t, proto.Unmarshal(encoded[6:], got), "%q", payload)
		require.True(t, proto.Equal(want, got), "%q: %v, %v", payload, want, got)
	}
}

func TestProtoJSONIsEncodedAsByThePackageProtojson(t *testing.T) {
	t.Parallel()
	compare := comparer(t)
	for _, payload := range everyPayload {
		compare(t, payload)
	}
}

// FuzzProtoJSON looks for payloads that the encoder and protojson understand differently.
func FuzzProtoJSON(f *testing.F) {
	for _, payload := range everyPayload {
		f.Add(payload)
	}
	compare := comparer(f)
	f.Fuzz(func(t *testing.T, payload string) {
		if json.Valid([]byte(payload)) {
			compare(t, payload)
		}
	})
}
