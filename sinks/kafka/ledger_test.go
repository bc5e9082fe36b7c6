package kafka_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

func exactlyOnce(positions string) func(*kafka.Config) {
	return func(c *kafka.Config) { c.ExactlyOnce, c.Positions = true, positions }
}

var onlyLane = sinks.LedgerLane{Number: 0, Of: 1}

// openLedger opens a ledger, and closes it when the test ends.
func openLedger(t testing.TB, sink *kafka.Sink, lane sinks.LedgerLane) (ledger sinks.Ledger, newest string) {
	t.Helper()
	l, note, err := sink.OpenLedger(t.Context(), lane)
	for began := time.Now(); err != nil && time.Since(began) < time.Minute; { // the broker of a new topic may not know yet that it leads
		l, note, err = sink.OpenLedger(t.Context(), lane)
	}
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close(context.WithoutCancel(t.Context()))) })
	return l, string(note)
}

func deliverAll(t testing.TB, to interface {
	DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result
}, batch ...*notification.Delivery) {
	t.Helper()
	for _, r := range to.DeliverBatch(t.Context(), batch) {
		require.NoError(t, r.Err)
	}
}

// committed returns the ids of a topic's committed records. It waits until there are at least n, since brokers
// answer a commit before they show its records.
func committed(t testing.TB, cluster *kafkatest.Cluster, topic string, n int) (ids []string) {
	t.Helper()
	for began := time.Now(); ; {
		ids = nil
		for _, r := range cluster.ConsumeCommitted(t, topic) {
			ids = append(ids, headersOf(r)["id"])
		}
		if len(ids) >= n || time.Since(began) > time.Minute {
			return ids
		}
	}
}

func TestALedgerCommitsRecordsAndNoteTogether(t *testing.T) {
	t.Parallel()
	testALedgerCommitsRecordsAndNoteTogether(t, kafkatest.Fake(t))
}

func testALedgerCommitsRecordsAndNoteTogether(t *testing.T, cluster *kafkatest.Cluster) {
	topic := cluster.CreateTopic(t, 3, nil)
	sink := newSink(t, cluster, topic, exactlyOnce(topic+"-positions"))
	first, newest := openLedger(t, sink, onlyLane)
	require.Empty(t, newest)

	a, b, c := delivery("k"), delivery("k"), delivery("")
	deliverAll(t, first, a, b)
	require.Empty(t, committed(t, cluster, topic, 0))
	require.NoError(t, first.Commit(t.Context(), []byte("one")))
	require.Equal(t, []string{a.ID, b.ID}, committed(t, cluster, topic, 2))
	deliverAll(t, first, c) // is never committed

	second, newest := openLedger(t, sink, onlyLane)
	require.Equal(t, "one", newest)
	d := delivery("k")
	deliverAll(t, second, d)
	require.NoError(t, second.Commit(t.Context(), []byte("two")))

	require.Error(t, first.Commit(t.Context(), []byte("stale")), "a later ledger has fenced this one")
	require.Error(t, first.Err())
	require.Equal(t, []string{a.ID, b.ID, d.ID}, committed(t, cluster, topic, 3))
	_, newest = openLedger(t, sink, onlyLane)
	require.Equal(t, "two", newest)
}

func TestALedgerThatIsClosedCommitsNothing(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 1, nil)
	sink := newSink(t, cluster, topic, exactlyOnce(""))
	ledger, _ := openLedger(t, sink, onlyLane)
	deliverAll(t, ledger, delivery("k"))
	require.NoError(t, ledger.Close(t.Context()))
	require.Empty(t, committed(t, cluster, topic, 0))
	require.ErrorIs(t, ledger.DeliverBatch(t.Context(), []*notification.Delivery{delivery("k")})[0].Err, sinks.ErrAborted)
	require.ErrorIs(t, ledger.Commit(t.Context(), nil), sinks.ErrAborted)
}

func TestTheNewestNoteIsFoundBeforeManyOtherRecords(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 1, nil)
	mine := newSink(t, cluster, topic, exactlyOnce("shared"))
	ledger, _ := openLedger(t, mine, onlyLane)
	require.NoError(t, ledger.Commit(t.Context(), []byte("mine")))

	other := newSinkNamed(t, "other", cluster.Brokers, topic, exactlyOnce("shared"))
	otherLedger, newest := openLedger(t, other, onlyLane)
	require.Empty(t, newest, "another sink's note")
	for range 40 {
		require.NoError(t, otherLedger.Commit(t.Context(), []byte("other")))
	}
	deliverAll(t, otherLedger, delivery("k"))
	_, newest = openLedger(t, mine, onlyLane)
	require.Equal(t, "mine", newest)
}

