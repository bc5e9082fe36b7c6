package nats_test

import (
	"bytes"
	"errors"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	client "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers/brokertest"
	"github.com/waybill-go/waybill/sinks/brokers/internal/kindtest"
	"github.com/waybill-go/waybill/sinks/brokers/nats"
	"github.com/waybill-go/waybill/sinks/internal/certtest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNATS(t *testing.T) {
	server := brokertest.Start(t, brokertest.StartNATS)
	b := broker{server.URL}
	t.Run("a repeated delivery is stored once", b.testRepetition)
	t.Run("messages of two sinks are not duplicates", b.testTwoSinks)
	t.Run("an illegal subject is invalid", b.testImpossibleSubjects)
	t.Run("metadata does not affect the server's headers", b.testOddHeaders)
	t.Run("a subject without a stream is unavailable", b.testNoStream)
	t.Run("a subject of another stream is unavailable", b.testOtherStream)
	t.Run("a full stream is unavailable and keeps its messages", b.testFull)
	t.Run("a message that is too large for the stream is permanent", b.testTooLarge)
	t.Run("an empty part of a subject is permanent", b.testSubject)
	t.Run("a Watermill subscriber reads the messages", b.testConsumer)
	t.Run("user and password can be separate settings", b.testUser)
	kindtest.Run(t, kindtest.Subject{
		Kind: nats.Kind(), Server: server, Settings: settings, Watch: b.watch,
		Refused: func(n int) *notification.Delivery {
			d := sinktest.NewDelivery(n)
			d.Payload = bytes.Repeat([]byte("x"), 1<<20) // with the headers this exceeds max_payload
			return d
		},
	})
}

func settings(url string) string {
	return "servers: ['" + url + "']\nstream: SHOP\ntopic: 'shop.{{.Type}}'"
}

type broker struct{ url string }

func (b broker) stream(t *testing.T, change func(*client.StreamConfig)) client.JetStreamContext {
	t.Helper()
	connection, err := client.Connect(b.url)
	require.NoError(t, err)
	t.Cleanup(connection.Close)
	js, err := connection.JetStream()
	require.NoError(t, err)
	config := &client.StreamConfig{Name: "SHOP", Subjects: []string{"shop.>"}, Storage: client.FileStorage, Discard: client.DiscardNew}
	change(config)
	_, err = js.AddStream(config)
	require.NoError(t, err)
	require.NoError(t, js.PurgeStream("SHOP"))
	return js
}

// own creates a stream for one test.
func (b broker) own(t *testing.T, change func(*client.StreamConfig)) client.JetStreamContext {
	t.Helper()
	js := b.stream(t, change)
	t.Cleanup(func() {
		connection, err := client.Connect(b.url)
		require.NoError(t, err)
		defer connection.Close()
		js, err := connection.JetStream()
		require.NoError(t, err)
		_ = js.DeleteStream("SHOP") // the test may have deleted it
	})
	return js
}

func asItIs(*client.StreamConfig) {}

// watch empties the stream, and returns a function that reads it by sequence number.
func (b broker) watch(t *testing.T) func() []*message.Message {
	b.stream(t, asItIs)
	return func() (all []*message.Message) {
		connection, err := client.Connect(b.url)
		require.NoError(t, err)
		defer connection.Close()
		js, err := connection.JetStream()
		require.NoError(t, err)
		info, err := js.StreamInfo("SHOP")
		require.NoError(t, err)
		for n := info.State.FirstSeq; n <= info.State.LastSeq; n++ {
			raw, err := js.GetMsg("SHOP", n)
			require.NoError(t, err)
			m, err := nats.Marshaler{}.Unmarshal(&client.Msg{Header: raw.Header, Data: raw.Data})
			require.NoError(t, err)
			all = append(all, m)
		}
		return all
	}
}

func (b broker) sink(t *testing.T, settings string) sinks.Sink {
	t.Helper()
	return kindtest.New(t, nats.Kind(), sinks.Instance{}, "servers: ['"+b.url+"']\n"+settings)
}

const toShop = "topic: 'shop.{{.Type}}'"

func (b broker) testRepetition(t *testing.T) {
	b.own(t, asItIs)
	published := b.watch(t)
	sink := b.sink(t, toShop)
	d := sinktest.NewDelivery(1)
	for _, want := range []notification.Receipt{
		"published to shop.sinktest.happened",
		"published to shop.sinktest.happened: a duplicate, which stream SHOP already has",
	} {
		receipt, err := sink.Deliver(t.Context(), d)
		require.NoError(t, err)
		require.Equal(t, want, receipt)
	}
	require.Len(t, published(), 1)
	require.Equal(t, d.ID, published()[0].UUID)
}

