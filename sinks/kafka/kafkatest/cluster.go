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

// CreateTopic creates a topic with a unique name, and returns the name. It keeps all records, however old their times
// are, unless configs has retention.ms.
func (c *Cluster) CreateTopic(t testing.TB, partitions int32, configs map[string]string) string {
	t.Helper()
	name := fmt.Sprintf("waybill-test-%x", rand.Uint64())
	settings := map[string]*string{"retention.ms": new("-1")}
	for key, value := range configs {
		settings[key] = &value
	}
	c.administer(t, func(ctx context.Context, admin *kadm.Client) {
		_, err := admin.CreateTopic(ctx, partitions, 1, settings, name)
		require.NoError(t, err)
		offsets(ctx, t, admin.ListEndOffsets, name, int(partitions))
	})
	return name
}

// offsets returns what list does for a topic with at least n partitions. It waits until each has a leader: a broker
// answers before it knows what it leads.
func offsets(ctx context.Context, t testing.TB, list func(context.Context, ...string) (kadm.ListedOffsets, error), topic string, n int) kadm.ListedOffsets {
	t.Helper()
	for {
		listed, err := list(ctx, topic)
		if err == nil && listed.Error() == nil && len(listed[topic]) >= n {
			return listed
		}
		require.NoError(t, ctx.Err(), "not every partition of %s has a leader: %v, %v", topic, err, listed.Error())
		time.Sleep(20 * time.Millisecond)
	}
}

// DeleteTopic deletes a topic.
func (c *Cluster) DeleteTopic(t testing.TB, name string) {
	t.Helper()
	c.administer(t, func(ctx context.Context, admin *kadm.Client) {
		_, err := admin.DeleteTopic(ctx, name)
		require.NoError(t, err)
	})
}

// CreateAgain creates a topic with one partition under the name of one that was deleted.
func (c *Cluster) CreateAgain(t testing.TB, name string) {
	t.Helper()
	c.administer(t, func(ctx context.Context, admin *kadm.Client) {
		_, err := admin.CreateTopic(ctx, 1, 1, nil, name)
		require.NoError(t, err)
	})
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
	left := make(map[int32]int64)
	offsets(ctx, t, kadm.NewClient(client).ListCommittedOffsets, topic, 1).Each(func(o kadm.ListedOffset) {
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
	return c.Consume(t, topic, max(n, c.Count(t, topic)))
}

// Count returns the sum of the topic's end offsets: the number of its records, if none was removed.
func (c *Cluster) Count(t testing.TB, topic string) (n int) {
	t.Helper()
	c.administer(t, func(ctx context.Context, admin *kadm.Client) {
		offsets(ctx, t, admin.ListEndOffsets, topic, 1).Each(func(o kadm.ListedOffset) { n += int(o.Offset) })
	})
	return n
}

// administer calls use with a client for requests to the cluster, whose context ends after the timeout.
func (c *Cluster) administer(t testing.TB, use func(context.Context, *kadm.Client)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	client := c.client(t)
	defer client.Close()
	use(ctx, kadm.NewClient(client))
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
