package publisher_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	pkgerrors "github.com/pkg/errors"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/publisher"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// subscriber records the messages of Watermill's in-process channel. Publish returns when it has
// recorded the message.
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

// envelopes converts the messages to envelopes.
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

// failing is a publisher that always fails.
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
		// Watermill's Publish has no context, so only Close ends a stuck call.
		Stuck:    func(t *testing.T) sinks.Sink { return newSink(t, &unanswered{ended: make(chan struct{})}, "orders") },
		Waits:    true,
		Receipts: true,
	})
}

// calls is a publisher that counts the messages of its calls.
type calls struct{ messages []int }

func (c *calls) Publish(_ string, messages ...*message.Message) error {
	c.messages = append(c.messages, len(messages))
	return nil
}
func (c *calls) Close() error { return nil }

func TestACollectionIsOneCallForOneTopic(t *testing.T) {
	to := new(calls)
	lazy, err := publisher.NewLazy(func(context.Context) (message.Publisher, error) { return to, nil }, publisher.Config{Topic: "shop.{{.Type}}"})
	require.NoError(t, err)
	c := &sinks.Collection{ID: "c", Group: "g", Attempt: 1, Members: []*notification.Delivery{sinktest.NewDelivery(1), sinktest.NewDelivery(2)}}
	for _, sink := range []sinks.Collector{newSink(t, to, "shop.{{.Type}}"), lazy} {
		receipt, err := sink.DeliverCollection(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, notification.Receipt("published to shop.sinktest.happened"), receipt)
	}
	require.Equal(t, []int{2, 2}, to.messages)

	c.Members[1].Type = "other"
	_, err = lazy.DeliverCollection(t.Context(), c)
	require.Equal(t, sinks.ClassInvalid, sinktest.Class(err))
	differ := new(sinks.DifferError)
	require.ErrorAs(t, err, &differ)
	require.Equal(t, "topic", differ.Setting)
	require.Len(t, to.messages, 2)
}

// unanswered is a publisher whose broker does not answer.
type unanswered struct{ ended chan struct{} }

func (s *unanswered) Publish(string, ...*message.Message) error {
	<-s.ended
	return io.ErrClosedPipe
}

func (s *unanswered) Close() error {
	close(s.ended)
	return nil
}

func newSink(t *testing.T, p message.Publisher, topic string) *publisher.Sink {
	t.Helper()
	sink, err := publisher.New(p, publisher.Config{Topic: topic})
	require.NoError(t, err)
	return sink
}

func TestAMessageContainsTheWholeNotification(t *testing.T) {
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

func TestMetadataWithReservedNamesIsRenamed(t *testing.T) {
	s := subscribe(t, "orders")
	sink := newSink(t, s, "orders")
	d := sinktest.NewDelivery(1)
	d.Metadata = notification.Metadata{"type": "gold", "metadata-type": "silver"}
	for i := range 20 { // the order of a map differs each time
		_, err := sink.Deliver(t.Context(), d)
		require.NoError(t, err)
		require.Equal(t, "gold", s.messages[i].Metadata["metadata-type"])
		require.Equal(t, "silver", s.messages[i].Metadata["metadata-metadata-type"])
	}
}

func TestTheTopicCanComeFromTheNotification(t *testing.T) {
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

func TestANotificationWithoutATopicIsInvalid(t *testing.T) {
	for _, text := range []string{"{{.Metadata.tenant}}", `{{.Metadata.Get "tenant"}}`} {
		_, err := newSink(t, failing{errors.New("was published")}, text).Deliver(t.Context(), sinktest.NewDelivery(1))
		require.Equal(t, sinks.ClassInvalid, sinktest.Class(err))
		require.ErrorIs(t, err, publisher.ErrTopic)
		require.ErrorContains(t, err, "tenant")
	}
}

func TestNewRefusesAnInvalidConfiguration(t *testing.T) {
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

func TestAContextThatEndedInsideThePublisherIsTransient(t *testing.T) {
	_, err := newSink(t, failing{context.Canceled}, "orders").Deliver(t.Context(), sinktest.NewDelivery(1))
	require.Equal(t, sinks.ClassTransient, sinktest.Class(err))
	require.ErrorContains(t, err, "publish to orders: context canceled")
}

// silent is a publisher that does not answer until it is closed, and whose Close waits.
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

func TestAFailureAfterTheContextEndedIsTheContextsError(t *testing.T) {
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

func TestCloseReturnsWhenItsContextEnds(t *testing.T) {
	s := silent{answer: make(chan struct{})}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, newSink(t, s, "orders").Close(ctx), context.DeadlineExceeded)
	close(s.answer)

	channel := subscribe(t, "orders")
	require.NoError(t, newSink(t, channel, "orders").Close(t.Context()))
	require.Error(t, channel.Publish("orders", message.NewMessage("1", nil)), "it is closed")
}

// broker reads lines and answers each with a line, until goAway is called.
type broker struct {
	net.Listener
	mu    sync.Mutex
	taken []net.Conn
}

func listen(t *testing.T, address string) *broker {
	t.Helper()
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	b := &broker{Listener: l}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b.mu.Lock()
			b.taken = append(b.taken, conn)
			b.mu.Unlock()
			served.Go(func() { _, _ = io.Copy(conn, conn) })
		}
	})
	t.Cleanup(func() {
		b.goAway()
		served.Wait()
	})
	return b
}

func (b *broker) goAway() {
	_ = b.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range b.taken {
		_ = conn.Close()
	}
}

