package nats_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	client "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers/brokertest"
	"github.com/waybill-go/waybill/sinks/brokers/internal/kindtest"
	"github.com/waybill-go/waybill/sinks/brokers/nats"
	"github.com/waybill-go/waybill/sinks/internal/servertest"
	"github.com/waybill-go/waybill/sinks/publisher"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func (b broker) testTwoSinks(t *testing.T) {
	js := b.own(t, asItIs)
	orders := b.sink(t, "topic: shop.orders")
	audit := b.sink(t, "topic: shop.audit")
	for n := range 10 {
		d := sinktest.NewDelivery(n)
		for name, sink := range map[string]sinks.Sink{"orders": orders, "audit": audit} {
			own := *d
			own.Sink = name
			receipt, err := sink.Deliver(t.Context(), &own)
			require.NoError(t, err)
			require.Equal(t, notification.Receipt("published to shop."+name), receipt)
		}
	}
	require.Equal(t, map[string]uint64{"shop.orders": 10, "shop.audit": 10}, subjects(t, js))
}

func subjects(t *testing.T, js client.JetStreamContext) map[string]uint64 {
	t.Helper()
	info, err := js.StreamInfo("SHOP", &client.StreamInfoRequest{SubjectsFilter: ">"})
	require.NoError(t, err)
	return info.State.Subjects
}

func (b broker) testImpossibleSubjects(t *testing.T) {
	js := b.own(t, asItIs)
	sink := b.sink(t, "topic: '{{.Key}}'")
	for _, subject := range []string{
		"shop.a b", "shop.a\r\nPUB shop.injected 1\r\nX", "shop.a\tb", "shop.a\x00b", "shop.*", "shop.>", "shop.*.b", "shop..b", "shop.", ".shop",
		"shop." + strings.Repeat("a", 1000), "$JS.API.STREAM.DELETE.SHOP", "$SYS.REQ.SERVER.PING",
	} {
		d := sinktest.NewDelivery(1)
		d.Key = subject
		_, err := sink.Deliver(t.Context(), d)
		require.Equal(t, sinks.ClassInvalid, sinktest.Class(err), "%q: %v", subject, err)
	}
	require.Empty(t, subjects(t, js))
	d := sinktest.NewDelivery(1)
	d.Key = "shop." + strings.Repeat("a", 900) + ".a*b"
	_, err := sink.Deliver(t.Context(), d)
	require.NoError(t, err)
}

// testOddHeaders sends metadata that the server could mistake for its own headers, or that could
// hide those.
func (b broker) testOddHeaders(t *testing.T) {
	b.own(t, asItIs)
	published := b.watch(t)
	sink := b.sink(t, toShop+"\nstream: SHOP")
	metadata := notification.Metadata{
		"in-a-value": "see Nats-Msg-Id: and Nats-Expected-Stream",
	}
	for _, name := range []string{client.MsgIdHdr, client.ExpectedStreamHdr, "Nats-Rollup", "Nats-TTL"} {
		for _, odd := range []string{name, strings.ToLower(name), strings.ToUpper(name), "A-" + name, "A " + name, "metadata-" + name, name + "-B"} {
			metadata[odd] = "other"
		}
	}
	for range 20 { // the client writes headers in random order
		published() // reads the messages of the previous iteration
		d := sinktest.NewDelivery(1)
		d.Metadata = metadata
		for range 2 {
			_, err := sink.Deliver(t.Context(), d)
			require.NoError(t, err)
		}
	}
	all := published()
	require.Len(t, all, 20, "each message is stored once")
	for _, m := range all {
		for name, text := range metadata {
			if strings.HasPrefix(name, publisher.MetadataPrefix) { // every publisher sink adds the prefix
				name = publisher.MetadataPrefix + name
			}
			require.Equal(t, text, m.Metadata[name], "metadata %s", name)
		}
		require.Len(t, m.Metadata, len(metadata)+4, "type, version, key, occurred-on: %v", slices.Sorted(maps.Keys(m.Metadata)))
	}

	other := b.sink(t, toShop+"\nstream: OTHER")
	for range 20 {
		d := sinktest.NewDelivery(2)
		d.Metadata = metadata
		_, err := other.Deliver(t.Context(), d)
		require.ErrorContains(t, err, "expected stream does not match")
	}
}

