// Package serializer turns notifications into payloads and payloads back into
// notifications.
//
// [JSON] is built in and what Waybill uses unless told otherwise. Protocol
// Buffers are in the package serializer/protobuf, so that a program without
// them does not link them. A serializer of your own implements [Serializer] and
// proves itself with serializer/serializertest.
//
// The content type travels beside each payload. [IsJSON] tells from it whether
// the payload fits a JSON column.
package serializer

import (
	"reflect"
	"strings"
)

// Serializer is one way to write a notification as bytes.
//
// All methods may be called in parallel. Errors name the Go type and, where the
// format lets them, the field; they need not be of a certain type.
type Serializer interface {
	// ContentType is the media type of what Marshal returns, in lower case,
	// such as "application/json". It is the same for every call.
	ContentType() string
	// Marshal returns the payload of v. The registry hands every notification
	// over as a pointer, whichever way it was published, so that a value and a
	// pointer give the same payload. The bytes belong to the caller.
	Marshal(v any) ([]byte, error)
	// Unmarshal fills what v points to, a new zero value, from data. It keeps
	// no reference to data. Fields that v's type does not know are ignored: a
	// newer producer may have added them.
	Unmarshal(data []byte, v any) error
}

// Accepter is a serializer that reads payloads of further content types, such
// as a deprecated name of its own. See [Accepts].
type Accepter interface {
	// Accepts is asked about a media type in lower case without parameters.
	Accepts(mediaType string) bool
}

// TypeChecker is a serializer that can tell from a Go type alone that it will
// never serialize its values. The registry asks it when the type is registered,
// so that the mistake shows at the start of the program and not at the first
// notification.
type TypeChecker interface {
	// CheckType returns why values of t cannot be serialized, and the way out.
	CheckType(t reflect.Type) error
}

// Accepts reports whether s reads payloads of the content type: its own,
// whatever the case and the parameters, or one that it takes as an [Accepter].
func Accepts(s Serializer, contentType string) bool {
	media := mediaType(contentType)
	if media == mediaType(s.ContentType()) {
		return true
	}
	a, ok := s.(Accepter)
	return ok && a.Accepts(media)
}

// IsJSON reports whether payloads of the content type are JSON texts and so fit
// a JSON column: "application/json", "text/json" and everything that ends in
// "+json", whatever the case and the parameters. The rule is the "JSON MIME
// type" of the WHATWG MIME Sniffing Standard.
func IsJSON(contentType string) bool {
	media := mediaType(contentType)
	if media == "application/json" || media == "text/json" {
		return true
	}
	kind, subtype, found := strings.Cut(media, "/")
	name, isJSON := strings.CutSuffix(subtype, "+json")
	return found && isJSON && kind != "" && name != ""
}

// mediaType is the content type without parameters, in lower case.
func mediaType(contentType string) string {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(media))
}
