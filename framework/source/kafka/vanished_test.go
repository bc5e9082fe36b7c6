package kafka_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waybill-go/waybill/framework/forwarder"
	kafka "github.com/waybill-go/waybill/framework/source/kafka"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

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
	_, err = admin.CreatePartitions(t.Context(), 1, stays)
	require.NoError(t, err)
	log.await(t, "the log has more partitions")

	require.Eventually(t, func() bool {
		_, err = admin.CreateTopic(t.Context(), 2, 1, nil, w.topic)
		return err == nil
	}, patience, 50*time.Millisecond)
	log.await(t, "was deleted and created again")
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
