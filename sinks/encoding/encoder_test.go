package encoding_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	_ "google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/encoding"
)

const payload = `{"id": 9007199254740993, "total": 12.5, "note": "für \"Ada\" 😀", "lines": [{"sku": "a", "count": 2}, {"sku": "b", "count": 1}]}`

func TestAvroIsReadByAnAvroLibrary(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	e := newEncoder(t, orders(), r, encoding.FormatAvro)
	require.Equal(t, "application/vnd.confluent.avro", e.ContentType())
	encoded, err := e.Encode(t.Context(), "orders", order(payload))
	require.NoError(t, err)
	schema, rest := registered(t, r, encoded)
	require.Equal(t, sr.TypeAvro, schema.Type)
	reader, err := avro.Parse(schema.Schema)
	require.NoError(t, err)
	var v any
	left, err := reader.Decode(rest, &v)
	require.NoError(t, err)
	require.Empty(t, left)
	text, err := reader.EncodeJSON(v)
	require.NoError(t, err)
	require.Equal(t, canonical(t, []byte(payload)), canonical(t, text))
	_, known := r.GetSchema("orders-value", 1)
	require.True(t, known)
}

func TestASchemaInAvroIsUsedAsItIs(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	c := orders()
	given := `{"type": "record", "name": "Placed", "namespace": "com.shop", "fields": [
		{"name": "id", "type": "long"}, {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}, "default": "NEW"},
		{"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
		{"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
		{"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
		{"name": "next", "type": ["null", "Placed"], "default": null},
		{"name": "who", "type": [{"type": "record", "name": "Person", "fields": [{"name": "name", "type": "string"}]}, {"type": "map", "values": "string"}]}]}`
	c[sinks.Avro] = sinks.Schema{Text: given}
	e := newEncoder(t, c, r, encoding.FormatAvro, func(c *encoding.Config) { c.Subject = encoding.SubjectRecord })
	written := `{"id": 1, "at": "2026-03-01T12:00:00.123456Z", "price": 19.99, "hash": "AQI=", "who": {"Person": "x"},
		"next": {"id": 2, "state": "PAID", "at": "2026-03-01T14:00:00+02:00", "price": "3.10", "hash": "AwQ=", "who": {"name": "Ada"}}}`
	encoded, err := e.Encode(t.Context(), "orders", order(written))
	require.NoError(t, err)
	schema, rest := registered(t, r, encoded)
	require.Equal(t, given, schema.Schema)
	var v map[string]any
	_, err = avro.MustParse(given).Decode(rest, &v)
	require.NoError(t, err)
	require.Equal(t, "NEW", v["state"])
	require.Equal(t, map[string]any{"Person": "x"}, v["who"])
	require.Equal(t, map[string]any{"name": "Ada"}, v["next"].(map[string]any)["who"])
	require.True(t, time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC).Equal(v["at"].(time.Time)))
	_, known := r.GetSchema("com.shop.Placed", 1)
	require.True(t, known)
	for wrong, want := range map[string]string{
		`{"id": 1, "at": "yesterday", "price": 1, "hash": "AQI=", "who": {}}`:              "/at is not a timestamp-micros",
		`{"id": 1, "at": 1, "price": 1.999, "hash": "AQI=", "who": {}}`:                    "/price is not a decimal",
		`{"id": 1, "at": 1, "price": 1, "hash": "AQID", "who": {}}`:                        "/hash has 3 bytes, and the schema has 2",
		`{"id": 1, "at": 1, "price": 1, "hash": "AQI", "who": {}}`:                         "/hash is not base64",
		`{"id": 1, "at": 1, "price": 1, "hash": "AQI=", "who": {"name": 1}}`:               "/who is an object, and fits no branch",
		`{"id": 1, "at": 1, "price": 1, "hash": "AQI=", "who": {}, "state": "secret"}`:     "/state is not a symbol of the enum",
		`{"id": 1, "at": 1, "price": 1, "hash": "AQI=", "who": {}, "next": {"id": "one"}}`: "/next/id is a string, and the schema has long",
	} {
		_, err := e.Encode(t.Context(), "orders", order(wrong))
		requireClass(t, sinks.ClassInvalid, err)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestJSONIsWrittenAsItIs(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	e := newEncoder(t, orders(), r, encoding.FormatJSONSchema, func(c *encoding.Config) { c.Subject = encoding.SubjectTopicRecord })
	require.Equal(t, "application/vnd.confluent.json", e.ContentType())
	encoded, err := e.Encode(t.Context(), "orders", order(payload))
	require.NoError(t, err)
	schema, rest := registered(t, r, encoded)
	require.Equal(t, sr.TypeJSON, schema.Type)
	require.Equal(t, payload, string(rest))
	_, known := r.GetSchema("orders-OrderPlaced", 1)
	require.True(t, known)

	_, err = e.Encode(t.Context(), "orders", order(`{"id": "secret", "total": 1}`))
	requireClass(t, sinks.ClassInvalid, err)
	require.ErrorIs(t, err, encoding.ErrPayload)
	require.ErrorContains(t, err, "/id")
	require.NotContains(t, err.Error(), "secret")
}

// protoOrder is the message of orderProto, made without its text.
func protoOrder(t testing.TB) *dynamicpb.Message {
	field := func(name string, number int32, typ descriptorpb.FieldDescriptorProto_Type, label descriptorpb.FieldDescriptorProto_Label, message string) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Type: typ.Enum(), Label: label.Enum()}
		if message != "" {
			f.TypeName = &message
		}
		return f
	}
	const one, many = descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL, descriptorpb.FieldDescriptorProto_LABEL_REPEATED
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("order.proto"), Package: proto.String("other"), Syntax: proto.String("proto3"),
		Dependency: []string{"google/protobuf/timestamp.proto"},
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: proto.String("Order"), Field: []*descriptorpb.FieldDescriptorProto{
				field("id", 1, descriptorpb.FieldDescriptorProto_TYPE_INT64, one, ""),
				field("total", 2, descriptorpb.FieldDescriptorProto_TYPE_DOUBLE, one, ""),
				field("note", 3, descriptorpb.FieldDescriptorProto_TYPE_STRING, one, ""),
				field("lines", 4, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, many, ".other.Line"),
				field("placed_at", 5, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, one, ".google.protobuf.Timestamp"),
			}},
			{Name: proto.String("Line"), Field: []*descriptorpb.FieldDescriptorProto{
				field("sku", 1, descriptorpb.FieldDescriptorProto_TYPE_STRING, one, ""),
				field("count", 2, descriptorpb.FieldDescriptorProto_TYPE_INT32, one, ""),
			}},
		},
	}, protoregistry.GlobalFiles)
	require.NoError(t, err)
	return dynamicpb.NewMessage(file.Messages().Get(0))
}

