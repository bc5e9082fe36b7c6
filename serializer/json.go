package serializer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
)

// maxPooledBuffer is the largest buffer in bytes that is used again. Larger ones are left to the
// garbage collector, so that a large notification does not occupy memory forever.
const maxPooledBuffer = 64 << 10

// JSON serializes with encoding/json. Field tags, MarshalJSON and MarshalText work as usual. It does
// not escape "<", ">" and "&", because payloads are not HTML, and adds no newline. The zero value is
// ready to use.
//
// Invalid bytes in a string that is not UTF-8 become U+FFFD.
type JSON struct{}

var _ Serializer = JSON{}

// ContentType returns "application/json".
func (JSON) ContentType() string { return "application/json" }

// Marshal returns v as JSON. Its error names the Go type.
func (JSON) Marshal(v any) ([]byte, error) {
	w := jsonWriters.Get().(*jsonWriter)
	defer w.release()
	if err := w.encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("marshal %s as JSON: %w", typeName(v), err)
	}
	return bytes.Clone(bytes.TrimSuffix(w.buffer.Bytes(), []byte("\n"))), nil
}

// Unmarshal fills v from one JSON text. Its error names the Go type, and the field or the byte at
// which the text is invalid.
func (JSON) Unmarshal(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	if err == nil {
		return nil
	}
	// The text of an UnmarshalTypeError already names the field.
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		return fmt.Errorf("unmarshal JSON into %s: at byte %d of %d: %w", typeName(v), syntax.Offset, len(data), err)
	}
	return fmt.Errorf("unmarshal JSON into %s: %w", typeName(v), err)
}

// jsonWriter is an encoder with its buffer. json.Marshal cannot be used, because it always escapes
// HTML.
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

// typeName returns the name of v's Go type, without pointers.
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
