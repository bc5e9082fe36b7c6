// Package protobuf serializes Protocol Buffers messages: [Serializer] in the
// binary format, [JSON] in the JSON mapping of Protocol Buffers.
//
// Choose JSON where the payload column has the type json or where people read
// payloads with SQL; choose Serializer, with a bytea column, where size counts.
// Register messages by their pointer type:
//
//	registry.Register[*orderpb.OrderPlaced](types, "order.placed", registry.Serializer(protobuf.JSON{}))
//
// Both give equal bytes for equal messages within one build of a program; the
// format itself promises no more, so do not compare payloads of two builds.
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

// Serializer writes messages in the binary wire format. Its payload does not
// fit a json column. The zero value is ready.
type Serializer struct{}

var (
	_ serializer.Serializer  = Serializer{}
	_ serializer.Accepter    = Serializer{}
	_ serializer.TypeChecker = Serializer{}
)

// ContentType is "application/protobuf", the name in IANA's registry of media
// types.
func (Serializer) ContentType() string { return "application/protobuf" }

// Accepts takes the older names that IANA lists as deprecated and that many
// producers still write.
func (Serializer) Accepts(mediaType string) bool {
	return mediaType == "application/x-protobuf" || mediaType == "application/x-protobuffer"
}

// CheckType refuses what is not the pointer type of a message: ErrNoMessage.
func (Serializer) CheckType(t reflect.Type) error { return checkType(t) }

// Marshal returns the message in the wire format. Anything but a pointer to a
// message gives ErrNoMessage.
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

// Unmarshal fills the message that v points to; v that points to none gives
// ErrNoMessage. Unknown fields are kept in the message.
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

// JSON writes messages in the JSON mapping of Protocol Buffers (ProtoJSON), so
// that they fit a json column. The zero value is ready.
//
// encoding/json would write other names and numbers, and cannot read a oneof.
type JSON struct{}

var (
	_ serializer.Serializer  = JSON{}
	_ serializer.Accepter    = JSON{}
	_ serializer.TypeChecker = JSON{}
)

// ContentType is "application/json".
func (JSON) ContentType() string { return "application/json" }

// Accepts takes the name that IANA's registry has for ProtoJSON alone.
func (JSON) Accepts(mediaType string) bool { return mediaType == "application/protobuf+json" }

// CheckType refuses what is not the pointer type of a message: ErrNoMessage.
func (JSON) CheckType(t reflect.Type) error { return checkType(t) }

// Marshal returns the message as ProtoJSON. Anything but a pointer to a message
// gives ErrNoMessage.
func (JSON) Marshal(v any) ([]byte, error) {
	m, err := message(v)
	if err != nil {
		return nil, err
	}
	data, err := protojson.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("marshal %T as ProtoJSON: %w", v, err)
	}
	// protojson adds spaces that differ from build to build, on purpose. Without
	// them payloads are shorter and alike.
	var compact bytes.Buffer
	compact.Grow(len(data))
	if err := json.Compact(&compact, data); err != nil {
		return nil, fmt.Errorf("marshal %T as ProtoJSON: %w", v, err)
	}
	return compact.Bytes(), nil
}

// Unmarshal fills the message that v points to; v that points to none gives
// ErrNoMessage. Unknown fields are ignored, as in the binary format.
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

// message returns the message that v is. A nil pointer is none: proto.Marshal
// would write it as an empty message, and the mistake would go unnoticed.
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
		return fmt.Errorf("%w: nil; give a pointer to a message", ErrNoMessage)
	case t.Implements(messageType):
		return nil
	case reflect.PointerTo(t).Implements(messageType):
		return fmt.Errorf("%w: %s is a message by value; use its pointer type *%s", ErrNoMessage, t, t)
	case t.Kind() == reflect.Pointer && t.Elem().Implements(messageType):
		return fmt.Errorf("%w: %s points to a pointer; use %s", ErrNoMessage, t, t.Elem())
	}
	return fmt.Errorf("%w: %s; use a type that protoc generated, or serializer.JSON{} for this one", ErrNoMessage, t)
}
