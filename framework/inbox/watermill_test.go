package inbox_test

import (
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/inbox"
)

// once wraps a handler in the middleware.
func (s *shop) once(t *testing.T, handle message.HandlerFunc) message.HandlerFunc {
	t.Helper()
	once, err := inbox.Middleware(s.config())
	require.NoError(t, err)
	return once(handle)
}

// payFor is a handler of messages that pays and publishes.
func (s *shop) payFor(m *message.Message) ([]*message.Message, error) {
	tx := inbox.Tx[*sql.Tx](m.Context())
	return nil, errors.Join(pay(m.Context(), tx), s.publisher.Publish(m.Context(), tx, paymentDue{"o-1"}))
}

// The messages go through a router. The first call of the handler fails after its effects.
func TestARepeatedMessageIsAcknowledgedWithoutEffect(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		logger := watermill.NopLogger{}
		channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, logger)
		router, err := message.NewRouter(message.RouterConfig{}, logger)
		require.NoError(t, err)
		once, err := inbox.Middleware(s.config())
		require.NoError(t, err)
		router.AddMiddleware(once)
		var calls atomic.Int32
		router.AddConsumerHandler("payments", "orders", channel, func(m *message.Message) error {
			_, err := s.payFor(m)
			if calls.Add(1) == 1 {
				err = errors.Join(err, errors.New("the connection was lost"))
			}
			return err
		})
		ended := make(chan error, 1)
		go func() { ended <- router.Run(t.Context()) }()
		<-router.Running()
		for range 3 { // each call returns once the message is acknowledged
			m := message.NewMessage("n-1", nil)
			m.Metadata.Set("correlation-id", "request-7")
			require.NoError(t, channel.Publish("orders", m))
		}
		require.NoError(t, router.Close())
		require.NoError(t, <-ended)
		require.NoError(t, channel.Close())
		require.EqualValues(t, 2, calls.Load())
		require.Equal(t, 1, s.count(t, paid))
		var metadata string
		require.NoError(t, s.db.QueryRow(`SELECT metadata FROM outbox WHERE type = 'payment.due'`).Scan(&metadata), "once")
		require.Contains(t, metadata, "request-7")
		require.Contains(t, metadata, "n-1")
	})
}

func TestAMessageIsRecognizedByTheIDOfItsNotification(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		handle := s.once(t, s.payFor)
		take := func(uuid string, headers message.Metadata) int {
			m := message.NewMessage(uuid, nil)
			m.Metadata = headers
			_, err := handle(m)
			require.NoError(t, err)
			require.Nil(t, inbox.Tx[*sql.Tx](m.Context()), "its transaction has ended")
			return s.count(t, paid)
		}
		ours := message.Metadata{"id": "n-1", "type": "order.placed", "version": "1", "occurred-on": "2026-01-02T12:00:00Z"}
		require.Equal(t, 1, take("", ours))
		require.Equal(t, 1, take("made up for each delivery", ours))
		require.Equal(t, 1, take("n-1", nil))
		require.Equal(t, 1, take("", message.Metadata{"ce_specversion": "1.0", "ce_id": "n-1"}))
		require.Equal(t, 2, take("u-1", message.Metadata{"id": "n-1", "type": "of another library"}), "the metadata id of a foreign message does not count")
	})
}

func TestAMessageWhoseHandlerFailsHasNoEffect(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		for name, handle := range map[string]message.HandlerFunc{
			"an error": func(m *message.Message) ([]*message.Message, error) {
				_, err := s.payFor(m)
				return nil, errors.Join(err, errors.New("no"))
			},
			"messages": func(m *message.Message) ([]*message.Message, error) {
				_, err := s.payFor(m)
				return message.Messages{m}, err
			},
			"a panic": func(m *message.Message) ([]*message.Message, error) { panic(s.payFor) },
		} {
			m := message.NewMessage("n-1", nil)
			outside := m.Context()
			func() {
				defer func() { _ = recover() }()
				_, err := s.once(t, handle)(m)
				require.Error(t, err)
				if name == "messages" {
					require.ErrorIs(t, err, inbox.ErrProduced)
				}
			}()
			require.Equal(t, outside, m.Context(), name)
			require.Zero(t, s.count(t, paid)+s.count(t, "outbox")+s.count(t, handled), name)
		}
		_, err := s.once(t, s.payFor)(message.NewMessage("", nil))
		require.ErrorIs(t, err, inbox.ErrName)
	})
}
