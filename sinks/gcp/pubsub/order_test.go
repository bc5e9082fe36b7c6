package pubsub_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/gcp/pubsub"
	"github.com/waybill-go/waybill/sinks/large/largetest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// refusing answers requests with a message whose payload is "wrong" as the service does.
func refusing(_ context.Context, r *pubsubpb.PublishRequest) error {
	if slices.ContainsFunc(r.Messages, func(m *pubsubpb.PubsubMessage) bool { return string(m.Data) == "wrong" }) {
		return status.Error(codes.InvalidArgument, "Invalid data in message: Message failed schema validation.")
	}
	return nil
}

func TestARequestHasOneKeyAndAFailedKeyHoldsBackOnlyItself(t *testing.T) {
	s := start(t)
	s.answers(func(_ context.Context, r *pubsubpb.PublishRequest) error {
		if r.Messages[0].OrderingKey == "b" {
			return status.Error(codes.Unavailable, "no")
		}
		return nil
	})
	var batch []*notification.Delivery
	for n := range 20 {
		batch = append(batch, delivery(n, []string{"a", "b", "c", ""}[n%4]))
	}
	for i, r := range s.sink(t, "").DeliverBatch(t.Context(), batch) {
		require.Equal(t, batch[i].Key == "b", r.Err != nil, "%d: %v", i, r.Err)
		if r.Err != nil {
			require.Equal(t, sinks.ClassUnavailable, sinktest.Class(r.Err))
		}
	}
	require.Equal(t, 4, s.count(), "one request for each key, and one without")
	require.Len(t, s.received(), 15)
}

func TestOnlyTheRefusedMessageIsPermanent(t *testing.T) {
	s := start(t)
	s.answers(refusing)
	sink := s.sink(t, "")
	for _, key := range []string{"one", ""} {
		for wrong := range 9 {
			s.fake.ClearMessages()
			var batch []*notification.Delivery
			for n := range 9 {
				batch = append(batch, delivery(n, key))
			}
			batch[wrong].Payload = []byte("wrong")
			sent := 0
			for i, r := range sink.DeliverBatch(t.Context(), batch) {
				switch {
				case i == wrong:
					require.Equal(t, sinks.ClassPermanent, sinktest.Class(r.Err), "%v", r.Err)
				case i > wrong && key != "":
					require.Equal(t, sinks.ClassTransient, sinktest.Class(r.Err), "%v", r.Err)
					require.ErrorContains(t, r.Err, "not sent")
				default:
					require.NoError(t, r.Err)
					sent++
				}
			}
			got := s.received()
			require.Len(t, got, sent)
			for i := range got[:min(wrong, sent)] {
				require.Equal(t, batch[i].ID, got[i].ID)
			}
		}
	}
}

func TestTheRequestsOfAKeyEndAtTheFirstFailure(t *testing.T) {
	s := start(t)
	requests := 0
	s.answers(func(context.Context, *pubsubpb.PublishRequest) error {
		if requests++; requests == 2 { // those of a key do not overlap
			return status.Error(codes.Unavailable, "no")
		}
		return nil
	})
	for _, key := range []string{"one", ""} {
		s.fake.ClearMessages()
		requests = 0
		var batch []*notification.Delivery
		for n := range 7 {
			d := delivery(n, key)
			d.Payload = bytes.Repeat([]byte("x"), 4_000_000) // two fit into a request
			batch = append(batch, d)
		}
		var failed []int
		for i, r := range s.sink(t, "").DeliverBatch(t.Context(), batch) {
			if r.Err != nil {
				failed = append(failed, i)
			}
		}
		if key == "" {
			require.Equal(t, []int{2, 3}, failed, "nothing holds back what has no key")
			continue
		}
		require.Equal(t, []int{2, 3, 4, 5, 6}, failed)
		require.Equal(t, 2, requests)
	}
}

// A key whose notifications go to several topics is in order, too.
func TestAKeyIsInOrderAcrossTopics(t *testing.T) {
	s := start(t)
	s.create(t, "refunds")
	s.answers(refusing)
	sink := newSink(t, sinks.Instance{}, s.settings("topic: '{{.Type}}'"))
	var batch []*notification.Delivery
	for n, topic := range []string{"orders", "refunds", "orders", "refunds"} {
		d := delivery(n, "one")
		d.Type = topic
		batch = append(batch, d)
	}
	batch[2].Payload = []byte("wrong")
	results := sink.DeliverBatch(t.Context(), batch)
	require.NoError(t, results[0].Err)
	require.NoError(t, results[1].Err)
	require.Equal(t, sinks.ClassPermanent, sinktest.Class(results[2].Err))
	require.ErrorContains(t, results[3].Err, "not sent")
	require.Len(t, s.received(), 2)
	require.True(t, sink.BatchLimits().Ordered)
	require.False(t, newSink(t, sinks.Instance{}, s.settings("topic: '{{.Type}}'\nunordered: true")).BatchLimits().Ordered)
}

func TestWithoutOrderABatchIsOneRequest(t *testing.T) {
	s := start(t)
	sink := s.sink(t, "unordered: true")
	require.True(t, sink.BatchLimits().Ordered)
	var batch []*notification.Delivery
	for n := range sink.BatchLimits().Size {
		batch = append(batch, delivery(n, fmt.Sprint("key-", n/5)))
	}
	for _, r := range sink.DeliverBatch(t.Context(), batch) {
		require.NoError(t, r.Err)
	}
	require.Equal(t, 1, s.count())
	for i, m := range s.fake.Messages() {
		require.Empty(t, m.OrderingKey)
		require.Equal(t, batch[i].ID, m.Attributes["id"])
	}
}

