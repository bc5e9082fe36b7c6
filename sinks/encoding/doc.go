// Package encoding encodes payloads in Avro, Protobuf or JSON with the id of their schema in a schema
// registry, in Confluent's wire format. The kinds kafka, nats, rabbitmq and redis have its settings below the
// key "encoding". A sink of your own that sends bytes can have them, too:
//
//	encoder, err := encoding.New(in, config.Encoding)
//	…
//	value, err := encoder.Encode(ctx, topic, delivery.Envelope)
//
// # What is written
//
// A zero byte, the schema's id in four bytes, for Protobuf the path of the message in its file, and the
// encoded payload. The schemas are those of [sinks.Instance.Contracts].
//
// Avro: the schema in Avro if the type has one, otherwise one that [DeriveAvro] makes of its JSON Schema.
// Payloads are JSON:
//
//   - A value of null is written for a property that is missing, unless the field has a default.
//   - Of a union, the first branch that fits is used.
//   - bytes and fixed are text in base64, as encoding/json writes []byte.
//   - A double or float is the one that is closest to the number. An int or long has all digits.
//   - Values of logical types are texts, such as RFC 3339, or numbers. A timestamp has no offset, and is cut
//     to its unit.
//
// JSON Schema: the payload as it is, after [sinks.Contracts] has validated it.
//
// Protobuf: the payload is ProtoJSON, or a message in the binary format if its content-type is
// application/protobuf. The schema is never derived, because fields have numbers that must not change.
//
// # Errors
//
// A payload that does not fit its schema is invalid. The error has the JSON Pointer of what is wrong, and no
// values. A version without a schema is unknown, and so is a payload with a property that a record or message
// does not have: it was probably published by a newer version of the program.
//
// A schema that cannot be used, is not registered, or is refused by the registry, is a mistake of one type. It
// is unknown if the encoder has got an id of another schema: deliveries of that type wait without spending
// attempts, for up to 72 hours, and those of other types go on. Before the first id it is unavailable, because
// all schemas may have the same mistake: the whole sink waits.
//
// Everything else about the registry is unavailable, or throttled if the registry says until when: the sink
// waits, and no delivery becomes dead.
package encoding
