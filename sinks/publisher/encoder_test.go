package publisher_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/publisher"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// bracketing is an encoder that puts payloads in brackets.
type bracketing struct {
	unfit  string // payload that it refuses
	health error
	closed bool
}

var errUnfit = errors.New("it has no brackets")

func (b *bracketing) Encode(_ context.Context, topic string, e *notification.Envelope) ([]byte, error) {
	if string(e.Payload) == b.unfit {
		return nil, sinks.Invalid(errUnfit)
	}
	return []byte(topic + "[" + string(e.Payload) + "]"), nil
}

func (b *bracketing) ContentType() string               { return "text/brackets" }
func (b *bracketing) CheckHealth(context.Context) error { return b.health }
func (b *bracketing) Close()                            { b.closed = true }

func TestPayloadsAreEncoded(t *testing.T) {
	encoder := &bracketing{unfit: "?"}
	s := subscribe(t, "sinktest.happened")
	connects := 0
	sink, err := publisher.NewLazy(func(context.Context) (message.Publisher, error) {
		connects++
		return s, nil
	}, publisher.Config{Topic: "{{.Type}}", Encoder: encoder})
	require.NoError(t, err)

	good, wrong := sinktest.NewDelivery(1), sinktest.NewDelivery(2)
	wrong.Payload = []byte("?")
	_, err = sink.Deliver(t.Context(), wrong)
	require.Equal(t, sinks.ClassInvalid, sinktest.Class(err), "%v", err)
	require.EqualError(t, err, sinks.Invalid(errUnfit).Error())
	_, err = sink.DeliverCollection(t.Context(), &sinks.Collection{Members: []*notification.Delivery{good, wrong}})
	require.Equal(t, sinks.ClassInvalid, sinktest.Class(err), "%v", err)
	require.EqualError(t, err, wrong.ID+": "+sinks.Invalid(errUnfit).Error())
	require.Zero(t, connects, "what cannot be encoded needs no connection")

	payload := string(good.Payload)
	for range 2 { // the notification is unchanged
		_, err = sink.Deliver(t.Context(), good)
		require.NoError(t, err)
	}
	for _, e := range s.envelopes(t) {
		require.Equal(t, "sinktest.happened["+payload+"]", string(e.Payload))
		require.Equal(t, "text/brackets", e.Metadata[notification.MetadataContentType])
		require.Equal(t, "correlation-1", e.Metadata[notification.MetadataCorrelationID])
	}
	require.Len(t, s.messages, 2)

	require.NoError(t, sink.CheckHealth(t.Context()))
	encoder.health = errors.New("no registry")
	require.ErrorIs(t, sink.CheckHealth(t.Context()), encoder.health)
	require.NoError(t, sink.Close(t.Context()))
	require.True(t, encoder.closed)
}
