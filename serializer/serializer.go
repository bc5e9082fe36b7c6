// Package serializer turns notifications into payloads and payloads back into
// notifications.
//
// Waybill uses [JSON] by default. Package serializer/protobuf has Protocol Buffers,
// so that a program without them does not link them. To write a serializer of your
// own, implement [Serializer] and test it with serializer/serializertest.
//
// Each payload has a content type. [IsJSON] reports whether payloads with a content
// type fit a JSON column.
package serializer

import (
	"reflect"
	"strings"
)

// Serializer converts notifications to bytes and back.
//
// All methods must be safe for concurrent use. Errors should name the Go type and, if
// possible, the field.
type Serializer interface {
	// ContentType returns the media type of the payloads in lower case, such as
	// "application/json". It is the same for every call.
	ContentType() string
	// Marshal returns the payload of v. The registry always passes a pointer, so that
	// a published value and a published pointer give the same payload. The bytes
	// belong to the caller.
	Marshal(v any) ([]byte, error)
	// Unmarshal fills the new zero value that v points to from data. It must not keep
	// data. It ignores fields that v's type does not have, because a newer producer may
	// have added them.
	Unmarshal(data []byte, v any) error
}

// Accepter is a serializer that reads payloads of other content types, too, such
// as a deprecated name of its format. See [Accepts].
type Accepter interface {
	// Accepts reports whether the serializer reads payloads of a media type, which is in
	// lower case and without parameters.
	Accepts(mediaType string) bool
}

// TypeChecker is a serializer that can check whether it can serialize the values of
// a Go type. The registry calls it when a type is registered, so that a mistake shows
// at the start of the program and not with the first notification.
type TypeChecker interface {
	// CheckType returns why values of t cannot be serialized and what to do about it.
	CheckType(t reflect.Type) error
}

// Accepts reports whether s reads payloads of the content type. That is its own content type, in any
// case and with any parameters, or one that it accepts as an [Accepter].
func Accepts(s Serializer, contentType string) bool {
	media := mediaType(contentType)
	if media == mediaType(s.ContentType()) {
		return true
	}
	a, ok := s.(Accepter)
	return ok && a.Accepts(media)
}

// IsJSON reports whether payloads of the content type are JSON, and so fit a JSON column. That is
// "application/json", "text/json" and every subtype that ends with "+json", in any case and with any
// parameters: the "JSON MIME type" of the WHATWG MIME Sniffing Standard.
func IsJSON(contentType string) bool {
	media := mediaType(contentType)
	if media == "application/json" || media == "text/json" {
		return true
	}
	kind, subtype, found := strings.Cut(media, "/")
	name, isJSON := strings.CutSuffix(subtype, "+json")
	return found && isJSON && kind != "" && name != ""
}

// mediaType returns the content type without parameters, in lower case.
func mediaType(contentType string) string {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(media))
}
