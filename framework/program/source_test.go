package program

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// A forwarder reads a topic, with its cursors in either database. The commands that inspect and requeue
// work as they do with an outbox.
func TestASecondStageIsForwardedAndOperated(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		cluster := kafkatest.Fake(t)
		topic := cluster.CreateTopic(t, 2, map[string]string{"retention.ms": "604800000"})
		client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Brokers...), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		require.NoError(t, err)
		defer client.Close()
		write := func(first, last int) {
			for n := first; n <= last; n++ {
				require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Partition: int32(n % 2), Key: fmt.Appendf(nil, "k%d", n%2), Value: fmt.Appendf(nil, `{"n":%d}`, n)}).FirstErr())
			}
		}
		write(1, 10)
		destination := newReceiver(t)
		config := filepath.Join(t.TempDir(), "waybill.yaml")
		require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
database: %q
outbox: {prefix: second, payload: bytea}
source: {kafka: {brokers: [%q], topics: [%q], type: '"order.placed"'}}
forwarder: {lease: 2s}
sinks:
  partner: {kind: http, with: {url: %q}}
routes: {"order.*": [partner]}
`, o.address, cluster.Brokers[0], topic, destination.URL), 0o600))
		r := waybill(t, "migrate", "-c", config)
		require.Zero(t, r.code, r.stderr)
		f := startForward(t, "-c", config)
		destination.await(t, 10)
		require.Eventually(t, func() bool { // the checkpoint follows the delivery
			var look store.Status
			r := waybill(t, "status", "--json", "-c", config)
			require.NoError(t, json.Unmarshal([]byte(r.stdout), &look), r.stderr)
			require.Equal(t, "topic "+topic+" of Kafka", look.Source)
			pending := 0
			for _, c := range look.Cursors {
				pending += c.Pending
			}
			return len(look.Cursors) == 4 && pending == 0
		}, patience, 50*time.Millisecond)
		r = waybill(t, "status", "-c", config)
		require.Contains(t, r.stdout, "log:           topic "+topic+" of Kafka\noldest record: of 20")
		require.Contains(t, r.stdout, "PENDING counts records of all types")

		r = waybill(t, "doctor", "-c", config, "--only", "retention,history,lag,lanes")
		require.Zero(t, r.code, r.stdout)
		require.Regexp(t, `retention +ok +topic \S+ of Kafka keeps records for 7 days`, r.stdout)
		require.Regexp(t, `history +ok`, r.stdout)

		r = waybill(t, "replay", "-c", config, "--sink", "partner", "--since", "1h", "--type", "order.placed", "--dry-run")
		require.NotZero(t, r.code)
		require.Contains(t, r.stderr, "leave out type and until")
		r = waybill(t, "replay", "-c", config, "--sink", "partner", "--since", "1h", "--dry-run")
		require.Equal(t, result{stdout: "would replay 10 deliveries\n"}, r)
		r = waybill(t, "replay", "-c", config, "--sink", "partner", "--from", topic+"/9@3", "--dry-run")
		require.Contains(t, r.stderr, topic+"/9@3: the source does not read this partition")
		r = waybill(t, "replay", "-c", config, "--sink", "partner", "--from", topic+"/1@2", "--dry-run")
		require.Equal(t, result{stdout: "would replay 3 deliveries\n"}, r, "of the five of the partition")
		r = waybill(t, "replay", "-c", config, "--sink", "partner", "--since", "1h", "--yes")
		require.Zero(t, r.code, r.stderr)
		require.Eventually(t, func() bool { return destination.least() == 2 }, patience, 50*time.Millisecond)
		write(11, 12)
		destination.await(t, 12)
		require.Zero(t, f.end(t).code)
	})
}

// least returns how often the rarest body has arrived.
func (r *receiver) least() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	least := 1 << 30
	for _, n := range r.counts {
		least = min(least, n)
	}
	return least
}

func TestASourceThatDoesNotFitIsRefused(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		cluster := kafkatest.Fake(t)
		topic := cluster.CreateTopic(t, 2, nil)
		o.migrate(t)
		o.publish(t, 1, 3)
		forward := func(change string) string {
			config := filepath.Join(t.TempDir(), "waybill.yaml")
			require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
database: %q
%s
sinks: {partner: {kind: http, with: {url: "http://127.0.0.1:1"}}}
routes: {"*": [partner]}
`, o.address, change), 0o600))
			r := waybill(t, "forward", "-c", config)
			require.NotZero(t, r.code)
			return r.stderr
		}
		source := func(topic string) string {
			return fmt.Sprintf("source: {kafka: {brokers: [%q], topics: [%q]}}\n", cluster.Brokers[0], topic)
		}
		require.Contains(t, forward(source("no-such-topic")+"outbox: {payload: bytea}"), "topic no-such-topic does not exist in cluster")
		refused := forward(source(topic) + "outbox: {payload: bytea}")
		require.Regexp(t, "the payload column of .* takes only JSON|the outbox has rows, which are not read if the log is topic "+topic, refused)
		require.Contains(t, forward(source(topic)+"outbox: {lanes: 4, payload: bytea}"), "outbox.lanes is 4: the lanes of a source are its partitions")
	})
}

func TestAPasswordOnTheCommandLineIsWarnedOf(t *testing.T) {
	t.Parallel()
	for address, warns := range map[string]bool{
		"postgres://app:hunter2@127.0.0.1:1/app?connect_timeout=1": true, "host=127.0.0.1 port=1 user=app password=hunter2 connect_timeout=1": true, "mysql://app:hunter2@127.0.0.1:1/app": true,
		"postgres://app@127.0.0.1:1/app?connect_timeout=1": false, "sqlite:no-such.db": false, "postgres://127.0.0.1:1/app?password=hunter2&connect_timeout=1": true,
	} {
		r := waybill(t, "why", "x", "--database", address)
		require.Equal(t, warns, strings.Contains(r.stderr, "WAYBILL_DATABASE"), "%s: %s", address, r.stderr)
		require.NotContains(t, r.stderr, "hunter2")
		r = waybillWith(t, []string{"WAYBILL_DATABASE=" + address}, "why", "x")
		require.NotContains(t, r.stderr, "WAYBILL_DATABASE, or", address)
	}
}
