package receiver

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	topic      = "orders"
	partitions = 6
)

// records are the records of a topic. During a run they are only counted; afterwards all of them are
// consumed and checked.
type records struct {
	to       Destination
	capacity int
	arrived  countdown
}

func newRecords(c Config, brokers []string, topic string) records {
	to := Destination{Kind: Kafka, InFlight: c.InFlight, Orders: c.Orders, Brokers: brokers, Topic: topic}
	return records{to: to, capacity: c.Capacity, arrived: newCountdown()}
}

func (r *records) Destination() Destination         { return r.to }
func (r *records) Arrived() int                     { return int(r.arrived.n.Load()) }
func (r *records) Expect(count int) <-chan struct{} { return r.arrived.expect(count) }

// broker is a Kafka broker inside the process.
type broker struct {
	records
	cluster *kfake.Cluster
}

func newBroker(c Config) (*broker, error) {
	options := []kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(partitions, topic)}
	if c.Delay > 0 {
		options = append(options, kfake.ListenFn(listenSlowly(c.Delay)))
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		return nil, err
	}
	b := &broker{newRecords(c, cluster.ListenAddrs(), topic), cluster}
	cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		b.arrived.add(countRecords(request.(*kmsg.ProduceRequest)))
		return nil, nil, false
	})
	return b, nil
}

// Positions of the length and of the record count in a batch, in the format of KIP-98.
const (
	batchLengthAt  = 8
	batchPrefix    = 12 // bytes that the length does not count
	batchRecordsAt = 57
)

func countRecords(request *kmsg.ProduceRequest) (count int64) {
	for _, t := range request.Topics {
		for _, p := range t.Partitions {
			for batch := p.Records; len(batch) >= batchRecordsAt+4; {
				count += int64(binary.BigEndian.Uint32(batch[batchRecordsAt:]))
				end := batchPrefix + int(binary.BigEndian.Uint32(batch[batchLengthAt:]))
				batch = batch[min(end, len(batch)):]
			}
		}
	}
	return count
}

// Close stops the broker.
func (b *broker) Close() error { b.cluster.Close(); return nil }

// Verdict consumes the topic from its beginning to its end.
func (r *records) Verdict(ctx context.Context) (Verdict, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(r.to.Brokers...),
		kgo.ConsumeTopics(r.to.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return Verdict{}, err
	}
	defer client.Close()
	stored, err := stored(ctx, client, r.to.Topic)
	if err != nil {
		return Verdict{}, err
	}
	tally := NewTally(r.capacity)
	for taken := int64(0); taken < stored; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return Verdict{}, fmt.Errorf("consume what was produced: %w", err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			tally.Take(record.Value)
			taken++
		})
	}
	return tally.Verdict(), nil
}

// stored returns the number of records in the topic.
func stored(ctx context.Context, client *kgo.Client, topic string) (count int64, err error) {
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	for partition := range int32(partitions) {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = partition, -1 // the end
		t.Partitions = append(t.Partitions, p)
	}
	request.Topics = append(request.Topics, t)
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return 0, fmt.Errorf("list the ends of the partitions: %w", err)
	}
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return 0, fmt.Errorf("the end of partition %d: %w", p.Partition, err)
			}
			count += p.Offset
		}
	}
	return count, nil
}
