// Package kafkatest provides Kafka clusters for tests: a fake one inside the process, or a real
// one that environment variables name. Both are a [Cluster], so the same test runs on either.
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

// timeout limits each operation.
const timeout = time.Minute

// Cluster is a Kafka cluster for one test. If a method fails, it ends the test.
type Cluster struct {
	// Brokers are the addresses to connect to. They stay the same after a restart.
	Brokers []string
	// Fake is the fake cluster, with which a test can inject faults; nil if the cluster is
	// real. Start replaces it.
	Fake *kfake.Cluster

	stop, start func(t testing.TB)
}

// Stop stops the brokers. They keep their data.
func (c *Cluster) Stop(t testing.TB) {
	t.Helper()
	c.stop(t)
}

// Start starts stopped brokers at the same addresses, and returns once they answer.
func (c *Cluster) Start(t testing.TB) {
	t.Helper()
	c.start(t)
	c.await(t)
}

// CreateTopic creates a topic with a unique name, and returns the name.
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

	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	client := c.client(t)
	defer client.Close()
	response, err := request.RequestWith(ctx, client)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(response.Topics[0].ErrorCode))
	for !hasLeaders(ctx, client, topic.Topic, partitions) { // the broker answers before it knows that it leads
		require.NoError(t, ctx.Err(), "no leader of %s", topic.Topic)
		time.Sleep(20 * time.Millisecond)
	}
	return topic.Topic
}

// hasLeaders reports whether each partition of a topic has a leader that answers.
func hasLeaders(ctx context.Context, client *kgo.Client, topic string, partitions int32) bool {
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

// Consume returns the records of a topic from its beginning, in the order of each partition. It
// waits until there are at least n.
func (c *Cluster) Consume(t testing.TB, topic string, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
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

// ConsumeCommitted returns the committed records of a topic from its beginning, in the order of
// each partition. It does not wait for open transactions.
func (c *Cluster) ConsumeCommitted(t testing.TB, topic string) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
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

// ConsumeAll returns all records of a topic. It waits until there are at least n.
func (c *Cluster) ConsumeAll(t testing.TB, topic string, n int) []*kgo.Record {
	t.Helper()
	return c.Consume(t, topic, max(n, c.count(t, topic)))
}

// count returns the sum of the topic's end offsets: the number of its records, if none was removed.
func (c *Cluster) count(t testing.TB, topic string) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
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

// await waits until the brokers assign producer ids, the last ability that they gain after a start.
func (c *Cluster) await(t testing.TB) {
	t.Helper()
	client := c.client(t)
	defer client.Close()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), timeout/10)
		defer cancel()
		request := kmsg.NewPtrInitProducerIDRequest()
		request.ProducerID, request.ProducerEpoch = -1, -1
		response, err := request.RequestWith(ctx, client)
		return err == nil && response.ErrorCode == 0
	}, timeout, 50*time.Millisecond, "no broker is ready at %v", c.Brokers)
}
