package forwarder

import (
	"context"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// attemptKey is the key of the attempt in the context of a message.
type attemptKey struct{}

// attempt is a delivery that passes through middleware.
type attempt struct {
	*notification.Delivery
	receipt notification.Receipt
}

// throughMiddleware returns a sink's Deliver with middleware around it.
func throughMiddleware(sink sinks.Sink, around []message.HandlerMiddleware) func(context.Context, *notification.Delivery) (notification.Receipt, error) {
	handler := message.HandlerFunc(func(m *message.Message) ([]*message.Message, error) {
		a := m.Context().Value(attemptKey{}).(*attempt)
		envelope := *a.Envelope // a copy, since sinks share the envelope
		envelope.Metadata, envelope.Payload = notification.Metadata(m.Metadata), m.Payload
		d := *a.Delivery
		d.Envelope = &envelope
		var err error
		a.receipt, err = sink.Deliver(m.Context(), &d)
		return nil, err
	})
	for _, middleware := range slices.Backward(around) {
		handler = middleware(handler)
	}
	return func(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
		a := &attempt{Delivery: d}
		m := message.NewMessage(d.ID, slices.Clone(message.Payload(d.Payload))) // a copy: middleware may change it in place
		m.Metadata = message.Metadata(d.Metadata.Clone())
		m.SetContext(context.WithValue(ctx, attemptKey{}, a))
		if _, err := handler(m); err != nil {
			return "", err
		}
		return a.receipt, nil
	}
}

// deliverOf returns the function that makes one delivery to a sink, through its middleware.
func deliverOf(s Sink) func(context.Context, *notification.Delivery) (notification.Receipt, error) {
	if len(s.Middleware) > 0 {
		return throughMiddleware(s.Sink, s.Middleware)
	}
	return s.Sink.Deliver
}
