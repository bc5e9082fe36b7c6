package outbox

import (
	"fmt"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Item is a notification with options. [With] makes it.
type Item struct {
	notification any
	options      []Option
}

// Option sets a field of one notification's envelope, or a uniqueness key.
type Option func(*draft)

// Apply sets the option's field in an envelope; an option such as [Unique], which sets no
// field, does nothing. It is for tests.
func (o Option) Apply(e *notification.Envelope) { o(&draft{Envelope: e}) }

// draft is what options change: an envelope, and what is kept outside of it.
type draft struct {
	*notification.Envelope
	unique *store.Claim // nil: no uniqueness key
}

// apply applies the options to an envelope and returns its uniqueness key, if any.
func apply(options []Option, e *notification.Envelope) (unique *store.Claim, err error) {
	if len(options) == 0 {
		return nil, nil // no draft is allocated
	}
	d := draft{Envelope: e}
	for _, option := range options {
		if option == nil {
			return nil, fmt.Errorf("%w: an option of With is nil", ErrOption)
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

// unwrap returns the notification that With has wrapped, and its options.
func unwrap(n any) (any, []Option) {
	if item, wrapped := n.(Item); wrapped {
		return item.notification, item.options
	}
	return n, nil
}

// ID sets the notification's id; default: a new UUIDv7. It must be unique among all
// notifications: sinks take a second notification with the same id for a repeat.
func ID(id string) Option {
	return func(d *draft) { d.ID = id }
}

// Key sets the ordering key in place of the one from the type's key function. "" means
// no order.
func Key(key string) Option {
	return func(d *draft) { d.Key = key }
}

// DeliverAt holds the notification back until t. A time in the past means now. Later
// notifications with the same key are not held back. Until t it can be cancelled: see
// [Publisher.CancelID].
func DeliverAt(t time.Time) Option {
	return func(d *draft) { d.DeliverAt = t.UTC().Truncate(time.Microsecond) }
}

// OccurredOn sets when the fact happened; default: now.
func OccurredOn(t time.Time) Option {
	return func(d *draft) { d.OccurredOn = t }
}

// Metadata adds one name and value to the metadata.
func Metadata(name, value string) Option {
	return func(d *draft) { d.Metadata[name] = value }
}

// Collect names the group in which sinks collect the notification that collect by what the publisher says, such as
// "cart-17"; see settings.Collect.
func Collect(group string) Option { return Metadata(notification.MetadataCollect, group) }

// Amend calls set to change the envelope, after the options before it were applied.
func Amend(set func(e *notification.Envelope)) Option {
	return func(d *draft) { set(d.Envelope) }
}

// CorrelationID names the larger operation that the notification belongs to, such as a request.
func CorrelationID(id string) Option {
	return Metadata(notification.MetadataCorrelationID, id)
}
