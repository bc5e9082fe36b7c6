package pubsub_test

import (
	"strings"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/gcp/gcs"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestALargeBodyIsStoredAndTheMessagePointsToIt(t *testing.T) {
	s := start(t)
	store, err := fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http", Host: "127.0.0.1"})
	require.NoError(t, err)
	t.Cleanup(store.Stop)
	store.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "bodies"})
	in := sinks.Instance{Name: "events", Stores: map[string]sinks.OpenStore{"gs": gcs.Open}}
	sink := newSink(t, in, s.settings("topic: orders\nlarge: {store: 'gs://bodies/shop?endpoint="+store.URL()+"', above: 1KiB}"))
	require.NoError(t, sink.CheckHealth(t.Context()))
	small, large := sinktest.NewDelivery(1), sinktest.NewDelivery(2)
	large.Payload = []byte(strings.Repeat("x", 11_000_000))
	for _, r := range sink.DeliverBatch(t.Context(), []*notification.Delivery{small, large}) {
		require.NoError(t, r.Err)
	}
	for _, m := range s.fake.Messages() {
		if m.Attributes["id"] == small.ID {
			require.Equal(t, small.Payload, m.Data)
			require.NotContains(t, m.Attributes, "ExtendedPayloadSize")
			continue
		}
		require.JSONEq(t, `["waybill.GCSPointer",{"bucket":"bodies","object":"shop/events/`+large.ID+`"}]`, string(m.Data))
		require.Equal(t, "11000000", m.Attributes["ExtendedPayloadSize"])
		require.Equal(t, "application/json", m.Attributes["Content-Type"])
	}
	object, err := store.GetObject("bodies", "shop/events/"+large.ID)
	require.NoError(t, err)
	require.Equal(t, string(large.Payload), string(object.Content))

	require.NoError(t, store.Backend().DeleteObject("bodies", "shop/events/"+large.ID))
	require.NoError(t, store.Backend().DeleteBucket("bodies"))
	_, err = sink.Deliver(t.Context(), large)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(err), "%v", err)
	require.Equal(t, sinks.ClassUnavailable, sinktest.Class(sink.CheckHealth(t.Context())))
	_, err = sink.Deliver(t.Context(), small)
	require.NoError(t, err)
}
