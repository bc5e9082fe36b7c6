package main

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/examples/brokers/internal/brokertest"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestJetStream(t *testing.T) {
	server := brokertest.Start(t, jetStream)
	t.Run("a repetition is stored once", func(t *testing.T) { testRepetition(t, server.URL) })
	t.Run("a subject without a stream is unavailable", func(t *testing.T) { testNoStream(t, server.URL) })
	t.Run("a full stream keeps what it has", func(t *testing.T) { testFull(t, server.URL) })
	brokertest.Run(t, brokertest.Subject{
		Broker:      jetStream,
		Unreachable: "nats://127.0.0.1:1",
		Watch:       watch,
	}, server)
}

func TestHeadersCarryAnything(t *testing.T) {
	t.Parallel()
	m := message.NewMessage(" an id\n", []byte("payload"))
	m.Metadata = message.Metadata{
		"two words": "value", "größe": "10 €", "line": "one\r\ntwo", "spaces": "  two  ", "percent": "41%",
		"colon:": ":", "key": "plain value",
	}
	encoded, err := headers{}.Marshal("subject", m)
	require.NoError(t, err)
	require.Equal(t, "plain value", encoded.Header.Get("key"))

	decoded, err := headers{}.Unmarshal(encoded)
	require.NoError(t, err)
	require.Equal(t, m.UUID, decoded.UUID)
	require.Equal(t, m.Metadata, decoded.Metadata)
	require.Equal(t, m.Payload, decoded.Payload)
}

func TestMetadataInstructNoServer(t *testing.T) {
	t.Parallel()
	m := message.NewMessage("1", nil)
	m.Metadata = message.Metadata{nats.ExpectedStreamHdr: "another", "_watermill_message_uuid": "2"}
	encoded, err := headers{}.Marshal("subject", m)
	require.NoError(t, err)
	require.Equal(t, nats.Header{
		"_watermill_message_uuid":          {"1"},
		"metadata-Nats-Expected-Stream":    {"another"},
		"metadata-_watermill_message_uuid": {"2"},
	}, encoded.Header)
}

func TestHeadersOfOtherPublishersAreReadAsTheyAre(t *testing.T) {
	t.Parallel()
	decoded, err := headers{}.Unmarshal(&nats.Msg{Header: nats.Header{"share": {"100%"}}})
	require.NoError(t, err)
	require.Equal(t, message.Metadata{"share": "100%"}, decoded.Metadata)
}

func openStream(t *testing.T, url string) nats.JetStreamContext {
	t.Helper()
	connection, err := nats.Connect(url)
	require.NoError(t, err)
	t.Cleanup(connection.Close)
	require.NoError(t, declare(connection))
	js, err := connection.JetStream()
	require.NoError(t, err)
	return js
}

// watch empties the stream, and reads it by its numbers.
func watch(t *testing.T, url string) func() []*message.Message {
	js := openStream(t, url)
	require.NoError(t, js.PurgeStream(stream))
	return func() (all []*message.Message) {
		info, err := js.StreamInfo(stream)
		require.NoError(t, err)
		for n := info.State.FirstSeq; n <= info.State.LastSeq; n++ {
			raw, err := js.GetMsg(stream, n)
			require.NoError(t, err)
			m, err := headers{}.Unmarshal(&nats.Msg{Header: raw.Header, Data: raw.Data})
			require.NoError(t, err)
			all = append(all, m)
		}
		return all
	}
}

func testRepetition(t *testing.T, url string) {
	published := watch(t, url)
	sink := openSink(t, url)
	d := sinktest.NewDelivery(1)
	for range 2 {
		_, err := sink.Deliver(t.Context(), d)
		require.NoError(t, err)
	}
	require.Len(t, published(), 1)
	require.Equal(t, d.ID, published()[0].UUID)
}

func testNoStream(t *testing.T, url string) {
	js := openStream(t, url)
	sink := openSink(t, url)
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1)) // which is connected now
	require.NoError(t, err)
	require.NoError(t, js.DeleteStream(stream))
	_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(2))
	class, _ := sinks.Classify(err)
	require.Equal(t, sinks.ClassUnavailable, class, "%v", err)
	require.ErrorIs(t, err, nats.ErrNoStreamResponse)
}

func testFull(t *testing.T, url string) {
	js := openStream(t, url)
	published := watch(t, url)
	sink := openSink(t, url)
	first := sinktest.NewDelivery(1)
	_, err := sink.Deliver(t.Context(), first)
	require.NoError(t, err)
	info, err := js.StreamInfo(stream)
	require.NoError(t, err)
	unlimited := info.Config
	full := unlimited
	full.MaxMsgs = 1
	_, err = js.UpdateStream(&full)
	require.NoError(t, err)

	second := sinktest.NewDelivery(2)
	_, err = sink.Deliver(t.Context(), second)
	class, _ := sinks.Classify(err)
	require.Equal(t, sinks.ClassUnavailable, class, "%v", err)
	require.Len(t, published(), 1)
	require.Equal(t, first.ID, published()[0].UUID)

	_, err = js.UpdateStream(&unlimited)
	require.NoError(t, err)
	_, err = sink.Deliver(t.Context(), second)
	require.NoError(t, err)
}

func openSink(t *testing.T, url string) sinks.Sink {
	t.Helper()
	sink, err := newSink(url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sink.(sinks.Closer).Close(context.WithoutCancel(t.Context()))) })
	return sink
}
