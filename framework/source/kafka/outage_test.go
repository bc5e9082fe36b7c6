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
	const timeout = time.Minute
	asked := make(chan struct{})
	var once sync.Once
	c := kafka.Config{Brokers: []string{"127.0.0.1:1"}, Topics: []string{"t"},
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			once.Do(func() { close(asked) })
			<-ctx.Done()
			return nil, ctx.Err()
		}}
	c.SetTimeout(timeout)
	source, err := kafka.New(c)
	require.NoError(t, err)
	defer source.Close()
	var asking sync.WaitGroup
	defer asking.Wait()
	first, end := context.WithCancel(t.Context())
	defer end()
	asking.Go(func() { _, _ = source.Probe(first) })
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = source.Probe(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(began), timeout/2)
	began = time.Now()
	_, err = source.NewReader([]byte(`{"cluster":"c","topic":"t","topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partition":0,"next":0,"leader_epoch":-1}`), store.Filter{})
	require.NoError(t, err)
	require.Less(t, time.Since(began), timeout/2)
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
	}, patience, 50*time.Millisecond)
	require.Eventually(t, func() bool {
		membership, err := s.Membership(t.Context())
		require.NoError(t, err)
		return len(membership.Members) == 1
	}, patience, 50*time.Millisecond, "it is there")
}
