// Package protobuf serializes Protocol Buffers messages: [Serializer] in the
// binary format, [JSON] in the JSON mapping of Protocol Buffers.
//
// Use JSON if the payload column has the type json, or to read payloads with SQL. Use Serializer,
// with a bytea column, for small payloads. Register messages by their pointer type:
//
//	registry.Register[*orderpb.OrderPlaced](types, "order.placed", registry.Serializer(protobuf.JSON{}))
//
// Within one build of a program, equal messages have equal payloads. The payloads of different builds
// may differ, so do not compare them.
package protobuf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/waybill-go/waybill/serializer"
)

// Serializer writes messages in the binary wire format. Its payloads do not fit a json column. The
// zero value is ready to use.
type Serializer struct{}

var (
	_ serializer.Serializer  = Serializer{}
	_ serializer.Accepter    = Serializer{}
	_ serializer.TypeChecker = Serializer{}
)

// ContentType returns "application/protobuf", the name in IANA's registry of media types.
func (Serializer) ContentType() string { return "application/protobuf" }

// Accepts accepts the older names, which IANA lists as deprecated and many producers still use.
func (Serializer) Accepts(mediaType string) bool {
	return mediaType == "application/x-protobuf" || mediaType == "application/x-protobuffer"
}

// CheckType returns ErrNoMessage unless t is the pointer type of a message.
func (Serializer) CheckType(t reflect.Type) error { return checkType(t) }

// Marshal returns the message in the wire format. It returns ErrNoMessage unless v is a pointer to a
// message.
func (Serializer) Marshal(v any) ([]byte, error) {
	m, err := message(v)
	if err != nil {
		return nil, err
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("marshal %T as protobuf: %w", v, err)
	}
	return data, nil
}

// Unmarshal fills the message v. It returns ErrNoMessage unless v is a pointer to a message. Unknown
// fields are kept in the message.
func (Serializer) Unmarshal(data []byte, v any) error {
	m, err := message(v)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(data, m); err != nil {
		return fmt.Errorf("unmarshal protobuf into %T: %w", v, err)
	}
	return nil
}

// JSON writes messages in the JSON mapping of Protocol Buffers (ProtoJSON), so that they fit a json
// column. The zero value is ready to use.
//
// With encoding/json, names and numbers would differ, and a oneof could not be read.
type JSON struct{}

var (
	_ serializer.Serializer  = JSON{}
	_ serializer.Accepter    = JSON{}
	_ serializer.TypeChecker = JSON{}
)

// ContentType returns "application/json".
func (JSON) ContentType() string { return "application/json" }

// Accepts accepts "application/protobuf+json", which is only for ProtoJSON in IANA's registry.
func (JSON) Accepts(mediaType string) bool { return mediaType == "application/protobuf+json" }

// CheckType returns ErrNoMessage unless t is the pointer type of a message.
func (JSON) CheckType(t reflect.Type) error { return checkType(t) }

// Marshal returns the message as ProtoJSON. It returns ErrNoMessage unless v is a pointer to a
// message.
func (JSON) Marshal(v any) ([]byte, error) {
	m, err := message(v)
	if err != nil {
		return nil, err
	}
	data, err := protojson.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("marshal %T as ProtoJSON: %w", v, err)
	}
	// protojson adds spaces that deliberately differ between builds. Without them, payloads
	// are shorter and stable.
	var compact bytes.Buffer
	compact.Grow(len(data))
	if err := json.Compact(&compact, data); err != nil {
		return nil, fmt.Errorf("marshal %T as ProtoJSON: %w", v, err)
	}
	return compact.Bytes(), nil
}

// Unmarshal fills the message v. It returns ErrNoMessage unless v is a pointer to a message. Unknown
// fields are ignored.
func (JSON) Unmarshal(data []byte, v any) error {
	m, err := message(v)
	if err != nil {
		return err
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, m); err != nil {
		return fmt.Errorf("unmarshal ProtoJSON into %T: %w", v, err)
	}
	return nil
}

// message returns v as a message. A nil pointer is an error, because proto.Marshal would silently
// write an empty message.
func message(v any) (proto.Message, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, checkType(reflect.TypeOf(v))
	}
	if !m.ProtoReflect().IsValid() {
		return nil, fmt.Errorf("%w: %T is a nil pointer", ErrNoMessage, v)
	}
	return m, nil
}

var messageType = reflect.TypeFor[proto.Message]()

func checkType(t reflect.Type) error {
	switch {
	case t == nil:
		return fmt.Errorf("%w: nil; pass a pointer to a message", ErrNoMessage)
	case t.Implements(messageType):
		return nil
	case reflect.PointerTo(t).Implements(messageType):
		return fmt.Errorf("%w: %s is a message by value; use its pointer type *%s", ErrNoMessage, t, t)
	case t.Kind() == reflect.Pointer && t.Elem().Implements(messageType):
		return fmt.Errorf("%w: %s points to a pointer; use %s", ErrNoMessage, t, t.Elem())
	}
	return fmt.Errorf("%w: %s; use a type that protoc generated, or serializer.JSON{} for this one", ErrNoMessage, t)
}
