package pubsub_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/gcp/gcs"
	"github.com/waybill-go/waybill/sinks/large/largetest"
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

// The bodies of a batch are stored within one timeout, and the small messages do not need the store.
func TestAStoreThatDoesNotAnswerHoldsBackOnlyLargeBodies(t *testing.T) {
	s := start(t)
	var mu sync.Mutex
	deadlines := map[time.Time]int{}
	folder := largetest.Folder{Path: t.TempDir(), Fail: func(ctx context.Context, _ string) error {
		mu.Lock()
		defer mu.Unlock()
		deadline, _ := ctx.Deadline()
		deadlines[deadline]++
		return context.DeadlineExceeded
	}}
	in := sinks.Instance{Name: "events", Stores: folder.Stores()}
	sink := newSink(t, in, s.settings("topic: orders\nlarge: {store: 'folder://bodies', above: 1KiB}"))
	var batch []*notification.Delivery
	for n := range 200 {
		d := delivery(n, "")
		if n%2 == 1 {
			d.Payload = make([]byte, 2<<10)
		}
		batch = append(batch, d)
	}
	began := time.Now()
	for i, r := range sink.DeliverBatch(t.Context(), batch) {
		if i%2 == 0 {
			require.NoError(t, r.Err)
			continue
		}
		require.Equal(t, sinks.ClassUnavailable, sinktest.Class(r.Err), "%v", r.Err)
	}
	require.Len(t, deadlines, 1)
	for deadline, bodies := range deadlines {
		require.Equal(t, 100, bodies)
		require.WithinRange(t, deadline, began, time.Now().Add(time.Minute)) // the timeout is a minute
	}
}
