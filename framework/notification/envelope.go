// Package notification holds the values that travel through Waybill: the
// envelope (the stored form of a notification), the delivery (one envelope on
// its way to one sink) and the receipt (the sink's proof).
//
// The package imports nothing else of Waybill, so sinks and stores can share its
// types without knowing each other.
package notification

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of an envelope's fields, in bytes. They keep every field indexable and
// printable in all supported databases; the payload has its own, configurable
// limit at the publisher.
const (
	MaxIDLength   = 255
	MaxTypeLength = 255
	MaxKeyLength  = 1024
	MaxVersion    = 32767 // a smallint column
)

// Envelope is the stored form of one notification.
//
// A stored envelope is immutable: sinks share the envelope, its metadata and its
// payload. To change one, copy it first.
type Envelope struct {
	// Offset is the position in the log. The database assigns it; 0 before that.
	Offset int64
	// Slot is the hash of the key into 1,024 slots; of the id if the key is empty.
	// The database computes it. It is always 0 on SQLite.
	Slot int
	// ID is unique for each notification: a UUIDv7 unless the publisher chose
	// another. Sinks pass it on as the deduplication id.
	ID string
	// Type is the registered name, such as "order.placed".
	Type string
	// Version is the payload's version, 1 for the first.
	Version int
	// Key orders deliveries: envelopes of one key reach a sink in the order in
	// which they were published. "" asks for no order.
	Key string
	// OccurredOn is when the fact happened, in UTC with microseconds, from MinTime to MaxTime.
	OccurredOn time.Time
	// DeliverAt holds the delivery back until then. The zero value means now.
	DeliverAt time.Time
	// Metadata is what travels beside the payload: content type, trace,
	// correlation id, tenant, and whatever the application adds.
	Metadata Metadata
	// Payload is the serialized notification.
	Payload []byte
}

// Validate reports the first field that no store would accept. The error names
// the field, its limit and how to fix it. A store also accepts types that no
// program can register, from programs that insert rows with SQL: see [ValidateType].
func (e *Envelope) Validate() error {
	switch {
	case e.Type == "":
		return errNoType
	case len(e.Type) > MaxTypeLength:
		return errLongType(e.Type)
	case e.ID == "":
		return fmt.Errorf("%w: id is empty", ErrInvalid)
	case len(e.ID) > MaxIDLength:
		return fmt.Errorf("%w: id is %d bytes long, the limit is %d", ErrInvalid, len(e.ID), MaxIDLength)
	case e.Version < 1 || e.Version > MaxVersion:
		return fmt.Errorf("%w: version %d is outside 1..%d", ErrInvalid, e.Version, MaxVersion)
	}
	if err := errors.Join(validText("type", e.Type), validText("id", e.ID)); err != nil {
		return err
	}
	if err := ValidateKey(e.Key); err != nil {
		return err
	}
	if err := validTime("occurred_on", e.OccurredOn); err != nil {
		return err
	}
	if err := validTime("deliver_at", e.DeliverAt); err != nil {
		return err
	}
	return e.Metadata.validate()
}

// ValidateType reports why name cannot be the name of a notification type. A
// name is 1 to 255 bytes of printable UTF-8 without spaces, and without "*",
// which routes use for patterns.
func ValidateType(name string) error {
	switch {
	case name == "":
		return errNoType
	case len(name) > MaxTypeLength:
		return errLongType(name)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: type name %q is not UTF-8", ErrInvalid, name)
	}
	for _, r := range name {
		if r <= ' ' || r == 0x7f || r == '*' {
			return fmt.Errorf("%w: type name %q contains %q; use letters, digits, dots and dashes", ErrInvalid, name, r)
		}
	}
	return nil
}

var errNoType = fmt.Errorf("%w: type name is empty; name it like %q", ErrInvalid, "order.placed")

func errLongType(name string) error {
	return fmt.Errorf("%w: type name %.40q… is %d bytes long, the limit is %d", ErrInvalid, name, len(name), MaxTypeLength)
}

// ReservedPrefix begins the types of Waybill's own notifications. No program registers such a type, and
// of the routes only those whose pattern begins with it match one.
const ReservedPrefix = "_"

// IsReserved reports whether a type is one of Waybill's own.
func IsReserved(name string) bool { return strings.HasPrefix(name, ReservedPrefix) }

// IsSpecial reports whether a type is reserved or an alert: a route for all types does not match it.
func IsSpecial(name string) bool { return IsReserved(name) || IsAlert(name) }

// ValidateKey reports why key cannot be an ordering key: it is longer than MaxKeyLength, is
// not UTF-8, or contains a NUL byte.
func ValidateKey(key string) error {
	if len(key) > MaxKeyLength {
		return fmt.Errorf("%w: key is %d bytes long, the limit is %d; use a shorter identifier or a hash of it", ErrInvalid, len(key), MaxKeyLength)
	}
	return validText("key", key)
}

// LogValue identifies the envelope in a log line, without its payload.
func (e *Envelope) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("type", e.Type),
		slog.String("id", e.ID),
		slog.Int64("offset", e.Offset),
	)
}

// validText refuses text that a database column cannot hold.
func validText(field, s string) error {
	if strings.IndexByte(s, 0) >= 0 {
		return fmt.Errorf("%w: %s %q contains a NUL byte, which no database text can hold", ErrInvalid, field, s)
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("%w: %s %q is not UTF-8", ErrInvalid, field, s)
	}
	return nil
}
