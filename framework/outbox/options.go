package outbox

import (
	"fmt"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Item is a notification with options; With makes it.
type Item struct {
	notification any
	options      []Option
}

// Option sets a field of one notification's envelope, or asks for something beside it.
type Option func(*draft)

// Apply sets the option's field, and does nothing for what is asked for beside the envelope.
// It is for tests, which publish nothing.
func (o Option) Apply(e *notification.Envelope) { o(&draft{Envelope: e}) }

// draft is an envelope, and what is asked for beside it.
type draft struct {
	*notification.Envelope
	unique *store.Claim // nil: the notification need not be unique
}

// apply sets what options ask for.
func apply(options []Option, e *notification.Envelope) (unique *store.Claim, err error) {
	if len(options) == 0 {
		return nil, nil // no draft is allocated
	}
	d := draft{Envelope: e}
	for _, option := range options {
		if option == nil {
			return nil, fmt.Errorf("%w: With was given nil", ErrOption)
		}
		option(&d)
	}
	return d.unique, nil
}

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
	return func(d *draft) { d.ID = id }
}

// Key sets the ordering key in place of the one that the type's key function
// gives. "" asks for no order.
func Key(key string) Option {
	return func(d *draft) { d.Key = key }
}

// DeliverAt holds the notification back until t. A time that has passed means
// now. It holds nothing else of its key back. Until t it can be cancelled: see
// [Publisher.CancelID].
func DeliverAt(t time.Time) Option {
	return func(d *draft) { d.DeliverAt = t.UTC().Truncate(time.Microsecond) }
}

// OccurredOn sets when the fact happened, in place of now.
func OccurredOn(t time.Time) Option {
	return func(d *draft) { d.OccurredOn = t }
}

// Metadata adds one name and value.
func Metadata(name, value string) Option {
	return func(d *draft) { d.Metadata[name] = value }
}

// Amend has a function set what it wants of the envelope, behind the options before it.
func Amend(set func(e *notification.Envelope)) Option {
	return func(d *draft) { set(d.Envelope) }
}

// CorrelationID says what the notification belongs to, such as a request.
func CorrelationID(id string) Option {
	return Metadata(notification.MetadataCorrelationID, id)
}