// linePublisher is a small publisher like those of libraries: it dials when it is made, and again
// after it has lost its connection.
type linePublisher struct {
	address string
	conn    net.Conn
}

func dial(address string) (message.Publisher, error) {
	p := &linePublisher{address: address}
	return p, p.dial()
}

func (p *linePublisher) dial() (err error) {
	p.conn, err = net.Dial("tcp", p.address)
	return err
}

func (p *linePublisher) Publish(_ string, messages ...*message.Message) error {
	if p.conn == nil {
		if err := p.dial(); err != nil {
			return err
		}
	}
	answer := make([]byte, len(messages[0].UUID))
	if _, err := p.conn.Write([]byte(messages[0].UUID)); err != nil {
		return p.lost(err)
	}
	if _, err := io.ReadFull(p.conn, answer); err != nil {
		return p.lost(err)
	}
	return nil
}

func (p *linePublisher) lost(err error) error {
	_ = p.conn.Close()
	p.conn = nil
	return pkgerrors.Wrap(err, "cannot publish") // like Watermill's libraries
}

func (p *linePublisher) Close() error {
	if p.conn == nil {
		return nil
	}
	return p.conn.Close()
}

func TestABrokerThatStopsAfterTheFirstMessageIsUnavailable(t *testing.T) {
	b := listen(t, "127.0.0.1:0")
	address := b.Addr().String()
	sink := newLazy(t, func(context.Context) (message.Publisher, error) { return dial(address) })
	defer func() { require.NoError(t, sink.Close(context.WithoutCancel(t.Context()))) }()
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(0))
	require.NoError(t, err)

	b.goAway()
	for n := range 5 { // first the connection ends, then no new one can be made
		_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(n))
		require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	}
	listen(t, address)
	_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err)
}

func TestAnErrorWithoutAClassGetsOne(t *testing.T) {
	_, notATime := time.Parse(time.RFC3339, "today")
	for _, c := range []struct {
		err  error
		want sinks.Class
	}{
		{&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}, sinks.ClassUnavailable},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, sinks.ClassUnavailable},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, sinks.ClassUnavailable},
		{&url.Error{Op: "Post", URL: "http://broker", Err: io.EOF}, sinks.ClassUnavailable},
		{&tls.CertificateVerificationError{Err: errors.New("unknown authority")}, sinks.ClassUnavailable},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, sinks.ClassUnavailable},
		{io.EOF, sinks.ClassUnavailable},
		{io.ErrUnexpectedEOF, sinks.ClassUnavailable},
		{io.ErrClosedPipe, sinks.ClassUnavailable},
		{net.ErrClosed, sinks.ClassUnavailable},
		{syscall.ECONNRESET, sinks.ClassUnavailable},
		{syscall.EPIPE, sinks.ClassUnavailable},
		{syscall.EHOSTUNREACH, sinks.ClassUnavailable},
		{os.ErrDeadlineExceeded, sinks.ClassUnavailable},
		{context.DeadlineExceeded, sinks.ClassUnavailable},
		{publisher.ErrClosed, sinks.ClassUnavailable},

		{context.Canceled, sinks.ClassTransient},
		{&url.Error{Op: "parse", URL: "::", Err: errors.New("missing protocol scheme")}, sinks.ClassTransient},
		{&os.PathError{Op: "open", Path: "orders", Err: syscall.ENOENT}, sinks.ClassTransient},
		{syscall.EMSGSIZE, sinks.ClassTransient},
		{notATime, sinks.ClassTransient},
		{errors.New("nack"), sinks.ClassTransient},
	} {
		t.Run(fmt.Sprintf("%T %v", c.err, c.err), func(t *testing.T) {
			_, err := newSink(t, failing{pkgerrors.Wrap(c.err, "cannot publish")}, "orders").Deliver(t.Context(), sinktest.NewDelivery(1))
			require.Equal(t, c.want, sinktest.Class(err))
			require.ErrorIs(t, err, c.err)
			require.ErrorContains(t, err, "publish to orders: ")
		})
	}
}

func TestConfigClassifyClassifiesErrorsWithoutAClass(t *testing.T) {
	var (
		errTooLarge  = errors.New("too large")
		errNoServers = errors.New("no servers")
	)
	classify := func(err error) error {
		switch {
		case errors.Is(err, errTooLarge):
			return sinks.Permanent(err)
		case errors.Is(err, errNoServers):
			return sinks.Unavailable(err)
		case errors.Is(err, io.ErrUnexpectedEOF):
			return sinks.Transient(err)
		case errors.Is(err, io.ErrClosedPipe):
			return nil
		}
		return errors.New("only the class of this error counts")
	}
	for _, c := range []struct {
		err  error
		want sinks.Class
	}{
		{errTooLarge, sinks.ClassPermanent},
		{errNoServers, sinks.ClassUnavailable},
		{io.ErrUnexpectedEOF, sinks.ClassTransient}, // Classify decides first
		{io.ErrClosedPipe, sinks.ClassUnavailable},
		{io.EOF, sinks.ClassUnavailable},
		{errors.New("nack"), sinks.ClassTransient},
		{sinks.Permanent(errNoServers), sinks.ClassPermanent}, // already has a class
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			sink, err := publisher.New(failing{fmt.Errorf("wrapped: %w", c.err)}, publisher.Config{Topic: "orders", Classify: classify})
			require.NoError(t, err)
			_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(1))
			require.Equal(t, c.want, sinktest.Class(err))
			require.ErrorIs(t, err, c.err)
			require.ErrorContains(t, err, "publish to orders: ")
		})
	}
}
