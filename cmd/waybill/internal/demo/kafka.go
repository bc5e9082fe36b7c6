package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/kafka"
)

const (
	// topicPrefix begins the names of the demo's topics; a random part follows.
	topicPrefix = "waybill-demo"
	partitions  = 4
	// requestTimeout bounds a request to the brokers.
	requestTimeout = 15 * time.Second
)

// topic is the kafka sink's receiver: it consumes what the brokers stored.
type topic struct {
	name    string
	brokers []string
	fake    *kfake.Cluster // nil where the brokers are somebody's own
	client  *kgo.Client
	got     *arrivals

	stop    context.CancelFunc
	stopped chan struct{}

	mu   sync.Mutex
	next map[int32]int64 // offset behind the last consumed record, by partition
}

var _ receiver = (*topic)(nil)

// openTopic creates a topic that is this demo's own, on a broker inside the
// process unless brokers are named, and begins to consume it. What the broker
// inside the process stores goes into folder.
func openTopic(ctx context.Context, brokers []string, folder string) (t *topic, err error) {
	t = &topic{
		name:    topicPrefix + "-" + uuid.NewString()[:8],
		brokers: brokers,
		got:     newArrivals(),
		stopped: make(chan struct{}),
		next:    make(map[int32]int64),
	}
	if len(brokers) == 0 {
		if t.fake, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.DataDir(filepath.Join(folder, "kafka"))); err != nil {
			return nil, fmt.Errorf("start a Kafka broker: %w", err)
		}
		t.brokers = t.fake.ListenAddrs()
	}
	t.client, err = kgo.NewClient(kgo.SeedBrokers(t.brokers...), kgo.ClientID(topicPrefix),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.closeFake()
		return nil, fmt.Errorf("connect to Kafka: %w", err)
	}
	if err := t.create(ctx); err != nil {
		t.client.Close()
		t.closeFake()
		return nil, fmt.Errorf("create the topic %s: %w", t.name, err)
	}
	t.client.AddConsumeTopics(t.name)
	consuming, stop := context.WithCancel(context.WithoutCancel(ctx))
	t.stop = stop
	go t.consume(consuming)
	return t, nil
}

func kafkaConfig(brokers []string, topic string) *kafka.Config {
	c := new(kafka.Config)
	c.SetDefaults()
	c.Brokers, c.Topic = brokers, topic
	return c
}

func (t *topic) sink() (forwarder.Sink, error) {
	s, err := kafka.New(sinks.Instance{Name: kafkaSink}, *kafkaConfig(t.brokers, t.name))
	return forwarder.Sink{Sink: s, Retry: retry}, err
}

func (t *topic) arrived() *arrivals { return t.got }

func (t *topic) counts() string { return "consumed" }

// consume counts records until ctx is done.
func (t *topic) consume(ctx context.Context) {
	defer close(t.stopped)
	for {
		fetches := t.client.PollFetches(ctx)
		if ctx.Err() != nil {
			return
		}
		// The client retries what went wrong; what never comes is missing in the
		// report.
		fetches.EachRecord(func(r *kgo.Record) {
			t.got.add(header(r, kafka.HeaderID))
			t.mu.Lock()
			t.next[r.Partition] = r.Offset + 1
			t.mu.Unlock()
		})
	}
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// catchUp waits until the topic is consumed to its end.
func (t *topic) catchUp(ctx context.Context) error {
	ends, err := t.ends(ctx)
	if err != nil {
		return fmt.Errorf("ask for the end of the topic %s: %w", t.name, err)
	}
	for !t.consumed(ends) {
		if !sleepUntil(ctx, time.Now().Add(5*time.Millisecond)) {
			return fmt.Errorf("consume the topic %s to its end: %w", t.name, ctx.Err())
		}
	}
	return nil
}

func (t *topic) consumed(ends map[int32]int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for partition, end := range ends {
		if t.next[partition] < end {
			return false
		}
	}
	return true
}

// close ends the consumer and removes the topic.
func (t *topic) close() error {
	t.stop()
	<-t.stopped
	var err error
	if t.fake == nil {
		err = t.delete()
	}
	t.client.Close()
	t.closeFake()
	return err
}

func (t *topic) closeFake() {
	if t.fake != nil {
		t.fake.Close()
	}
}

func (t *topic) create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = t.name, partitions, -1 // -1: the broker's default
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics = append(request.Topics, wanted)
	response, err := request.RequestWith(ctx, t.client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(response.Topics[0].ErrorCode)
}

func (t *topic) delete() error {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	wanted := kmsg.NewDeleteTopicsRequestTopic()
	wanted.Topic = &t.name
	request := kmsg.NewPtrDeleteTopicsRequest()
	request.Topics, request.TopicNames = append(request.Topics, wanted), []string{t.name}
	response, err := request.RequestWith(ctx, t.client)
	if err == nil {
		err = kerr.ErrorForCode(response.Topics[0].ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("delete the topic %s: %w", t.name, err)
	}
	return nil
}

// ends are the offsets that the next records would get, by partition.
func (t *topic) ends(ctx context.Context) (map[int32]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	wanted := kmsg.NewListOffsetsRequestTopic()
	wanted.Topic = t.name
	for p := range int32(partitions) {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = p, -1 // -1: the latest
		wanted.Partitions = append(wanted.Partitions, partition)
	}
	request := kmsg.NewPtrListOffsetsRequest()
	request.Topics = append(request.Topics, wanted)
	response, err := request.RequestWith(ctx, t.client)
	if err != nil {
		return nil, err
	}
	ends := make(map[int32]int64, partitions)
	for _, answered := range response.Topics {
		for _, p := range answered.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, err
			}
			ends[p.Partition] = p.Offset
		}
	}
	return ends, nil
}
