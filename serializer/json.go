package serializer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sync"
)

// maxPooledBuffer keeps one large notification from holding its memory for
// ever: buffers that grew beyond it are left to the garbage collector.
const maxPooledBuffer = 64 << 10

// JSON serializes with encoding/json. Field tags, MarshalJSON and MarshalText
// work as usual. "<", ">" and "&" are kept as they are, for payloads are not
// HTML, and no newline follows the text.
//
// A string that is not UTF-8 comes back with U+FFFD in place of the bad bytes.
type JSON struct{}

var _ Serializer = JSON{}

// ContentType is "application/json".
func (JSON) ContentType() string { return "application/json" }

// Marshal returns v as JSON. The error names the Go type, and the field where
// the value has a type or number that JSON cannot express.
func (JSON) Marshal(v any) ([]byte, error) {
	w := jsonWriters.Get().(*jsonWriter)
	defer w.release()
	if err := w.encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("marshal %s as JSON: %w", typeName(v), locate(v, err))
	}
	return bytes.Clone(bytes.TrimSuffix(w.buffer.Bytes(), []byte("\n"))), nil
}

// Unmarshal fills v from one JSON text. The error names the Go type, and the
// field or the byte at which the text does not fit.
func (JSON) Unmarshal(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	if err == nil {
		return nil
	}
	// An UnmarshalTypeError names the field itself.
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		return fmt.Errorf("unmarshal JSON into %s: at byte %d of %d: %w", typeName(v), syntax.Offset, len(data), err)
	}
	return fmt.Errorf("unmarshal JSON into %s: %w", typeName(v), err)
}

// jsonWriter is an encoder with the buffer it writes to. An encoder is needed
// because json.Marshal always escapes HTML.
type jsonWriter struct {
	buffer  bytes.Buffer
	encoder *json.Encoder
}

var jsonWriters = sync.Pool{New: func() any {
	w := new(jsonWriter)
	w.encoder = json.NewEncoder(&w.buffer)
	w.encoder.SetEscapeHTML(false)
	return w
}}

func (w *jsonWriter) release() {
	if w.buffer.Cap() > maxPooledBuffer {
		return
	}
	w.buffer.Reset()
	jsonWriters.Put(w)
}

// locate adds the path of the field that JSON could not express.
func locate(v any, err error) error {
	var (
		unsupportedType  *json.UnsupportedTypeError
		unsupportedValue *json.UnsupportedValueError
		culprit          func(reflect.Value) bool
	)
	switch {
	case errors.As(err, &unsupportedType):
		culprit = func(v reflect.Value) bool { return v.Type() == unsupportedType.Type }
	case errors.As(err, &unsupportedValue) && unsupportedValue.Value.CanFloat():
		culprit = func(v reflect.Value) bool {
			return v.CanFloat() && (math.IsNaN(v.Float()) || math.IsInf(v.Float(), 0))
		}
	default:
		return err
	}
	path := fieldPath(v, culprit)
	if path == "" {
		return err
	}
	return fmt.Errorf("at %s: %w", path, err)
}

// typeName is the Go type that v is or points to.
func typeName(v any) string {
	t := reflect.TypeOf(v)
	if t == nil {
		return "nil"
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.String()
}
