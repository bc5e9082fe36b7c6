package receiver

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	topic      = "orders"
	partitions = 6
)

// broker is a Kafka broker in the process. While a run lasts it only counts the
// records that are produced; afterwards all that it stored is consumed and checked.
type broker struct {
	cluster  *kfake.Cluster
	to       Destination
	capacity int
	records  countdown
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
	to := Destination{Kind: Kafka, InFlight: c.InFlight, Orders: c.Orders, Brokers: cluster.ListenAddrs(), Topic: topic}
	b := &broker{cluster: cluster, to: to, capacity: c.Capacity, records: newCountdown()}
	cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		b.records.add(countRecords(request.(*kmsg.ProduceRequest)))
		return nil, nil, false
	})
	return b, nil
}

// Where the batches' length and count of records stand in KIP-98's format.
const (
	batchLengthAt  = 8
	batchPrefix    = 12 // what the length does not count
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

func (b *broker) Destination() Destination         { return b.to }
func (b *broker) Arrived() int                     { return int(b.records.n.Load()) }
func (b *broker) Expect(count int) <-chan struct{} { return b.records.expect(count) }
func (b *broker) Close() error                     { b.cluster.Close(); return nil }

// Verdict consumes the topic from its beginning to its end.
func (b *broker) Verdict(ctx context.Context) (Verdict, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.cluster.ListenAddrs()...),
		kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return Verdict{}, err
	}
	defer client.Close()
	stored, err := b.stored(ctx, client)
	if err != nil {
		return Verdict{}, err
	}
	tally := NewTally(b.capacity)
	for taken := int64(0); taken < stored; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return Verdict{}, fmt.Errorf("consume what was produced: %w", err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			tally.Take(r.Value)
			taken++
		})
	}
	return tally.Verdict(), nil
}

// stored is how many records the topic holds.
func (b *broker) stored(ctx context.Context, client *kgo.Client) (count int64, err error) {
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
		return 0, fmt.Errorf("ask for the ends of the partitions: %w", err)
	}
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			count += p.Offset
		}
	}
	return count, nil
}
