// Package brokertest tests an example's sink against its real broker.
package brokertest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/examples/brokers/internal/local"
	"github.com/waybill-go/waybill/examples/brokers/internal/shop"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/publisher"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// patience is for all that a test waits for; a broker's starts are most of it.
const patience = 2 * time.Minute

// silence is how long a sink may take to find out that its broker says nothing: less
// than the engine's timeout, and than heartbeats take.
const silence = 15 * time.Second

// Subject is the broker under test.
type Subject struct {
	shop.Broker
	// Unreachable is a URL at which no broker is.
	Unreachable string
	// Watch begins to note what is published to the broker at url, and returns what
	// tells it: oldest first, as clients of the broker get it.
	Watch func(t *testing.T, url string) func() []*message.Message
}

// Start starts the broker for one test, which is skipped where it is not installed.
func Start(t *testing.T, b shop.Broker) *local.Broker {
	t.Helper()
	server, err := b.Start(t.Context())
	if errors.Is(err, local.ErrMissing) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	return server
}

// Run tests the subject with the broker that server is.
func Run(t *testing.T, s Subject, server *local.Broker) {
	t.Run("the sink keeps the contract", func(t *testing.T) { s.testContract(t, server.URL) })
	t.Run("a broker that says nothing is unavailable", func(t *testing.T) { s.testSilence(t, server) })
	t.Run("what is published while the broker dies arrives in order", func(t *testing.T) { s.testDeath(t, server) })
	t.Run("the example works with a broker that others use", func(t *testing.T) { s.testStory(t, server.URL) })
}

func (s Subject) testContract(t *testing.T, url string) {
	sinkAt := func(t *testing.T, url string) sinks.Sink {
		sink, err := s.Sink(url)
		require.NoError(t, err)
		return sink
	}
	var published func() []*message.Message
	sinktest.Run(t, sinktest.Subject{
		New: func(t *testing.T) sinks.Sink {
			published = s.Watch(t, url)
			return sinkAt(t, url)
		},
		Received: func(t *testing.T) []notification.Envelope { return envelopes(published()) },
		Broken: map[sinks.Class]func(*testing.T) sinks.Sink{
			sinks.ClassUnavailable: func(t *testing.T) sinks.Sink { return sinkAt(t, s.Unreachable) },
		},
		Receipts: true,
	})
}

// envelopes leaves out what the publisher sink's own tests read back.
func envelopes(messages []*message.Message) (es []notification.Envelope) {
	for _, m := range messages {
		es = append(es, notification.Envelope{
			ID:       m.UUID,
			Type:     m.Metadata.Get(publisher.MetadataType),
			Key:      m.Metadata.Get(publisher.MetadataKey),
			Metadata: notification.Metadata(m.Metadata),
			Payload:  m.Payload,
		})
	}
	return es
}

// testSilence freezes the broker: no connection breaks, and no answer comes.
func (s Subject) testSilence(t *testing.T, server *local.Broker) {
	sink, err := s.Sink(server.URL)
	require.NoError(t, err)
	defer func() { require.NoError(t, sink.(sinks.Closer).Close(t.Context())) }()
	_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err)

	require.NoError(t, server.Freeze())
	var began time.Time
	for err == nil { // it may answer once more while the signal is under way
		began = time.Now()
		_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(2))
	}
	require.NoError(t, server.Thaw())
	class, _ := sinks.Classify(err)
	require.Equal(t, sinks.ClassUnavailable, class, "%v", err)
	require.Less(t, time.Since(began), silence)

	require.Eventually(t, func() bool {
		_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(3))
		return err == nil
	}, patience, 50*time.Millisecond, "the sink does not recover")
}

// testDeath kills the broker with a part delivered, has the sink find that out, and
// publishes more before the broker is back.
func (s Subject) testDeath(t *testing.T, server *local.Broker) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	subscriber, err := s.Subscriber(server.URL)
	require.NoError(t, err)
	defer func() { require.NoError(t, subscriber.Close()) }()
	messages, err := subscriber.Subscribe(ctx, s.Topic)
	require.NoError(t, err)
	sink, err := s.Sink(server.URL)
	require.NoError(t, err)
	watched := &watchedSink{Sink: sink, failed: make(chan struct{})}
	app, err := shop.Open(ctx, watched)
	require.NoError(t, err)
	defer func() { require.NoError(t, app.Close()) }()
	forwarding, stop := context.WithCancel(ctx)
	forwarded := make(chan error, 1)
	go func() { forwarded <- app.Forward(forwarding) }()
	defer func() {
		stop()
		require.NoError(t, <-forwarded)
	}()
	reader := &shop.Reader{Out: t.Output(), Messages: messages, Orders: "death-"}
	orders := make([]string, 60)
	for i := range orders {
		orders[i] = "death-" + strconv.Itoa(i)
		require.NoError(t, app.Place(ctx, orders[i]))
	}
	pay := func(orders []string) {
		for _, order := range orders {
			require.NoError(t, app.Pay(ctx, order))
		}
	}

	require.NoError(t, reader.ReadUntil(ctx, 20))
	pay(orders[:30])
	require.NoError(t, server.Kill())
	pay(orders[30:])
	select {
	case <-watched.failed:
	case <-ctx.Done():
		t.Fatal("no delivery met the dead broker")
	}
	require.NoError(t, server.Start(ctx))
	require.NoError(t, reader.ReadUntil(ctx, 2*len(orders)))

	require.NoError(t, reader.Check(orders))
	watched.check(t)
}

// watchedSink notes how deliveries fail.
type watchedSink struct {
	sinks.Sink
	failed chan struct{} // closed at the first failure

	mu     sync.Mutex
	others []error // that are not unavailable
	spent  int     // deliveries that lost an attempt
	once   sync.Once
}

func (w *watchedSink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	receipt, err := w.Sink.Deliver(ctx, d)
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.Attempt != 1 {
		w.spent++
	}
	if err != nil {
		if class, _ := sinks.Classify(err); class != sinks.ClassUnavailable {
			w.others = append(w.others, err)
		}
		w.once.Do(func() { close(w.failed) })
	}
	return receipt, err
}

// Close closes what it watches.
func (w *watchedSink) Close(ctx context.Context) error { return w.Sink.(sinks.Closer).Close(ctx) }

func (w *watchedSink) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(t, w.others, "errors that are not unavailable")
	require.Zero(t, w.spent, "deliveries that lost an attempt to the broker's death")
}

func (s Subject) testStory(t *testing.T, url string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out strings.Builder
	require.NoError(t, shop.Tell(ctx, &out, s.Broker, url, nil))
	require.Equal(t, 3, strings.Count(out.String(), " "+shop.TypePaid+" "), out.String())
}
