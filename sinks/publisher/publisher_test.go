package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/publisher"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// subscriber keeps what Watermill's in-process channel carries. Publish returns
// when it has it.
type subscriber struct {
	*gochannel.GoChannel
	mu       sync.Mutex
	messages []*message.Message
}

func subscribe(t *testing.T, topic string) *subscriber {
	t.Helper()
	s := &subscriber{GoChannel: gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)}
	incoming, err := s.Subscribe(context.WithoutCancel(t.Context()), topic)
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for m := range incoming {
			s.mu.Lock()
			s.messages = append(s.messages, m)
			s.mu.Unlock()
			m.Ack()
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		<-ended
	})
	return s
}

// envelopes reads the messages back, as a subscriber would.
func (s *subscriber) envelopes(t *testing.T) (es []notification.Envelope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.messages {
		version, err := strconv.Atoi(m.Metadata.Get(publisher.MetadataVersion))
		require.NoError(t, err)
		occurredOn, err := time.Parse(publisher.OccurredOnLayout, m.Metadata.Get(publisher.MetadataOccurredOn))
		require.NoError(t, err)
		es = append(es, notification.Envelope{
			ID: m.UUID, Type: m.Metadata.Get(publisher.MetadataType), Version: version,
			Key: m.Metadata.Get(publisher.MetadataKey), OccurredOn: occurredOn,
			Metadata: notification.Metadata(m.Metadata), Payload: m.Payload,
		})
	}
	return es
}

// failing is a publisher whose destination is in trouble.
type failing struct{ err error }

func (f failing) Publish(string, ...*message.Message) error { return f.err }
func (f failing) Close() error                              { return nil }

func TestConformance(t *testing.T) {
	var s *subscriber
	broken := func(err error) func(*testing.T) sinks.Sink {
		return func(t *testing.T) sinks.Sink { return newSink(t, failing{err}, "orders") }
	}
	sinktest.Run(t, sinktest.Subject{
		New: func(t *testing.T) sinks.Sink {
			s = subscribe(t, "orders")
			return newSink(t, s, "orders")
		},
		Received: func(t *testing.T) []notification.Envelope { return s.envelopes(t) },
		Broken: map[sinks.Class]func(*testing.T) sinks.Sink{
			sinks.ClassTransient:   broken(errors.New("nack")),
			sinks.ClassPermanent:   broken(fmt.Errorf("wrapped: %w", sinks.Permanent(errors.New("too large")))),
			sinks.ClassUnavailable: broken(sinks.Unavailable(errors.New("no connection"))),
			sinks.ClassThrottled:   broken(sinks.Throttled(time.Now().Add(time.Minute), errors.New("slow down"))),
		},
		Receipts: true,
	})
}

func newSink(t *testing.T, p message.Publisher, topic string) *publisher.Sink {
	t.Helper()
	sink, err := publisher.New(p, publisher.Config{Topic: topic})
	require.NoError(t, err)
	return sink
}

func TestAMessageTellsAllAboutTheNotification(t *testing.T) {
	s := subscribe(t, "orders")
	d := sinktest.NewDelivery(1)
	d.Metadata["type"] = "of the application"

	receipt, err := newSink(t, s, "orders").Deliver(t.Context(), d)

	require.NoError(t, err)
	require.Equal(t, notification.Receipt("published to orders"), receipt)
	require.Len(t, s.messages, 1)
	require.Equal(t, d.ID, s.messages[0].UUID)
	require.Equal(t, string(d.Payload), string(s.messages[0].Payload))
	require.Equal(t, message.Metadata{
		"type":           "sinktest.happened",
		"version":        "2",
		"key":            "key-1",
		"occurred-on":    "2025-01-02T03:04:05.000678Z",
		"content-type":   "application/json",
		"correlation-id": "correlation-1",
		"metadata-type":  "of the application",
	}, s.messages[0].Metadata)
}

func TestATopicIsMadeOfTheNotification(t *testing.T) {
	for text, want := range map[string]string{
		"orders":                                   "orders",
		"shop.{{.Type}}":                           "shop.sinktest.happened",
		"{{.Metadata.tenant}}.v{{.Version}}":       "acme.v2",
		`{{.Metadata.Get "correlation-id"}}`:       "correlation-1",
		`{{.Type}}{{.Metadata.Get "not there"}}`:   "sinktest.happened",
		`{{with .Metadata.tenant}}{{.}}-{{end}}in`: "acme-in",
	} {
		t.Run(text, func(t *testing.T) {
			s := subscribe(t, want)
			d := sinktest.NewDelivery(1)
			d.Metadata["tenant"] = "acme"
			receipt, err := newSink(t, s, text).Deliver(t.Context(), d)
			require.NoError(t, err)
			require.Equal(t, "published to "+want, string(receipt))
			require.Len(t, s.messages, 1)
		})
	}
}

func TestANotificationWithoutATopicIsPermanent(t *testing.T) {
	for _, text := range []string{"{{.Metadata.tenant}}", `{{.Metadata.Get "tenant"}}`} {
		_, err := newSink(t, failing{errors.New("was published")}, text).Deliver(t.Context(), sinktest.NewDelivery(1))
		class, _ := sinks.Classify(err)
		require.Equal(t, sinks.ClassPermanent, class)
		require.ErrorIs(t, err, publisher.ErrTopic)
		require.ErrorContains(t, err, "tenant")
	}
}

func TestWhatCannotWorkIsRefusedByNew(t *testing.T) {
	_, err := publisher.New(nil, publisher.Config{Topic: "orders"})
	require.ErrorIs(t, err, publisher.ErrNoPublisher)
	for text, says := range map[string]string{
		"":                "it is empty",
		"orders.{{.Type":  "unclosed action",
		"orders.{{.Typ}}": "Typ",
	} {
		_, err := publisher.New(failing{}, publisher.Config{Topic: text})
		require.ErrorIs(t, err, publisher.ErrTopic)
		require.ErrorContains(t, err, says)
	}
}

func TestAContextThatEndedInsideThePublisherSpendsAnAttempt(t *testing.T) {
	_, err := newSink(t, failing{context.Canceled}, "orders").Deliver(t.Context(), sinktest.NewDelivery(1))
	class, _ := sinks.Classify(err)
	require.Equal(t, sinks.ClassTransient, class)
	require.ErrorContains(t, err, "publish to orders: context canceled")
}

// silent never answers until it is closed, and closes only when it may.
type silent struct {
	asked, answer chan struct{}
}

func (s silent) Publish(string, ...*message.Message) error {
	close(s.asked)
	<-s.answer
	return errors.New("gave up")
}

func (s silent) Close() error {
	<-s.answer
	return nil
}

func TestAFailureAfterTheContextEndedIsTheContexts(t *testing.T) {
	s := silent{make(chan struct{}), make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-s.asked
		cancel()
		close(s.answer)
	}()
	_, err := newSink(t, s, "orders").Deliver(ctx, sinktest.NewDelivery(1))
	require.Equal(t, context.Canceled, err)
}

func TestCloseWaitsForThePublisherNoLongerThanItsContext(t *testing.T) {
	s := silent{answer: make(chan struct{})}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, newSink(t, s, "orders").Close(ctx), context.DeadlineExceeded)
	close(s.answer)

	channel := subscribe(t, "orders")
	require.NoError(t, newSink(t, channel, "orders").Close(t.Context()))
	require.Error(t, channel.Publish("orders", message.NewMessage("1", nil)), "it is closed")
}
