package inbox

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/framework/notification"
)

// Middleware makes the effects of a Watermill handler happen once for each message: it runs
// the handler in a transaction of Config.DB or Config.Pgx that stores the message's id. [Tx]
// returns that transaction from the message's context:
//
//	once, err := inbox.Middleware(inbox.Config{Inbox: box, DB: db, Consumer: "invoices"})
//	router.AddMiddleware(once)
//	router.AddConsumerHandler("invoices", "orders", subscriber, func(m *message.Message) error {
//		_, err := inbox.Tx[*sql.Tx](m.Context()).ExecContext(m.Context(), `INSERT INTO invoices …`)
//		return err
//	})
//
// If the handler returns nil, the transaction commits, and then the message is acknowledged.
// If the handler panics or returns an error, or the commit fails, everything is rolled back and
// the message is delivered again. A message that was already handled is acknowledged without
// calling the handler. A handler that returns messages fails with [ErrProduced]: it must
// publish notifications in the transaction instead, announced by Config.Publisher. They have
// the message as their cause.
//
// The id is that of the notification if the message comes from a sink of this project, or of a
// CloudEvent (ce_id); otherwise the message's UUID. A message without an id fails with [ErrName].
//
// Put it inside of middlewares that retry, and outside of those that change the context. If the
// context ends, the transaction rolls back. Middleware returns [ErrConfig] if a required field of
// Config, including Consumer, is missing. The middleware is safe for concurrent use. Each message
// in flight holds a connection.
func Middleware(c Config) (message.HandlerMiddleware, error) {
	if err := c.checkConsumer(); err != nil {
		return nil, err
	}
	return func(handle message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			outside := m.Context()
			defer m.SetContext(outside) // the transaction has ended
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

// messageID returns the notification's id if the headers show that the message is a
// notification: other programs may use a header named id for something else.
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
	case has("id", "type", "version", "occurred-on"): // headers of the kafka sink
		return m.Metadata.Get("id")
	}
	return m.UUID
}