func TestEachLaneHasItsOwnNotes(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	sink := newSink(t, cluster, cluster.CreateTopic(t, 1, nil), exactlyOnce(""))
	var ledgers []sinks.Ledger
	for number := range 2 {
		ledger, _ := openLedger(t, sink, sinks.LedgerLane{Number: number, Of: 2})
		ledgers = append(ledgers, ledger)
	}
	for number, note := range []string{"a", "b"} {
		require.NoError(t, ledgers[number].Commit(t.Context(), []byte(note)), "the other lane's ledger does not fence it")
	}
	for number, note := range []string{"a", "b"} {
		_, newest := openLedger(t, sink, sinks.LedgerLane{Number: number, Of: 2})
		require.Equal(t, note, newest)
	}
}

func TestARecordThatTheClientRefusesDoesNotAbortTheTransaction(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 1, nil)
	sink := newSink(t, cluster, topic, exactlyOnce(""), func(c *kafka.Config) { c.MaxMessageBytes = 1000 })
	ledger, _ := openLedger(t, sink, onlyLane)
	large, behind, other := delivery("k"), delivery("k"), delivery("other")
	large.Payload = make([]byte, 2000)
	results := ledger.DeliverBatch(t.Context(), []*notification.Delivery{large, behind, other})
	assertClass(t, sinks.ClassInvalid, results[0].Err)
	require.Error(t, results[1].Err, "the previous one of its key has failed")
	require.NoError(t, results[2].Err)
	require.NoError(t, ledger.Err())
	require.NoError(t, ledger.Commit(t.Context(), []byte("note")))
	require.Equal(t, []string{other.ID}, committed(t, cluster, topic, 1))
}

func TestALedgerAfterAnExpiredOneMakesTheDeliveries(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(sinks.Ledger) error{
		"delivering": func(l sinks.Ledger) error {
			return l.DeliverBatch(t.Context(), []*notification.Delivery{delivery("k")})[0].Err
		},
		"committing": func(l sinks.Ledger) error { return l.Commit(t.Context(), []byte("note")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := kafkatest.Fake(t)
			topic := cluster.CreateTopic(t, 1, nil)
			sink := newSink(t, cluster, topic, exactlyOnce(""))
			ledger, _ := openLedger(t, sink, onlyLane)
			cluster.Fake.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
				answer := r.ResponseKind().(*kmsg.ProduceResponse)
				for _, asked := range r.(*kmsg.ProduceRequest).Topics {
					one := kmsg.ProduceResponseTopic{Topic: asked.Topic, TopicID: asked.TopicID}
					for _, p := range asked.Partitions {
						one.Partitions = append(one.Partitions, kmsg.ProduceResponseTopicPartition{Partition: p.Partition, ErrorCode: kerr.InvalidProducerIDMapping.Code})
					}
					answer.Topics = append(answer.Topics, one)
				}
				return answer, nil, true
			})
			err := act(ledger)
			require.ErrorIs(t, err, sinks.ErrExpired)
			require.ErrorIs(t, err, sinks.ErrAborted)
			require.NoError(t, ledger.Close(t.Context()))
			again, _ := openLedger(t, sink, onlyLane)
			deliverAll(t, again, delivery("k"))
			require.NoError(t, again.Commit(t.Context(), []byte("note")))
			require.Len(t, committed(t, cluster, topic, 1), 1)
		})
	}
}

func TestARecordThatABrokerRefusesAbortsTheTransaction(t *testing.T) {
	t.Parallel()
	testARecordThatABrokerRefusesAbortsTheTransaction(t, kafkatest.Fake(t))
}

