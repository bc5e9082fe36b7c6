package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/publisher"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

var errRefused = errors.New("connection refused")

// refused fails to connect, like a library whose broker is down.
func refused(context.Context) (message.Publisher, error) { return nil, errRefused }

func newLazy(t *testing.T, connect func(context.Context) (message.Publisher, error)) *publisher.Lazy {
	t.Helper()
	sink, err := publisher.NewLazy(connect, publisher.Config{Topic: "orders"})
	require.NoError(t, err)
	return sink
}

func TestLazyConformance(t *testing.T) {
	var s *subscriber
	sinktest.Run(t, sinktest.Subject{
		New: func(t *testing.T) sinks.Sink {
			s = subscribe(t, "orders")
			return newLazy(t, func(context.Context) (message.Publisher, error) { return s, nil })
		},
		Received: func(t *testing.T) []notification.Envelope { return s.envelopes(t) },
		Broken: map[sinks.Class]func(*testing.T) sinks.Sink{
			sinks.ClassUnavailable: func(t *testing.T) sinks.Sink {
				return newLazy(t, refused)
			},
			sinks.ClassPermanent: func(t *testing.T) sinks.Sink {
				return newLazy(t, func(context.Context) (message.Publisher, error) {
					return nil, sinks.Permanent(errors.New("connect gave it a class"))
				})
			},
		},
		Receipts: true,
	})
}

func TestALazySinkWaitsForItsBroker(t *testing.T) {
	s := subscribe(t, "orders")
	running, connects := false, 0
	sink := newLazy(t, func(context.Context) (message.Publisher, error) {
		connects++
		if !running {
			return nil, errRefused
		}
		return s, nil
	})

	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.ErrorIs(t, err, errRefused)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))
	require.ErrorIs(t, sink.CheckHealth(t.Context()), errRefused)

	running = true
	require.NoError(t, sink.CheckHealth(t.Context()))
	for n := range 3 {
		_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(n))
		require.NoError(t, err)
	}
	require.Len(t, s.messages, 3)
	require.Equal(t, 3, connects, "the publisher is made only once")
}

func TestALazySinkConnectsOnceForConcurrentDeliveries(t *testing.T) {
	s := subscribe(t, "orders")
	connects := 0 // the race detector would find concurrent calls
	sink := newLazy(t, func(context.Context) (message.Publisher, error) {
		connects++
		return s, nil
	})
	var g errgroup.Group
	for n := range 8 {
		g.Go(func() error {
			_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(n))
			return err
		})
	}
	require.NoError(t, g.Wait())
	require.Equal(t, 1, connects)
}

// connecting is a broker that answers when answer is closed.
func connecting() (asked, answer chan struct{}, connect func(context.Context) (message.Publisher, error)) {
	asked, answer = make(chan struct{}), make(chan struct{})
	return asked, answer, func(ctx context.Context) (message.Publisher, error) {
		close(asked) // a second call would panic
		select {
		case <-answer:
			return nil, errRefused
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func TestDeliveriesDuringAConnectShareItsOutcome(t *testing.T) {
	asked, answer, connect := connecting()
	sink := newLazy(t, connect)
	var g errgroup.Group
	g.Go(func() error {
		_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(0))
		if !errors.Is(err, errRefused) {
			return fmt.Errorf("the first got %w", err)
		}
		return nil
	})
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := sink.Deliver(ctx, sinktest.NewDelivery(1))
	require.Equal(t, context.DeadlineExceeded, err, "a waiting delivery returns when its context ends")
	close(answer)
	require.NoError(t, g.Wait())
}

func TestConnectGetsTheContextOfItsDelivery(t *testing.T) {
	asked, _, connect := connecting()
	sink := newLazy(t, connect)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	_, err := sink.Deliver(ctx, sinktest.NewDelivery(0))
	require.Equal(t, context.Canceled, err)
}

func TestCloseWaitsForARunningConnect(t *testing.T) {
	s := subscribe(t, "orders")
	asked, answer := make(chan struct{}), make(chan struct{})
	sink := newLazy(t, func(context.Context) (message.Publisher, error) {
		close(asked)
		<-answer
		return s, nil
	})
	var g errgroup.Group
	g.Go(func() error {
		_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(0))
		if !errors.Is(err, publisher.ErrClosed) {
			return fmt.Errorf("the delivery got %w", err)
		}
		return nil
	})
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, sink.Close(ctx), context.DeadlineExceeded)
	close(answer)
	require.NoError(t, g.Wait())
	require.Error(t, s.Publish("orders", message.NewMessage("2", nil)), "the publisher is closed")
}

func TestALazySinkClosesItsPublisher(t *testing.T) {
	s := subscribe(t, "orders")
	connects := 0
	sink := newLazy(t, func(context.Context) (message.Publisher, error) {
		connects++
		return s, nil
	})
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err)
	require.NoError(t, sink.Close(t.Context()))
	require.NoError(t, sink.Close(t.Context()), "again")
	require.Error(t, s.Publish("orders", message.NewMessage("2", nil)), "it is closed")
	_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(3))
	require.ErrorIs(t, err, publisher.ErrClosed)
	require.Equal(t, 1, connects)

	require.NoError(t, newLazy(t, refused).Close(t.Context()), "no publisher was made")
}

// oneConnection is a publisher of a library that does not reconnect.
type oneConnection struct{ *linePublisher }

func (p oneConnection) Lost() bool { return p.conn == nil }

func (p oneConnection) Publish(topic string, messages ...*message.Message) error {
	if p.Lost() {
		return errors.New("the publisher was called without a connection")
	}
	return p.linePublisher.Publish(topic, messages...)
}

func (p oneConnection) CheckHealth(context.Context) error {
	return p.Publish("", message.NewMessage("healthy?", nil))
}

func TestALostPublisherIsReplaced(t *testing.T) {
	b := listen(t, "127.0.0.1:0")
	address := b.Addr().String()
	sink := newLazy(t, func(context.Context) (message.Publisher, error) {
		p := &linePublisher{address: address}
		return oneConnection{p}, p.dial()
	})
	defer func() { require.NoError(t, sink.Close(context.WithoutCancel(t.Context()))) }()
	require.NoError(t, sink.CheckHealth(t.Context()))
	b.goAway()
	for range 3 {
		require.Error(t, sink.CheckHealth(t.Context()))
	}
	listen(t, address)
	require.NoError(t, sink.CheckHealth(t.Context()))
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err)
}

func TestALazySinkNeedsATopic(t *testing.T) {
	_, err := publisher.NewLazy(refused, publisher.Config{})
	require.ErrorIs(t, err, publisher.ErrTopic)
	require.EqualError(t, publisher.Config{}.Validate(), "topic: topic cannot be used: it is empty")
	require.NoError(t, publisher.Config{Topic: "shop.{{.Type}}"}.Validate())
}