// A topic that does not answer has many keys before those of another.
func TestADeadTopicDelaysNoOther(t *testing.T) {
	s := start(t)
	const keys = 150 // more than requests to a topic in parallel
	var alive sync.WaitGroup
	alive.Add(keys)
	s.answers(func(ctx context.Context, r *pubsubpb.PublishRequest) error {
		if strings.HasSuffix(r.Topic, "/orders") {
			alive.Done()
			return nil
		}
		others := make(chan struct{})
		go func() { alive.Wait(); close(others) }()
		select {
		case <-others: // they are there before an answer
		case <-ctx.Done():
		}
		return status.Error(codes.PermissionDenied, "no")
	})
	sink := newSink(t, sinks.Instance{}, s.settings("topic: '{{.Type}}'"))
	var batch []*notification.Delivery
	for n := range 2 * keys {
		d := delivery(n, fmt.Sprint("key-", n))
		if d.Type = "dead"; n >= keys {
			d.Type = "orders"
		}
		batch = append(batch, d)
	}
	for i, r := range sink.DeliverBatch(t.Context(), batch) {
		if batch[i].Type == "orders" {
			require.NoError(t, r.Err)
			continue
		}
		require.Equal(t, sinks.ClassUnavailable, sinktest.Class(r.Err), "%v", r.Err)
		require.ErrorContains(t, r.Err, "PermissionDenied")
	}
}

func TestATopicThatDoesNotAnswerGetsNoFurtherRequestOfABatch(t *testing.T) {
	s := start(t)
	s.answers(func(ctx context.Context, _ *pubsubpb.PublishRequest) error {
		<-ctx.Done()
		return ctx.Err()
	})
	sink := newSink(t, sinks.Instance{}, "topic: orders\nproject: shop\ntimeout: 500ms\nendpoint: http://"+s.address)
	var batch []*notification.Delivery
	for n := range 300 {
		batch = append(batch, delivery(n, fmt.Sprint("key-", n)))
	}
	for _, r := range sink.DeliverBatch(t.Context(), batch) {
		require.Equal(t, sinks.ClassUnavailable, sinktest.Class(r.Err), "%v", r.Err)
	}
	require.LessOrEqual(t, s.count(), 64)
}

// What is sent, what waits, and what comes later: nothing uses an attempt because the time of a batch was over.
func TestADeliveryWhoseTimeIsOverIsUnavailable(t *testing.T) {
	s := start(t)
	s.answers(func(ctx context.Context, _ *pubsubpb.PublishRequest) error {
		<-ctx.Done()
		return ctx.Err()
	})
	folder := largetest.Folder{Path: t.TempDir(), Fail: func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }}
	in := sinks.Instance{Name: "events", Stores: folder.Stores()}
	stored := newSink(t, in, s.settings("topic: orders\nlarge: {store: 'folder://bodies', above: '0'}"))
	var batch []*notification.Delivery
	for n := range 100 {
		batch = append(batch, delivery(n, fmt.Sprint("key-", n/2)))
	}
	for _, sink := range []*pubsub.Sink{s.sink(t, ""), stored} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		for range 2 { // the second time, it is over before
			for i, r := range sink.DeliverBatch(ctx, batch) {
				if class := sinktest.Class(r.Err); class == sinks.ClassTransient { // the engine does not judge it
					require.ErrorContains(t, r.Err, "previous message of its key")
					require.Equal(t, 1, i%2)
					continue
				}
				require.Equal(t, sinks.ClassUnavailable, sinktest.Class(r.Err), "%v", r.Err)
			}
		}
		cancel()
	}
}

// The engine repeats what has failed. Whatever the service answers in between, the first message of each notification
// comes after those of all earlier ones of its key.
func TestKeysStayInOrderThroughFailures(t *testing.T) {
	s := start(t)
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(1, 2))
	s.answers(func(context.Context, *pubsubpb.PublishRequest) error {
		mu.Lock()
		defer mu.Unlock()
		if random.IntN(2) == 0 {
			return nil
		}
		return status.Error([]codes.Code{codes.Unavailable, codes.Internal, codes.ResourceExhausted, codes.Aborted}[random.IntN(4)], "no")
	})
	sink := s.sink(t, "")
	var all []*notification.Delivery
	for n := range 300 {
		all = append(all, delivery(n, fmt.Sprint("key-", n%17)))
	}
	for left := all; len(left) > 0; {
		batch := left[:min(len(left), 40)]
		var again []*notification.Delivery
		for i, r := range sink.DeliverBatch(t.Context(), batch) {
			if r.Err != nil {
				require.NotEqual(t, sinks.ClassPermanent, sinktest.Class(r.Err))
				again = append(again, batch[i])
			}
		}
		left = append(again, left[len(batch):]...)
	}
	want := map[string][]string{}
	for _, d := range all {
		want[d.Key] = append(want[d.Key], d.ID)
	}
	got := map[string][]string{}
	for _, e := range s.received() {
		if !slices.Contains(got[e.Key], e.ID) {
			got[e.Key] = append(got[e.Key], e.ID)
		}
	}
	require.Equal(t, want, got)
}