func testARecordThatABrokerRefusesAbortsTheTransaction(t *testing.T, cluster *kafkatest.Cluster) {
	topic := cluster.CreateTopic(t, 1, map[string]string{"max.message.bytes": "2000"})
	sink := newSink(t, cluster, topic, exactlyOnce(topic+"-positions"))
	ledger, _ := openLedger(t, sink, onlyLane)
	batch := make([]*notification.Delivery, 9)
	for i := range batch {
		batch[i] = delivery(string(rune('a' + i)))
	}
	batch[5].Payload = slices.Repeat([]byte("x"), 4000)
	results := ledger.DeliverBatch(t.Context(), batch)
	require.Error(t, ledger.Err())
	for i, r := range results {
		switch class, _ := sinks.Classify(r.Err); {
		case i == 5:
			require.Equal(t, sinks.ClassPermanent, class, "%v", r.Err)
		case r.Err != nil:
			require.ErrorIs(t, r.Err, sinks.ErrAborted)
			require.NotEqual(t, sinks.ClassPermanent, class, "%v", r.Err)
		}
	}
	require.Error(t, ledger.Commit(t.Context(), []byte("note")))
	require.NoError(t, ledger.Close(t.Context()))
	again, newest := openLedger(t, sink, onlyLane)
	require.Empty(t, newest)
	deliverAll(t, again, slices.Delete(batch, 5, 6)...)
	require.NoError(t, again.Commit(t.Context(), []byte("note")))
	require.Len(t, committed(t, cluster, topic, 8), 8)
}

func TestALedgerTimesOutIfTheClusterStopsAnswering(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(sinks.Ledger) error{
		"delivering": func(l sinks.Ledger) error {
			return l.DeliverBatch(t.Context(), []*notification.Delivery{delivery("k")})[0].Err
		},
		"committing": func(l sinks.Ledger) error { return l.Commit(t.Context(), []byte("silent")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := kafkatest.Fake(t)
			topic := cluster.CreateTopic(t, 1, nil)
			sink := newSink(t, cluster, topic, exactlyOnce(""), func(c *kafka.Config) { c.Timeout = 5 * time.Second })
			ledger, _ := openLedger(t, sink, onlyLane)
			deliverAll(t, ledger, delivery("k"))
			silence(cluster)
			began := time.Now()
			err := act(ledger)
			assertClass(t, sinks.ClassUnavailable, err)
			require.Error(t, ledger.Err())
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_ = ledger.Close(ctx) // the cluster does not answer, so it cannot abort the transaction
			require.Less(t, time.Since(began), time.Minute)
			require.ErrorIs(t, ledger.Commit(t.Context(), nil), sinks.ErrAborted)
			_, _, err = sink.OpenLedger(t.Context(), onlyLane)
			assertClass(t, sinks.ClassUnavailable, err)
		})
	}
}

func TestADeliveryWhoseContextEndsAbortsTheTransaction(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 1, nil)
	sink := newSink(t, cluster, topic, exactlyOnce(""))
	ledger, _ := openLedger(t, sink, onlyLane)
	deliverAll(t, ledger, delivery("k"))
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{})
	cluster.Fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(asked)
		return nil, nil, true
	})
	go func() {
		<-asked
		cancel()
	}()
	require.Error(t, ledger.DeliverBatch(ctx, []*notification.Delivery{delivery("k")})[0].Err)
	require.Error(t, ledger.Err(), "the transaction may contain the record")
	_ = ledger.Close(t.Context()) // the next ledger aborts what this one cannot
	again, newest := openLedger(t, sink, onlyLane)
	require.Empty(t, newest)
	require.NoError(t, again.Commit(t.Context(), []byte("note")))
	require.Empty(t, committed(t, cluster, topic, 0))
}

func TestAClusterWithOldTransactionsIsRefused(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Brokers...))
	require.NoError(t, err)
	defer client.Close()
	changed, err := kadm.NewClient(client).UpdateFeatures(t.Context(), false, kadm.FeatureUpdate{
		Feature: "transaction.version", MaxVersionLevel: 1, UpgradeType: 2,
	})
	require.NoError(t, err)
	require.NoError(t, changed.Error())

	sink := newSink(t, cluster, cluster.CreateTopic(t, 1, nil), exactlyOnce(""))
	_, _, err = sink.OpenLedger(t.Context(), onlyLane)
	require.ErrorIs(t, err, kafka.ErrTransactionVersion)
	require.ErrorContains(t, err, "the cluster has 1: upgrade it with kafka-features.sh --bootstrap-server "+cluster.Brokers[0]+" upgrade --feature transaction.version=2")
	assertClass(t, sinks.ClassUnavailable, err)
	require.ErrorIs(t, sink.CheckHealth(t.Context()), kafka.ErrTransactionVersion)
}

