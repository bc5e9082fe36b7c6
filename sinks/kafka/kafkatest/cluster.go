// Package kafkatest gives tests a Kafka cluster: a fake one inside the process,
// or a real one that the environment names. Both are a [Cluster], so one test
// body runs on either.
package kafkatest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// patience is how long anything that must happen may take.
const patience = time.Minute

// Cluster is a Kafka cluster for the time of one test. Its methods end the test
// when they fail.
type Cluster struct {
	// Brokers are the addresses to connect to; a restart keeps them.
	Brokers []string
	// Fake is the fake cluster, for its faults and controls; nil when the
	// cluster is real. Start replaces it.
	Fake *kfake.Cluster

	stop, start func(t testing.TB)
}

// Stop ends the brokers; what they stored stays.
func (c *Cluster) Stop(t testing.TB) {
	t.Helper()
	c.stop(t)
}

// Start brings stopped brokers back at the same addresses and returns when they
// answer.
func (c *Cluster) Start(t testing.TB) {
	t.Helper()
	c.start(t)
	c.await(t)
}

// CreateTopic makes a topic of that many partitions and returns its name, which
// no other test has.
func (c *Cluster) CreateTopic(t testing.TB, partitions int32, configs map[string]string) string {
	t.Helper()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic = fmt.Sprintf("waybill-test-%x", rand.Uint64())
	topic.NumPartitions = partitions
	topic.ReplicationFactor = 1
	for name, value := range configs {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = name, kmsg.StringPtr(value)
		topic.Configs = append(topic.Configs, config)
	}
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics = append(request.Topics, topic)

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client := c.client(t)
	defer client.Close()
	response, err := request.RequestWith(ctx, client)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(response.Topics[0].ErrorCode))
	for !leads(ctx, client, topic.Topic, partitions) { // the answer comes before the broker knows that it leads
		require.NoError(t, ctx.Err(), "no leader of %s", topic.Topic)
		time.Sleep(20 * time.Millisecond)
	}
	return topic.Topic
}

// leads says whether each partition of a topic has a leader that knows it.
func leads(ctx context.Context, client *kgo.Client, topic string, partitions int32) bool {
	asked := kmsg.NewListOffsetsRequestTopic()
	asked.Topic = topic
	for n := range partitions {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = n, -1
		asked.Partitions = append(asked.Partitions, partition)
	}
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	request.Topics = append(request.Topics, asked)
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return false
	}
	known := int32(0)
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 {
				known++
			}
		}
	}
	return known == partitions
}

// Consume returns the records of a topic from its beginning, in the order of
// each partition, as soon as there are at least n.
func (c *Cluster) Consume(t testing.TB, topic string, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client := c.client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer client.Close()
	var records []*kgo.Record
	for len(records) < n {
		fetches := client.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "%d of %d records came", len(records), n)
		records = append(records, fetches.Records()...)
	}
	return records
}

// ConsumeCommitted returns the records of a topic from its beginning that readers of what is committed see
// now, in the order of each partition. It waits for the end of no transaction.
func (c *Cluster) ConsumeCommitted(t testing.TB, topic string) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client := c.client(t, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())
	defer client.Close()
	ends, err := kadm.NewClient(client).ListCommittedOffsets(ctx, topic)
	require.NoError(t, err)
	left := make(map[int32]int64)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	var records []*kgo.Record
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "%d partitions have not come to their ends", len(left))
		fetches.EachRecord(func(r *kgo.Record) {
			end, has := left[r.Partition]
			if has && r.Offset < end && !r.Attrs.IsControl() {
				records = append(records, r)
			}
			if has && r.Offset >= end-1 {
				delete(left, r.Partition)
			}
		})
	}
	return records
}

// ConsumeAll returns the records that a topic has now, at least n.
func (c *Cluster) ConsumeAll(t testing.TB, topic string, n int) []*kgo.Record {
	t.Helper()
	return c.Consume(t, topic, max(n, c.count(t, topic)))
}

// count asks for the ends of the topic's partitions, none of whose records was removed.
func (c *Cluster) count(t testing.TB, topic string) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client := c.client(t)
	defer client.Close()
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr(topic)}}
	known, err := metadata.RequestWith(ctx, client)
	require.NoError(t, err)
	ends := kmsg.NewListOffsetsRequestTopic()
	ends.Topic = topic
	for _, p := range known.Topics[0].Partitions {
		asked := kmsg.NewListOffsetsRequestTopicPartition()
		asked.Partition, asked.Timestamp = p.Partition, -1
		ends.Partitions = append(ends.Partitions, asked)
	}
	request := kmsg.NewPtrListOffsetsRequest()
	request.Topics = append(request.Topics, ends)
	response, err := request.RequestWith(ctx, client)
	require.NoError(t, err)
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			n += int(p.Offset)
		}
	}
	return n
}

func (c *Cluster) client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(c.Brokers...))...)
	require.NoError(t, err)
	return client
}

// await returns when the brokers give out producer ids: that is the last thing
// that they can do after a start.
func (c *Cluster) await(t testing.TB) {
	t.Helper()
	client := c.client(t)
	defer client.Close()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), patience/10)
		defer cancel()
		request := kmsg.NewPtrInitProducerIDRequest()
		request.ProducerID, request.ProducerEpoch = -1, -1
		response, err := request.RequestWith(ctx, client)
		return err == nil && response.ErrorCode == 0
	}, patience, 50*time.Millisecond, "no broker is ready at %v", c.Brokers)
}
