package forwarder

import (
	"context"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// attemptKey finds, in the context of a message, the delivery that it stands for.
type attemptKey struct{}

// attempt is a delivery on its way through middleware.
type attempt struct {
	*notification.Delivery
	receipt notification.Receipt
}

// throughMiddleware returns a sink's Deliver with middleware around it.
func throughMiddleware(sink sinks.Sink, around []message.HandlerMiddleware) func(context.Context, *notification.Delivery) (notification.Receipt, error) {
	handler := message.HandlerFunc(func(m *message.Message) ([]*message.Message, error) {
		a := m.Context().Value(attemptKey{}).(*attempt)
		envelope := *a.Envelope // which is shared
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
		m := message.NewMessage(d.ID, slices.Clone(message.Payload(d.Payload))) // which may be changed in its place
		m.Metadata = message.Metadata(d.Metadata.Clone())
		m.SetContext(context.WithValue(ctx, attemptKey{}, a))
		if _, err := handler(m); err != nil {
			return "", err
		}
		return a.receipt, nil
	}
}

// deliverOf makes one delivery to a sink, through its middleware.
func deliverOf(s Sink) func(context.Context, *notification.Delivery) (notification.Receipt, error) {
	if len(s.Middleware) > 0 {
		return throughMiddleware(s.Sink, s.Middleware)
	}
	return s.Sink.Deliver
}
