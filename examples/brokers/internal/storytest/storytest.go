// Package storytest tests an example with its real broker.
package storytest

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/examples/brokers/internal/shop"
	"github.com/waybill-go/waybill/examples/internal/readmetest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers/brokertest"
)

// patience is for all that a test waits for; a broker's starts are most of it.
const patience = 2 * time.Minute

// Run tests the example, with a broker of its own.
func Run(t *testing.T, b shop.Broker) {
	server := brokertest.Start(t, b.Start)
	t.Run("what is published while the broker dies arrives in order", func(t *testing.T) { testDeath(t, b, server) })
	t.Run("it works with a broker that others use", func(t *testing.T) { testStory(t, b, server.URL) })
}

// testDeath kills the broker with a part delivered, has the sink find that out, and
// publishes more before the broker is back.
func testDeath(t *testing.T, b shop.Broker, server *brokertest.Broker) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	subscriber, err := b.Subscriber(server.URL)
	require.NoError(t, err)
	defer func() { require.NoError(t, subscriber.Close()) }()
	messages, err := subscriber.Subscribe(ctx, b.Topic)
	require.NoError(t, err)
	sink, err := b.Sink(server.URL)
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

var (
	series    = regexp.MustCompile(`[0-9a-f]{4}-`) // begins the ids of orders
	ownBroker = regexp.MustCompile(`(?m)^(starting|the broker) .*\n`)
)

// story is what a program tells, with any broker.
func story(text string) []string {
	return strings.Split(ownBroker.ReplaceAllString(series.ReplaceAllString(text, ""), ""), "\n")
}

func testStory(t *testing.T, b shop.Broker, url string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out strings.Builder
	require.NoError(t, shop.Tell(ctx, &out, b, url, nil))
	t.Chdir("..")
	require.ElementsMatch(t, story(readmetest.Output(t, "go run ./nats")), story(out.String()), "orders go at once, in any order")
}