func TestAnUnsuitablePositionsTopicIsRefused(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 1, nil)
	for name, c := range map[string]struct {
		positions, says, advises string
	}{
		"not compacted":         {cluster.CreateTopic(t, 2, map[string]string{"cleanup.policy": "delete"}), "cleanup.policy=delete", "--add-config cleanup.policy=compact"},
		"compacted and deleted": {cluster.CreateTopic(t, 2, map[string]string{"cleanup.policy": "compact,delete"}), "cleanup.policy=compact,delete", "--add-config cleanup.policy=compact"},
		"too few":               {cluster.CreateTopic(t, 1, map[string]string{"cleanup.policy": "compact"}), "has 1 partitions, but lane 1", "--partitions 16"},
	} {
		sink := newSink(t, cluster, topic, exactlyOnce(c.positions))
		_, _, err := sink.OpenLedger(t.Context(), sinks.LedgerLane{Number: 1, Of: 2})
		require.ErrorIs(t, err, kafka.ErrPositions, name)
		require.ErrorContains(t, err, c.positions, name)
		require.ErrorContains(t, err, c.says, name)
		require.ErrorContains(t, err, c.advises, name)
		assertClass(t, sinks.ClassUnavailable, err)
	}
}

func TestTheErrorOfAMissingPositionsTopicHasTheCommandThatCreatesIt(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 1, nil)
	cluster.Fake.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.Fake.KeepControl()
		response := r.ResponseKind().(*kmsg.CreateTopicsResponse)
		response.SetVersion(r.GetVersion())
		for _, t := range r.(*kmsg.CreateTopicsRequest).Topics {
			refused := kmsg.NewCreateTopicsResponseTopic()
			refused.Topic, refused.ErrorCode = t.Topic, kerr.TopicAuthorizationFailed.Code
			response.Topics = append(response.Topics, refused)
		}
		return response, nil, true
	})
	sink := newSink(t, cluster, topic, exactlyOnce(""))
	_, _, err := sink.OpenLedger(t.Context(), sinks.LedgerLane{Number: 0, Of: 20})
	require.ErrorIs(t, err, kafka.ErrPositions)
	require.ErrorContains(t, err, "kafka-topics.sh --bootstrap-server "+cluster.Brokers[0]+" --create --topic waybill-positions-events --partitions 20 --config cleanup.policy=compact --config max.message.bytes=4194304")
	require.NoError(t, sink.CheckHealth(t.Context()), "the first lane may create the topic")
}

func TestAnotherClusterIsRefused(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	topic := cluster.CreateTopic(t, 1, nil)
	sink := newSink(t, cluster, topic, exactlyOnce(""))
	ledger, _ := openLedger(t, sink, onlyLane)
	require.NoError(t, ledger.Commit(t.Context(), []byte("note")))
	other := kafkatest.Fake(t, kfake.ClusterID("another"))
	kafka.Redirect(sink, other.Brokers)
	_, _, err := sink.OpenLedger(t.Context(), onlyLane)
	require.ErrorIs(t, err, kafka.ErrOtherCluster)
	assertClass(t, sinks.ClassUnavailable, err)
}

func TestTheRequirementsOfExactlyOnceAreChecked(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]func(*kafka.Config){
		"positions: is for exactly_once":          func(c *kafka.Config) { c.ExactlyOnce, c.Positions = false, "p" },
		"exactly_once: needs client: franz-go":    func(c *kafka.Config) { c.Client = kafka.ClientWatermill },
		"exactly_once: needs acks: all":           func(c *kafka.Config) { c.Acks = kafka.AcksLeader },
		"positions: is the topic of the records":  func(c *kafka.Config) { c.Positions = c.Topic },
		"positions: \"a b\" is not a legal topic": func(c *kafka.Config) { c.Positions = "a b" },
	} {
		c := kafka.Config{Brokers: []string{"localhost:9092"}, Topic: "orders", ExactlyOnce: true}
		change(&c)
		require.ErrorContains(t, c.Validate(), says)
	}
	_, err := kafka.New(sinks.Instance{Name: "my events"}, kafka.Config{Brokers: []string{"localhost:9092"}, Topic: "orders", ExactlyOnce: true})
	require.ErrorContains(t, err, "positions: is required")
	require.False(t, strings.Contains(err.Error(), "localhost"))
}
