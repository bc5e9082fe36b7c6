package inbox

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/framework/notification"
)

// Middleware makes the effects of a Watermill handler happen once for each message: it runs
// the handler in a transaction of Config.DB that notes the message's id. [Tx] finds the
// transaction in the message's context:
//
//	once, err := inbox.Middleware(inbox.Config{Inbox: box, DB: db, Consumer: "invoices"})
//	router.AddMiddleware(once)
//	router.AddConsumerHandler("invoices", "orders", subscriber, func(m *message.Message) error {
//		_, err := inbox.Tx[*sql.Tx](m.Context()).ExecContext(m.Context(), `INSERT INTO invoices …`)
//		return err
//	})
//
// If the handler returns nil the transaction commits, and the message is acknowledged behind
// that. If it returns an error or panics, or the commit fails, everything is rolled back and
// the message comes again. One that was handled before is acknowledged without calling the
// handler. A handler that returns messages fails with [ErrProduced]: what it announces it
// publishes in the transaction, with Config.Publisher, and that has the message as its cause.
//
// The id is that of the notification where the message is one of a sink of this project, or
// a CloudEvent (ce_id); else the message's UUID. A message without an id fails with [ErrName].
//
// Put it inside of middlewares that retry, and outside of those that change the context. A
// context that ends rolls back. It returns [ErrConfig] if a field of Config is missing that it
// needs, Consumer too. The middleware is safe for concurrent use; each message in hand keeps a
// connection.
func Middleware(c Config) (message.HandlerMiddleware, error) {
	if err := c.checkConsumer(); err != nil {
		return nil, err
	}
	return func(handle message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			outside := m.Context()
			defer m.SetContext(outside) // its transaction has ended
			cause := &notification.Envelope{ID: messageID(m), Metadata: notification.Metadata(m.Metadata)}
			_, err := c.once(outside, c.Consumer, cause.ID, func(ctx context.Context) error {
				m.SetContext(notification.WithCause(ctx, cause))
				produced, err := handle(m)
				if err == nil && len(produced) > 0 {
					err = ErrProduced
				}
				return err
			})
			return nil, err
		}
	}, nil
}

// messageID is the notification's id where headers show that the message is one: other
// programs may mean something else by a header named id.
func messageID(m *message.Message) string {
	has := func(names ...string) bool {
		for _, name := range names {
			if m.Metadata.Get(name) == "" {
				return false
			}
		}
		return true
	}
	switch {
	case has("ce_specversion", "ce_id"):
		return m.Metadata.Get("ce_id")
	case has("id", "type", "version", "occurred-on"): // those of the kafka sink
		return m.Metadata.Get("id")
	}
	return m.UUID
}
