package kafka_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	kafka "github.com/waybill-go/waybill/framework/source/kafka"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// A caller that waits for the cluster gives up when its own context ends, even during the request of
// another caller.
func TestWaitingForTheClusterEndsWithTheContext(t *testing.T) {
	t.Parallel()
	source, err := kafka.New(kafka.Config{Brokers: []string{"127.0.0.1:1"}, Topics: []string{"t"}, Timeout: 10 * time.Second,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }})
	require.NoError(t, err)
	defer source.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var asking sync.WaitGroup
	defer asking.Wait()
	first, end := context.WithCancel(t.Context())
	defer end()
	asking.Go(func() { _, _ = source.Probe(first) })
	time.Sleep(50 * time.Millisecond)
	began := time.Now()
	_, err = source.Probe(ctx)
	require.Error(t, err)
	require.Less(t, time.Since(began), 2*time.Second)
	began = time.Now()
	_, err = source.NewReader([]byte(`{"cluster":"c","topic":"t","topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partition":0,"next":0,"leader_epoch":-1}`), store.Filter{})
	require.NoError(t, err)
	require.Less(t, time.Since(began), 2*time.Second)
}

// A forwarder follows the database even while Kafka does not answer.
func TestAPauseTakesEffectWhileTheClusterIsDown(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	w := newWorld(t, cluster, 2, nil)
	w.write(t, orders(0, 10, 2)...)
	s, sink := w.open(t), newTaken()
	forward(t, s, sink)
	sink.await(t, 10)
	cluster.Stop(t)
	defer cluster.Start(t) // then the forwarder ends at once
	time.Sleep(5 * time.Second)
	require.NoError(t, s.Begin(t.Context(), store.Action{ID: "pause", Name: "pause"}))
	_, err := s.Pause(t.Context(), "pause", "events", true)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		membership, err := s.Membership(t.Context())
		require.NoError(t, err)
		return !slices.ContainsFunc(membership.Lanes, func(l store.LaneState) bool { return l.Lane.Sink == "events" && l.Owner != "" })
	}, 10*time.Second, 50*time.Millisecond)
	membership, err := s.Membership(t.Context())
	require.NoError(t, err)
	require.Len(t, membership.Members, 1, "it is there")
}
