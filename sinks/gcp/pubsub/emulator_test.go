package pubsub_test

import (
	"cmp"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	apiv1 "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/gcp/pubsub"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// envJar names the emulator's program, if it is not where Debian's package google-cloud-cli-pubsub-emulator puts it.
const envJar = "WAYBILL_PUBSUB_EMULATOR_JAR"

// emulate starts Google's emulator, or skips the test if there is none, and returns its address.
func emulate(t *testing.T) (address string) {
	jar := cmp.Or(os.Getenv(envJar), "/usr/lib/google-cloud-sdk/platform/pubsub-emulator/lib/cloud-pubsub-emulator-0.8.20-all.jar")
	if _, err := os.Stat(jar); err != nil {
		t.Skip("no emulator: ", err)
	}
	if _, err := exec.LookPath("java"); err != nil {
		t.Skip("no java: ", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address = listener.Addr().String()
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	process := exec.Command("java", "-Xmx256m", "-jar", jar, "--host=127.0.0.1", "--port="+port)
	require.NoError(t, process.Start())
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, 2*time.Minute, 50*time.Millisecond)
	return address
}

// Subscribers of the emulator get the messages of each key in order.
func TestGooglesEmulator(t *testing.T) {
	t.Setenv(pubsub.EnvEmulator, emulate(t))
	topics, err := apiv1.NewTopicAdminClient(t.Context())
	require.NoError(t, err)
	defer topics.Close()
	subscriptions, err := apiv1.NewSubscriptionAdminClient(t.Context())
	require.NoError(t, err)
	defer subscriptions.Close()
	const topic, subscription = "projects/shop/topics/orders", "projects/shop/subscriptions/orders"
	_, err = topics.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic})
	require.NoError(t, err)
	_, err = subscriptions.CreateSubscription(t.Context(), &pubsubpb.Subscription{Name: subscription, Topic: topic, EnableMessageOrdering: true})
	require.NoError(t, err)

	sink := newSink(t, sinks.Instance{}, "topic: orders\nproject: shop\ntimeout: 1m")
	require.NoError(t, sink.CheckHealth(t.Context()))
	missing := newSink(t, sinks.Instance{}, "topic: missing\nproject: shop\ntimeout: 1m")
	require.ErrorContains(t, missing.CheckHealth(t.Context()), "NotFound")
	_, err = missing.Deliver(t.Context(), sinktest.NewDelivery(1))
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)

	want := map[string][]string{}
	for n := range 5 {
		var batch []*notification.Delivery
		for i := range 100 {
			d := delivery(n*100+i, []string{"a", "b", "c"}[i%3])
			batch = append(batch, d)
			want[d.Key] = append(want[d.Key], d.ID)
		}
		for _, r := range sink.DeliverBatch(t.Context(), batch) {
			require.NoError(t, r.Err)
			require.Contains(t, r.Receipt, "pubsub orders ")
		}
	}
	large := sinktest.NewDelivery(0)
	large.Key, large.Payload = "large", make([]byte, 9_900_000)
	want["large"] = []string{large.ID}
	_, err = sink.Deliver(t.Context(), large)
	require.NoError(t, err)

	got, received := map[string][]string{}, 0
	for received < 501 {
		pulled, err := subscriptions.Pull(t.Context(), &pubsubpb.PullRequest{Subscription: subscription, MaxMessages: 100})
		require.NoError(t, err)
		var acknowledged []string
		for _, m := range pulled.ReceivedMessages {
			acknowledged = append(acknowledged, m.AckId)
			got[m.Message.OrderingKey] = append(got[m.Message.OrderingKey], m.Message.Attributes["id"])
			received++
		}
		if len(acknowledged) > 0 {
			require.NoError(t, subscriptions.Acknowledge(t.Context(), &pubsubpb.AcknowledgeRequest{Subscription: subscription, AckIds: acknowledged}))
		}
	}
	require.Equal(t, want, got)
}