func (b broker) testNoStream(t *testing.T) {
	js := b.own(t, asItIs)
	sink := b.sink(t, toShop+"\nstream: SHOP")
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1)) // connects the sink
	require.NoError(t, err)
	require.NoError(t, sink.(sinks.HealthChecker).CheckHealth(t.Context()))
	require.NoError(t, js.DeleteStream("SHOP"))
	_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(2))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	require.ErrorIs(t, err, client.ErrNoStreamResponse)
	require.ErrorIs(t, sink.(sinks.HealthChecker).CheckHealth(t.Context()), client.ErrStreamNotFound)
}

func (b broker) testOtherStream(t *testing.T) {
	b.own(t, asItIs)
	_, err := b.sink(t, toShop+"\nstream: ORDERS").Deliver(t.Context(), sinktest.NewDelivery(1))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	require.ErrorContains(t, err, "expected stream does not match")
}

func (b broker) testFull(t *testing.T) {
	js := b.own(t, func(c *client.StreamConfig) { c.MaxMsgs = 1 })
	sink := b.sink(t, toShop)
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err)
	second := sinktest.NewDelivery(2)
	_, err = sink.Deliver(t.Context(), second)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	require.NoError(t, js.PurgeStream("SHOP"))
	_, err = sink.Deliver(t.Context(), second)
	require.NoError(t, err)
}

func (b broker) testTooLarge(t *testing.T) {
	b.own(t, func(c *client.StreamConfig) { c.MaxMsgSize = 1000 })
	sink := b.sink(t, toShop)
	payload, headers := sinktest.NewDelivery(1), sinktest.NewDelivery(2)
	payload.Payload = bytes.Repeat([]byte("x"), 1001)
	headers.Metadata["long"] = strings.Repeat("x", 70<<10)
	for _, d := range []*notification.Delivery{payload, headers} {
		_, err := sink.Deliver(t.Context(), d)
		require.Equal(t, sinks.ClassPermanent, sinktest.Class(err), "%v", err)
	}
}

func (b broker) testSubject(t *testing.T) {
	b.own(t, asItIs)
	sink := b.sink(t, "topic: 'shop.{{.Key}}'")
	d := sinktest.NewDelivery(1)
	d.Key = "two words"
	_, err := sink.Deliver(t.Context(), d)
	require.Equal(t, sinks.ClassInvalid, sinktest.Class(err), "%v", err)
}

func (b broker) testUser(t *testing.T) {
	b.own(t, asItIs)
	u, err := url.Parse(b.url)
	require.NoError(t, err)
	sink := kindtest.New(t, nats.Kind(), sinks.Instance{}, "servers: ['nats://"+u.Host+"']\n"+toShop+"\nuser: waybill\npassword: hunter22")
	_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err)
}

// The server comes back with another password. The connection is refused then, and so is the one that replaces it.
func TestAConnectionThatIsRefusedLaterSaysWhy(t *testing.T) {
	server := brokertest.Start(t, brokertest.StartNATS)
	broker{server.URL}.stream(t, asItIs)
	sink := kindtest.New(t, nats.Kind(), sinks.Instance{}, "servers: ['"+server.URL+"']\n"+toShop+"\ntimeout: 1s")
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.NoError(t, err)
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	require.NoError(t, server.Stop())
	other := exec.Command("nats-server", "--addr", "127.0.0.1", "--port", u.Port(), "--user", "waybill", "--pass", "another")
	require.NoError(t, other.Start())
	t.Cleanup(func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	})
	require.Eventually(t, func() bool {
		_, err = sink.Deliver(t.Context(), sinktest.NewDelivery(2))
		require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
		require.NotContains(t, err.Error(), "buffer")
		return errors.Is(err, client.ErrAuthorization)
	}, kindtest.Patience, 20*time.Millisecond)
}

// TestTLS starts a server with a certificate: a NATS connection begins in clear text and then
// changes to TLS, so a proxy cannot decrypt it.
func TestTLS(t *testing.T) {
	issuer := certtest.New()
	authority := certtest.Write(t.TempDir(), issuer.Certificate)
	certificate, key := certtest.WritePair(t.TempDir(), issuer.Issue("127.0.0.1"))
	server := brokertest.Start(t, brokertest.NATSWith("--tls", "--tlscert", certificate, "--tlskey", key))
	connection, err := client.Connect(server.URL, client.RootCAs(authority))
	require.NoError(t, err)
	defer connection.Close()
	js, err := connection.JetStream()
	require.NoError(t, err)
	_, err = js.AddStream(&client.StreamConfig{Name: "SHOP", Subjects: []string{"shop.>"}})
	require.NoError(t, err)

	b := broker{server.URL}
	_, err = b.sink(t, toShop).Deliver(t.Context(), sinktest.NewDelivery(1))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	_, err = b.sink(t, toShop+"\ntls: {ca_file: "+authority+"}").Deliver(t.Context(), sinktest.NewDelivery(2))
	require.NoError(t, err)
	_, err = b.sink(t, toShop+"\ntls: {ca_file: "+authority+", server_name: other.test}").Deliver(t.Context(), sinktest.NewDelivery(3))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
}
