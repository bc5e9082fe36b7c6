package receiver

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-go/waybill/sinks/kafka"
)

const (
	partitions = 6
	// requestTimeout limits a request to the brokers.
	requestTimeout = 15 * time.Second
)

// Topic is a temporary topic, which the program creates, consumes and deletes.
type Topic struct {
	// Name is the name of the topic.
	Name string

	client  *kgo.Client
	stop    context.CancelFunc // nil before Consume
	stopped chan struct{}

	mu   sync.Mutex
	next map[int32]int64 // offset after the last consumed record, by partition
}

// OpenTopic creates a topic whose name is prefix with a random suffix.
func OpenTopic(ctx context.Context, brokers []string, prefix string) (*Topic, error) {
	t := &Topic{
		Name:    prefix + "-" + uuid.NewString()[:8],
		stopped: make(chan struct{}),
		next:    make(map[int32]int64),
	}
	var err error
	t.client, err = kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ClientID(prefix),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka: %w", err)
	}
	if err := t.create(ctx); err != nil {
		t.client.Close()
		return nil, fmt.Errorf("create the topic %s: %w", t.Name, err)
	}
	return t, nil
}

// Consume calls took, from one goroutine, with the id and the value of each record from the first one on,
// until Close. Call it once.
func (t *Topic) Consume(took func(id string, value []byte)) {
	t.client.AddConsumeTopics(t.Name)
	ctx, stop := context.WithCancel(context.Background())
	t.stop = stop
	go t.consume(ctx, took)
}

func (t *Topic) consume(ctx context.Context, took func(id string, value []byte)) {
	defer close(t.stopped)
	for {
		fetches := t.client.PollFetches(ctx)
		if ctx.Err() != nil {
			return
		}
		// The client retries failed requests; records that never arrive are missing in the result.
		fetches.EachRecord(func(r *kgo.Record) {
			took(header(r, kafka.HeaderID), r.Value)
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

// CatchUp waits until the topic is consumed up to its present end.
func (t *Topic) CatchUp(ctx context.Context) error {
	ends, err := t.ends(ctx)
	if err != nil {
		return fmt.Errorf("read the end of the topic %s: %w", t.Name, err)
	}
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !t.consumed(ends) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("consume the topic %s to its end: %w", t.Name, ctx.Err())
		case <-ticker.C:
		}
	}
	return nil
}

func (t *Topic) consumed(ends map[int32]int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for partition, end := range ends {
		if t.next[partition] < end {
			return false
		}
	}
	return true
}

// Close ends the consumer and deletes the topic.
func (t *Topic) Close() error {
	if t.stop != nil {
		t.stop()
		<-t.stopped
	}
	err := t.delete()
	t.client.Close()
	return err
}

func (t *Topic) create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = t.Name, partitions, -1 // the broker's default
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics = append(request.Topics, wanted)
	response, err := request.RequestWith(ctx, t.client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(response.Topics[0].ErrorCode)
}

func (t *Topic) delete() error {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	wanted := kmsg.NewDeleteTopicsRequestTopic()
	wanted.Topic = &t.Name
	request := kmsg.NewPtrDeleteTopicsRequest()
	request.Topics, request.TopicNames = append(request.Topics, wanted), []string{t.Name}
	response, err := request.RequestWith(ctx, t.client)
	if err == nil {
		err = kerr.ErrorForCode(response.Topics[0].ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("delete the topic %s: %w", t.Name, err)
	}
	return nil
}

// Stored returns the number of records in the topic.
func (t *Topic) Stored(ctx context.Context) (n int64, err error) {
	ends, err := t.ends(ctx)
	for _, end := range ends {
		n += end
	}
	return n, err
}

// ends returns the next offset of each partition.
func (t *Topic) ends(ctx context.Context) (map[int32]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	wanted := kmsg.NewListOffsetsRequestTopic()
	wanted.Topic = t.Name
	for p := range int32(partitions) {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = p, -1 // the latest offset
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