func TestProtobufIsReadByAProtobufLibrary(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	e := newEncoder(t, orders(), r, encoding.FormatProtobuf, func(c *encoding.Config) { c.Subject = encoding.SubjectRecord })
	require.Equal(t, "application/vnd.confluent.protobuf", e.ContentType())
	n := order(`{"id": "9007199254740993", "total": 12.5, "lines": [{"sku": "a", "count": 2}], "placedAt": "2026-03-01T12:00:00Z"}`)
	encoded, err := e.Encode(t.Context(), "orders", n)
	require.NoError(t, err)
	schema, rest := registered(t, r, encoded)
	require.Equal(t, sr.Schema{Schema: orderProto, Type: sr.TypeProtobuf}, schema)
	index, rest, err := new(sr.ConfluentHeader).DecodeIndex(rest, 10)
	require.NoError(t, err)
	require.Equal(t, []int{1, 1}, index, "the entry of a map is no message of the file's text")
	_, known := r.GetSchema("shop.Events.OrderPlaced", 1)
	require.True(t, known)
	m := protoOrder(t)
	require.NoError(t, proto.Unmarshal(rest, m))
	text, err := protojson.Marshal(m)
	require.NoError(t, err)
	require.JSONEq(t, string(n.Payload), string(text))

	binary := order(string(rest))
	binary.Metadata = notification.Metadata{notification.MetadataContentType: "Application/Protobuf; x=y"}
	again, err := e.Encode(t.Context(), "orders", binary)
	require.NoError(t, err)
	require.Equal(t, encoded, again)
	binary.Payload = []byte("\x08")
	_, err = e.Encode(t.Context(), "orders", binary)
	requireClass(t, sinks.ClassInvalid, err)
	require.ErrorContains(t, err, "is not a message shop.Events.OrderPlaced")

	c := orders()
	c[sinks.Protobuf] = sinks.Schema{Text: orderProto}
	encoded, err = newEncoder(t, c, r, encoding.FormatProtobuf).Encode(t.Context(), "orders", order(`{"x": "y"}`))
	require.NoError(t, err)
	require.Equal(t, "\x00\x0a\x01y", string(encoded[5:]), "the first message")
}

