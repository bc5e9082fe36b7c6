//go:build kafka

package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
	kafkasink "github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// growing is a topic that gets more partitions while forwarders die. The key of a record is its
// partition, so more partitions do not change the order of a key.
type growing struct {
	topic    string
	receiver *httptest.Server

	mu      sync.Mutex
	written []int // number of records of each partition
	ended   bool  // no more records are written
	came    map[string]bool
	highest map[string]int // highest number that has arrived, by partition
	broken  []string       // records that first arrived behind a later one
}

const (
	firstPartitions = 2
	growEvery       = crashTime / 8
	writeEvery      = 50 * time.Millisecond
)

func newGrowing(t *testing.T, cluster *kafkatest.Cluster) *growing {
	g := &growing{topic: cluster.CreateTopic(t, firstPartitions, nil), written: make([]int, firstPartitions), came: make(map[string]bool), highest: make(map[string]int)}
	g.receiver = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { g.take(r.Header.Get(webhook.HeaderID)) }))
	t.Cleanup(g.receiver.Close)
	return g
}

// take records an id, such as 3-17.
func (g *growing) take(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.came[id] {
		return
	}
	g.came[id] = true
	partition, text, _ := strings.Cut(id, "-")
	number, err := strconv.Atoi(text)
	if err != nil || number < g.highest[partition] {
		g.broken = append(g.broken, id)
	}
	g.highest[partition] = number
}

// run writes records and adds partitions until ctx is done.
func (g *growing) run(ctx context.Context, t *testing.T, cluster *kafkatest.Cluster) {
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMaxAge(time.Second), kgo.MetadataMinAge(100*time.Millisecond))
	require.NoError(t, err)
	defer client.Close()
	admin := kadm.NewClient(client)
	for grown := time.Now(); pace.Sleep(ctx, writeEvery); {
		if time.Since(grown) > growEvery {
			// Without the broker, or an answer, it tries again later.
			if answers, err := admin.UpdatePartitions(ctx, len(g.written)+1, g.topic); err == nil && created(answers[g.topic]) {
				grown = time.Now()
				g.mu.Lock()
				g.written = append(g.written, 0)
				g.mu.Unlock()
			}
		}
		for partition := range g.written {
			g.write(t, client, partition)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
}

// created reports whether the topic has the partitions, of which an earlier answer may be lost.
func created(answer kadm.CreatePartitionsResponse) bool {
	return answer.Err == nil || errors.Is(answer.Err, kerr.InvalidPartitions)
}

// write writes a record, and waits while brokers are down.
func (g *growing) write(t *testing.T, client *kgo.Client, partition int) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience) // on a busy machine a restart of the broker took 40 s
	defer cancel()
	record := &kgo.Record{
		Topic: g.topic, Partition: int32(partition), Key: fmt.Append(nil, partition), Value: []byte("{}"),
		Headers: []kgo.RecordHeader{
			{Key: kafkasink.HeaderID, Value: fmt.Appendf(nil, "%d-%d", partition, g.written[partition])}, {Key: kafkasink.HeaderType, Value: []byte("growing.written")},
			{Key: kafkasink.HeaderVersion, Value: []byte("1")}, {Key: kafkasink.HeaderOccurredOn, Value: []byte("2026-03-01T10:00:00Z")},
		},
	}
	for {
		err := client.ProduceSync(ctx, record).FirstErr()
		if err == nil {
			break
		}
		if !pace.Sleep(ctx, writeEvery) {
			t.Errorf("record %s cannot be written to partition %d of %d: %v", record.Headers[0].Value, partition, len(g.written), err)
			return
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.written[partition]++
}

// arrived returns an error while records are missing, or if an order was violated.
func (g *growing) arrived() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	total := 0
	for _, n := range g.written {
		total += n
	}
	if !g.ended || len(g.came) < total || len(g.broken) > 0 {
		return fmt.Errorf("%d of %d records in %d partitions came, of which %d in a wrong order: %.10q", len(g.came), total, len(g.written), len(g.broken), g.broken)
	}
	return nil
}
