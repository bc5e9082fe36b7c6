package outbox

import (
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// Item is a notification with options; With makes it.
type Item struct {
	notification any
	options      []Option
}

// Option sets a field of one notification's envelope.
type Option func(*notification.Envelope)

// With adds options to one notification of a Publish call:
//
//	publisher.Publish(ctx, tx, outbox.With(reminder, outbox.DeliverAt(tomorrow)))
func With(n any, options ...Option) Item {
	n, earlier := unwrap(n)
	return Item{notification: n, options: slices.Concat(earlier, options)}
}

// unwrap returns what With has wrapped, and its options.
func unwrap(n any) (any, []Option) {
	if item, wrapped := n.(Item); wrapped {
		return item.notification, item.options
	}
	return n, nil
}

// ID sets the deduplication id, which is otherwise a new UUIDv7. It must be
// unique among all notifications: sinks take a second one for a repeat.
func ID(id string) Option {
	return func(e *notification.Envelope) { e.ID = id }
}

// Key sets the ordering key in place of the one that the type's key function
// gives. "" asks for no order.
func Key(key string) Option {
	return func(e *notification.Envelope) { e.Key = key }
}

// DeliverAt holds the notification back until t. A time that has passed means
// now. It holds nothing else of its key back.
func DeliverAt(t time.Time) Option {
	return func(e *notification.Envelope) { e.DeliverAt = t.UTC().Truncate(time.Microsecond) }
}

// OccurredOn sets when the fact happened, in place of now.
func OccurredOn(t time.Time) Option {
	return func(e *notification.Envelope) { e.OccurredOn = t }
}

// Metadata adds one name and value.
func Metadata(name, value string) Option {
	return func(e *notification.Envelope) { e.Metadata[name] = value }
}

// CorrelationID says what the notification belongs to, such as a request.
func CorrelationID(id string) Option {
	return Metadata(notification.MetadataCorrelationID, id)
}