func TestProtobufThatDoesNotFitIsInvalid(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	e := newEncoder(t, orders(), r, encoding.FormatProtobuf)
	for payload, want := range map[string]string{
		"{\"note\": \"é\",\n \"lines\": [{}, {\"count\": \"secret\"}]}": "/lines/1/count does not fit the message",
		`{"lines": 1}`: "/lines does not fit",
		`[]`:           "the whole payload does not fit",
		`{`:            "the whole payload is not JSON",
	} {
		_, err := e.Encode(t.Context(), "orders", order(payload))
		requireClass(t, sinks.ClassInvalid, err)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestSchemasThatCannotBeUsedMakeTheSinkWait(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	for _, c := range []struct {
		format, subject string
		schemas         contracts
		want            string
	}{
		{encoding.FormatAvro, "topic", contracts{sinks.Avro: {Text: `{"type": "record"}`}}, "the schema cannot be used: order.placed version 2"},
		{encoding.FormatAvro, "topic", contracts{sinks.JSONSchema: {Text: `{"type": "object", "properties": {"a": true}}`}}, "/properties/a can be any value; give the type a schema with avro: in types"},
		{encoding.FormatAvro, "record", contracts{sinks.Avro: {Text: `"string"`}}, "encoding.subject: record needs a name, and it is not a record"},
		{encoding.FormatJSONSchema, "topic-record", contracts{sinks.JSONSchema: {Text: `true`}}, "needs a name, and it has no title"},
		{encoding.FormatProtobuf, "topic", contracts{sinks.Protobuf: {Text: `message`}}, "schema.proto:1:"},
		{encoding.FormatProtobuf, "topic", contracts{sinks.Protobuf: {Text: `syntax = "proto3"; import "shop/line.proto";`}}, "only google/protobuf/*.proto can be imported"},
		{encoding.FormatProtobuf, "topic", contracts{sinks.Protobuf: {Text: `syntax = "proto3";`}}, "it has no message"},
		{encoding.FormatProtobuf, "topic", contracts{sinks.Protobuf: {Text: orderProto, Message: "Order"}}, `it has no message Order; its package is "shop"`},
	} {
		e := newEncoder(t, c.schemas, r, c.format, func(config *encoding.Config) { config.Subject = c.subject })
		_, err := e.Encode(t.Context(), "orders", order(`{}`))
		requireClass(t, sinks.ClassUnavailable, err)
		require.ErrorIs(t, err, encoding.ErrSchema)
		require.ErrorContains(t, err, c.want)
	}
	require.Zero(t, r.requests.Load())
}

// perType has schemas in Avro by type.
type perType map[string]string

func (p perType) Schema(typ string, _ int, l sinks.SchemaLanguage) (sinks.Schema, error) {
	if l != sinks.Avro || p[typ] == "" {
		return sinks.Schema{}, sinks.ErrNoSchema
	}
	return sinks.Schema{Text: p[typ]}, nil
}

func (perType) Validate(string, int, []byte) error { return nil }

func TestTheSchemaOfOneTypeDoesNotStopOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		schema, body string
		status       int
		want         error
	}{
		"it is not registered": {`"long"`, `{"error_code": 40403}`, 404, encoding.ErrNotRegistered},
		"it is incompatible":   {`"long"`, `{"error_code": 409}`, 409, encoding.ErrRefused},
		"it is invalid":        {`"long"`, `{"error_code": 42201}`, 422, encoding.ErrRefused},
		"it cannot be used":    {`{"type": "record"}`, "", 0, encoding.ErrSchema},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRegistry(t)
			r.Intercept(func(w http.ResponseWriter, request *http.Request) bool {
				if c.status != 0 && strings.Contains(request.URL.Path, "wrong-value") {
					w.WriteHeader(c.status)
					_, _ = io.WriteString(w, c.body)
					return true
				}
				return false
			})
			in := sinks.Instance{Contracts: perType{"order.placed": `"long"`, "wrong": c.schema}}
			e, err := encoding.New(in, encoding.Config{Format: encoding.FormatAvro, Register: true, Registry: encoding.Registry{URL: r.URL()}})
			require.NoError(t, err)
			t.Cleanup(e.Close)
			wrong := order(`1`)
			wrong.Type = "wrong"
			_, err = e.Encode(t.Context(), "wrong", wrong)
			requireClass(t, sinks.ClassUnavailable, err)
			require.ErrorIs(t, err, c.want)
			_, err = e.Encode(t.Context(), "orders", order(`1`))
			require.NoError(t, err)
			_, err = e.Encode(t.Context(), "wrong", wrong)
			requireClass(t, sinks.ClassUnknown, err)
			require.ErrorIs(t, err, c.want)
			_, err = e.Encode(t.Context(), "orders", order(`2`))
			require.NoError(t, err)

			for _, status := range []int{401, 403, 404, 500} {
				r.answer(status, "no")
				_, err = e.Encode(t.Context(), fmt.Sprint("other-", status), order(`1`))
				requireClass(t, sinks.ClassUnavailable, err)
				require.ErrorIs(t, err, encoding.ErrRegistry)
			}
		})
	}
}

func TestAVersionWithoutASchemaIsUnknown(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	for _, format := range []string{encoding.FormatAvro, encoding.FormatJSONSchema, encoding.FormatProtobuf} {
		n := order(payload)
		n.Type = "unknown"
		for _, c := range []contracts{orders(), nil} {
			_, err := newEncoder(t, c, r, format).Encode(t.Context(), "orders", n)
			requireClass(t, sinks.ClassUnknown, err)
			require.ErrorContains(t, err, "unknown version 2")
		}
	}
	e, err := encoding.New(sinks.Instance{}, encoding.Config{Format: encoding.FormatAvro, Registry: encoding.Registry{URL: r.URL()}})
	require.NoError(t, err)
	defer e.Close()
	_, err = e.Encode(t.Context(), "orders", order(payload))
	requireClass(t, sinks.ClassUnknown, err)
}
