package sinks

import "errors"

// Contracts are the schemas of notification types, for sinks that encode payloads by them. The methods are
// safe for concurrent use.
type Contracts interface {
	// Schema returns the schema of a type's version in a language. It fails with [ErrNoSchema] if there is
	// none.
	Schema(typ string, version int, l SchemaLanguage) (Schema, error)
	// Validate checks a payload of JSON against the JSON Schema of a type's version. Its error has the JSON
	// Pointer of each value that is wrong, and no values. It fails with [ErrNoSchema] if there is no schema.
	Validate(typ string, version int, payload []byte) error
}

// Schema is the schema of a type's version.
type Schema struct {
	Text string
	// Message is the full name of the message in a Protobuf file; "" means its first one.
	Message string
}

// SchemaLanguage is a language of schemas.
type SchemaLanguage string

// The languages of schemas.
const (
	JSONSchema SchemaLanguage = "json-schema" // 2020-12
	Avro       SchemaLanguage = "avro"        // a schema in JSON, as in an .avsc file
	Protobuf   SchemaLanguage = "protobuf"    // a .proto file
)

// ErrNoSchema means that a type's version has no schema in that language.
var ErrNoSchema = errors.New("there is no schema")
