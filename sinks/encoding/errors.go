package encoding

import "errors"

// Errors of Encode.
var (
	// ErrPayload means that a payload does not fit its schema. The error is invalid.
	ErrPayload = errors.New("the payload does not fit its schema")
	// ErrSchema means that a schema cannot be used: it has a mistake, or says what the format cannot. The
	// error is unknown if the encoder has got an id of another schema, and otherwise unavailable.
	ErrSchema = errors.New("the schema cannot be used")
	// ErrNotRegistered means that the registry does not have the schema. The class is as for
	// ErrSchema.
	ErrNotRegistered = errors.New("the schema is not in the registry")
	// ErrRefused means that the registry does not accept the schema, because it is incompatible with an
	// earlier one, or invalid. The class is as for ErrSchema.
	ErrRefused = errors.New("the registry refused the schema")
	// ErrRegistry means that the registry cannot be asked. The error is unavailable or throttled.
	ErrRegistry = errors.New("the schema registry does not answer as it should")
	// ErrClosed means that the encoder is closed. The error is unavailable.
	ErrClosed = errors.New("the encoder is closed")
)
