package publisher_test

import (
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/publisher"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

var errNobodyThere = errors.New("connection refused")

// nobodyThere is what a library does that dials while its broker is down.
func nobodyThere() (message.Publisher, error) { return nil, errNobodyThere }

func TestLazyConformance(t *testing.T) {
	var s *subscriber
	sinktest.Run(t, sinktest.Subject{
		New: func(t *testing.T) sinks.Sink {
			s = subscribe(t, "orders")
			return newSink(t, publisher.Lazy(func() (message.Publisher, error) { return s, nil }), "orders")
		},
		Received: func(t *testing.T) []notification.Envelope { return s.envelopes(t) },
		Broken: map[sinks.Class]func(*testing.T) sinks.Sink{
			sinks.ClassUnavailable: func(t *testing.T) sinks.Sink {
				return newSink(t, publisher.Lazy(nobodyThere), "orders")
			},
			sinks.ClassPermanent: func(t *testing.T) sinks.Sink {
				return newSink(t, publisher.Lazy(func() (message.Publisher, error) {
					return nil, sinks.Permanent(errors.New("connect gave it a class"))
				}), "orders")
			},
		},
		Receipts: true,
	})
}

func TestALazyPublisherWaitsForItsBroker(t *testing.T) {
	s := subscribe(t, "orders")
	running, connects := false, 0
	sink := newSink(t, publisher.Lazy(func() (message.Publisher, error) {
		connects++
		if !running {
			return nil, errNobodyThere
		}
		return s, nil
	}), "orders")

	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.ErrorIs(t, err, errNobodyThere)
	class, _ := sinks.Classify(err)
	require.Equal(t, sinks.ClassUnavailable, class)

	running = true
	for n := range 3 {
		_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(n))
		require.NoError(t, err)
	}
	require.Len(t, s.messages, 3)
	require.Equal(t, 2, connects, "what was made once is kept")
}

func TestALazyPublisherConnectsOnceForMessagesAtTheSameTime(t *testing.T) {
	s := subscribe(t, "orders")
	connects := 0 // the race detector finds two at once
	sink := newSink(t, publisher.Lazy(func() (message.Publisher, error) {
		connects++
		return s, nil
	}), "orders")
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

func TestALazyPublisherClosesWhatItMade(t *testing.T) {
	s := subscribe(t, "orders")
	connects := 0
	p := publisher.Lazy(func() (message.Publisher, error) {
		connects++
		return s, nil
	})
	require.NoError(t, p.Publish("orders", message.NewMessage("1", nil)))
	require.NoError(t, p.Close())
	require.NoError(t, p.Close(), "again")
	require.Error(t, s.Publish("orders", message.NewMessage("2", nil)), "it is closed")
	require.ErrorIs(t, p.Publish("orders", message.NewMessage("3", nil)), publisher.ErrClosed)
	require.Equal(t, 1, connects)

	require.NoError(t, publisher.Lazy(nobodyThere).Close(), "nothing was made")
}
