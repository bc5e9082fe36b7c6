package kafka_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-go/waybill/framework/forwarder"
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

// A leader that cannot be reached from here, for example, while the others answer.
func TestALaneWhosePartitionDoesNotAnswerSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Fake(t), 1, nil)
	other := w.cluster.CreateTopic(t, 1, nil)
	w.write(t, orders(0, 3, 1)...)
	s := w.open(t, func(c *kafka.Config) { c.Topics = append(c.Topics, other) })
	_, err := s.Cut(t.Context(), "events", 1, "")
	require.NoError(t, err)
	reader := leased(t, s)
	w.hidesEnds(func() bool { return true })
	_, _, err = readAll(t, s, reader, 10)
	require.ErrorIs(t, err, kerr.KafkaStorageError)
}

// A lane that took a target without its partition for the end would forget which records it has delivered, and a
// forwarder that runs once would stop before them.
func TestATargetWithoutAPartitionIsNotItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Fake(t), 1, nil)
	other := w.cluster.CreateTopic(t, 1, nil)
	w.write(t, orders(0, 7, 1)...)
	s := w.open(t, func(c *kafka.Config) { c.Topics = append(c.Topics, other) })
	_, err := s.Cut(t.Context(), "events", 1, "")
	require.NoError(t, err)
	reader := leased(t, s)
	var answers atomic.Bool
	w.hidesEnds(func() bool { return !answers.Load() })
	target, err := s.Probe(t.Context())
	require.NoError(t, err, "the other topic answers")
	answers.Store(true)
	for at, more := range []bool{true, true, false} {
		page, err := reader.Next(t.Context(), target, 3)
		require.NoError(t, err)
		require.Len(t, page.Envelopes, min(3, 7-3*at))
		require.Equal(t, !more, page.CaughtUp, "page %d", at)
	}
	w.write(t, orders(7, 1, 1)...)
	old, err := reader.Next(t.Context(), target, 3)
	require.NoError(t, err)
	require.Len(t, old.Envelopes, 1)
}

// hidesEnds lets the brokers answer with an error for the world's topic, and with an end of 0 for others, while
// hidden says so.
func (w *world) hidesEnds(hidden func() bool) {
	w.cluster.Fake.ControlKey(int16(kmsg.ListOffsets), func(k kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.Fake.KeepControl()
		if !hidden() {
			return nil, nil, false
		}
		request := k.(*kmsg.ListOffsetsRequest)
		response := request.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, topic := range request.Topics {
			answer := kmsg.NewListOffsetsResponseTopic()
			answer.Topic = topic.Topic
			for _, p := range topic.Partitions {
				partition := kmsg.NewListOffsetsResponseTopicPartition()
				partition.Partition = p.Partition
				if topic.Topic == w.topic {
					partition.ErrorCode = kerr.KafkaStorageError.Code
				}
				answer.Partitions = append(answer.Partitions, partition)
			}
			response.Topics = append(response.Topics, answer)
		}
		return response, nil, true
	})
}

func TestALaneWhoseLeaderSendsNothingSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Fake(t), 1, nil)
	w.write(t, orders(0, 3, 1)...)
	w.begun(t)
	s := w.open(t, func(c *kafka.Config) { c.SetTimeout(time.Second) })
	reader := leased(t, s)
	w.cluster.Fake.ControlKey(int16(kmsg.Fetch), func(k kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.Fake.KeepControl()
		request := k.(*kmsg.FetchRequest)
		response := request.ResponseKind().(*kmsg.FetchResponse)
		answer := kmsg.NewFetchResponseTopic()
		answer.Topic, answer.TopicID = request.Topics[0].Topic, request.Topics[0].TopicID
		answer.Partitions = append(answer.Partitions, kmsg.NewFetchResponseTopicPartition())
		response.Topics = append(response.Topics, answer)
		return response, nil, true
	})
	var err error
	require.Eventually(t, func() bool { // a request may take too long on a busy machine
		var target store.Target
		if target, err = s.Probe(t.Context()); err == nil {
			_, err = reader.Next(t.Context(), target, 10)
		}
		return err != nil && strings.Contains(err.Error(), "the leader has sent nothing for 1s")
	}, patience, time.Millisecond)
}

func testATopicThatVanishesStopsItsOwnLanes(t *testing.T, cluster *kafkatest.Cluster) {
	w := newWorld(t, cluster, 2, nil)
	stays := cluster.CreateTopic(t, 2, nil)
	write := func(topic string, first int) {
		records := orders(first, 10, 3)
		for _, r := range records {
			r.Topic = topic
		}
		w.write(t, records...)
	}
	both := func(c *kafka.Config) { c.Topics = []string{w.topic, stays} }
	write(w.topic, 0)
	s, sink, log := w.open(t, both), newTaken(), newLines()
	forward(t, s, sink, func(c *forwarder.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	sink.await(t, 10)

	admin := kadm.NewClient(w.client)
	_, err := admin.DeleteTopic(t.Context(), w.topic)
	require.NoError(t, err)
	log.await(t, "topic "+w.topic+" does not exist")
	write(stays, 10)
	sink.await(t, 20)
	_, err = s.Sample(t.Context(), store.SampleQuery{})
	require.NoError(t, err)
	answers, err := admin.CreatePartitions(t.Context(), 1, stays)
	require.NoError(t, err)
	require.NoError(t, answers.Error())
	log.await(t, "the log has more partitions")

	require.Eventually(t, func() bool {
		_, err = admin.CreateTopic(t.Context(), 2, 1, nil, w.topic)
		return err == nil
	}, patience, 50*time.Millisecond)
	log.await(t, "was deleted and created again")
	_, err = s.Cut(t.Context(), "events", 1, "")
	require.ErrorIs(t, err, store.ErrPosition)
	require.ErrorContains(t, err, "was deleted and created again")
	write(stays, 20)
	sink.await(t, 30)
}

// lines is a log for whose lines a test can wait.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{} // closed with the next line
}

func newLines() *lines { return &lines{more: make(chan struct{})} }

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.more)
	l.more = make(chan struct{})
	return l.text.Write(line)
}

func (l *lines) await(t *testing.T, text string) {
	t.Helper()
	for deadline := time.After(patience); ; {
		l.mu.Lock()
		found, more := strings.Contains(l.text.String(), text), l.more
		l.mu.Unlock()
		if found {
			return
		}
		select {
		case <-more:
		case <-deadline:
			require.FailNow(t, "it is not logged", text)
		}
	}
}