// TestAClientThatTheServerClosedIsReplaced uses a server with a low limit for lines. It closes the
// connection with an error after which the client does not reconnect.
func TestAClientThatTheServerClosedIsReplaced(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(file, []byte("max_control_line: 300\n"), 0o600))
	b := broker{brokertest.Start(t, brokertest.NATSWith("--config", file)).URL}
	b.stream(t, asItIs)
	sink := b.sink(t, "topic: 'shop.{{.Key}}'\ntimeout: 5s")
	deliver := func(key string) error {
		d := sinktest.NewDelivery(1)
		d.Key = key
		_, err := sink.Deliver(t.Context(), d)
		return err
	}
	require.NoError(t, deliver("one"))
	err := deliver(strings.Repeat("a", 600))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	require.NoError(t, deliver("two"))
	require.NoError(t, sink.(sinks.HealthChecker).CheckHealth(t.Context()))
}

// soon is far less than connecting to all silent servers takes, and enough for a busy machine.
const soon = 30 * time.Second

// silentServers returns the URLs of servers that accept connections but never answer.
func silentServers(t *testing.T, count int) string {
	t.Helper()
	var servers []string
	for range count {
		servers = append(servers, "'nats://"+servertest.Silent(t)+"'")
	}
	return "servers: [" + strings.Join(servers, ",") + "]\ntopic: shop"
}

func TestConnectingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	settings := silentServers(t, 40)
	for name, in := range map[string]sinks.Instance{"own dialer": {}, "the program's": {Dial: (&net.Dialer{}).DialContext}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sink := kindtest.New(t, nats.Kind(), in, settings+"\ntls: {insecure: true}")
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			begun := time.Now()
			_, err := sink.Deliver(ctx, sinktest.NewDelivery(1))
			require.Less(t, time.Since(begun), soon)
			require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
}

func TestConnectingEndsWithTheTimeout(t *testing.T) {
	t.Parallel()
	sink := kindtest.New(t, nats.Kind(), sinks.Instance{}, silentServers(t, 40)+"\ntimeout: 1s")
	begun := time.Now()
	_, err := sink.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.Less(t, time.Since(begun), soon)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
}

func TestACancelledDeliveryWhileConnectingIsCancelled(t *testing.T) {
	t.Parallel()
	sink := kindtest.New(t, nats.Kind(), sinks.Instance{}, silentServers(t, 40))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	_, err := sink.Deliver(ctx, sinktest.NewDelivery(1))
	require.Equal(t, sinks.ClassCancelled, sinktest.Class(err), "%v", err)
}

func TestCloseEndsConnecting(t *testing.T) {
	t.Parallel()
	sink, err := nats.Kind().Build(sinks.Instance{}, kindtest.Decode(t, silentServers(t, 40)))
	require.NoError(t, err)
	failed := make(chan error, 1)
	go func() {
		_, err := sink.Deliver(context.WithoutCancel(t.Context()), sinktest.NewDelivery(1))
		failed <- err
	}()
	time.Sleep(200 * time.Millisecond)
	begun := time.Now()
	require.NoError(t, sink.(sinks.Closer).Close(t.Context()))
	require.Less(t, time.Since(begun), soon)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(errors.Join(<-failed)))
}

func TestNamesOfTheServersHeadersAreEncoded(t *testing.T) {
	t.Parallel()
	m := message.NewMessage("1", nil)
	m.Metadata = message.Metadata{
		client.ExpectedStreamHdr: "a", "metadata-Nats-Msg-Id": "b", "x-nats-y-NATS-z": "c", "_watermill_message_uuid": "2",
		"%4Eats-Msg-Id": "d", "of": "Nats-Msg-Id", "plain": "nats-1.example 5%", "percent": "%4E",
	}
	encoded, err := nats.Marshaler{}.Marshal("subject", m)
	require.NoError(t, err)
	require.Equal(t, client.Header{
		"_watermill_message_uuid":   {"1"},
		"%4Eats-Expected-Stream":    {"a"},
		"metadata-%4Eats-Msg-Id":    {"b"},
		"x-%6Eats-y-%4EATS-z":       {"c"},
		"%5Fwatermill_message_uuid": {"2"},
		"%254Eats-Msg-Id":           {"d"},
		"of":                        {"%4Eats-Msg-Id"},
		"plain":                     {"nats-1.example%205%25"},
		"percent":                   {"%254E"},
	}, encoded.Header)

	encoded.Header.Set(client.MsgIdHdr, "sink/1")
	encoded.Header.Set(client.ExpectedStreamHdr, "SHOP")
	decoded, err := nats.Marshaler{}.Unmarshal(encoded)
	require.NoError(t, err)
	require.Equal(t, "1", decoded.UUID)
	require.Equal(t, m.Metadata, decoded.Metadata)
}
