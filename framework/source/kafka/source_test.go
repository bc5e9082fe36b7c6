package kafka_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	kafka "github.com/waybill-go/waybill/framework/source/kafka"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
	kafkasink "github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

const patience = time.Minute

// onBoth has the tests that run on a fake and on a real cluster.
var onBoth = map[string]func(*testing.T, *kafkatest.Cluster){
	"what the kafka sink wrote arrives as it was published":           testWhatTheSinkWroteArrives,
	"records of other programs get their type by the expression":      testForeignRecordsGetTheirType,
	"what cannot be read is parked as unrouted, and delays nothing":   testWhatCannotBeReadIsParked,
	"each key arrives in order through restarts of the forwarder":     testKeysStayInOrderThroughRestarts,
	"new partitions are new lanes":                                    testNewPartitionsAreNewLanes,
	"records that are gone stop the lane, which says what is gone":    testRecordsThatAreGoneStopTheLane,
	"with lost: skip the lane continues behind the lost records":      testLostRecordsCanBeSkipped,
	"a sink that begins now passes over what there is":                testASinkBeginsWhereItSays,
	"a replay goes back to a time":                                    testAReplayGoesBack,
	"the groups of Kafka follow the sinks":                            testTheGroupsFollow,
	"a topic that vanishes, or comes again, stops its own lanes only": testATopicThatVanishesStopsItsOwnLanes,
	"a sample has what is pending, and since when":                    testASampleHasWhatIsPending,
	"topics that do not exist or are compacted are refused by name":   testTopicsThatCannotBeReadAreRefused,
	"an outage of the brokers is waited for":                          testAnOutageOfTheBrokersIsWaitedFor,
	"what fails is parked, and its key goes on in order":              testFailuresKeepTheOrderOfKeys,
	"a control record of a later epoch is no loss":                    testAControlRecordOfALaterEpochIsNoLoss,
	"a lane behind an aborted transaction is late":                    testALaneBehindAnAbortedTransactionIsLate,
	"times that no database has stop no lane":                         testTimesThatNoDatabaseHas,
	"a reader comes to each end between transactions":                 testAReaderComesToEachEndBetweenTransactions,
	"transactions arrive through the forwarder":                       testTransactionsArriveThroughTheForwarder,
}

func TestOnAFake(t *testing.T) {
	t.Parallel()
	for name, test := range onBoth {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, kafkatest.Fake(t))
		})
	}
}

func testWhatTheSinkWroteArrives(t *testing.T, cluster *kafkatest.Cluster) {
	w := newWorld(t, cluster, 3, nil)
	for _, format := range []string{kafkasink.FormatJSON, kafkasink.FormatBinary} {
		first, err := kafkasink.New(sinks.Instance{Name: "first"}, kafkasink.Config{
			Brokers: cluster.Brokers, Topic: w.topic, Format: format, Source: eventSource(format),
		})
		require.NoError(t, err)
		for i := range 5 {
			_, err := first.Deliver(t.Context(), &notification.Delivery{Sink: "first", Attempt: 1, Envelope: &notification.Envelope{
				ID: fmt.Sprintf("%s-%d", format, i), Type: "order.placed", Version: 3, Key: fmt.Sprintf("k%d", i),
				OccurredOn: time.Date(2026, 3, 1, 10, 0, 0, 123456000, time.UTC), Metadata: notification.Metadata{"tenant": "a"}, Payload: fmt.Appendf(nil, `{"n": %d}`, i),
			}})
			require.NoError(t, err)
		}
		require.NoError(t, first.Close(t.Context()))
	}
	sink := newTaken()
	forward(t, w.open(t), sink)
	all := sink.await(t, 10)
	require.Equal(t, 10, sink.count())
	for _, d := range all {
		assert.Equal(t, "order.placed", d.Type)
		assert.Equal(t, 3, d.Version)
		assert.Equal(t, "a", d.Metadata["tenant"])
		assert.Equal(t, time.Date(2026, 3, 1, 10, 0, 0, 123456000, time.UTC), d.OccurredOn)
		assert.Equal(t, fmt.Sprintf(`{"n": %s}`, d.Key[1:]), string(d.Payload))
	}
}

func eventSource(format string) string {
	if format == kafkasink.FormatBinary {
		return "/shop"
	}
	return ""
}

func testForeignRecordsGetTheirType(t *testing.T, cluster *kafkatest.Cluster) {
	w := newWorld(t, cluster, 1, nil)
	at := time.Date(2026, 3, 1, 10, 0, 0, 123000000, time.UTC)
	w.write(t, &kgo.Record{Key: []byte("k"), Value: []byte(`{"kind": "placed"}`), Timestamp: at, Headers: []kgo.RecordHeader{{Key: "tenant", Value: []byte("a")}}},
		&kgo.Record{Key: []byte{0xff, 0x01}, Value: []byte(`{"kind": "paid"}`)})
	sink := newTaken()
	forward(t, w.open(t, func(c *kafka.Config) { c.Type = `"order." + payload.kind` }), sink)
	all := sink.await(t, 2)
	slices.SortFunc(all, func(a, b notification.Delivery) int { return cmp.Compare(a.ID, b.ID) }) // their keys differ
	assert.Equal(t, w.topic+"/0@0", all[0].ID)
	assert.Equal(t, "order.placed", all[0].Type)
	assert.Equal(t, notification.Metadata{"tenant": "a"}, all[0].Metadata)
	assert.Equal(t, at, all[0].OccurredOn)
	assert.Equal(t, "order.paid", all[1].Type)
	assert.Equal(t, "ff01", all[1].Key, "what is no text")
}

func testWhatCannotBeReadIsParked(t *testing.T, cluster *kafkatest.Cluster) {
	w := newWorld(t, cluster, 1, nil)
	broken := orders(1, 1, 1)[0]
	broken.Headers[2].Value = []byte("many") // the version
	w.write(t, &kgo.Record{Value: []byte("what is this")}, broken)
	w.write(t, orders(2, 1, 1)...)
	s, sink := w.open(t), newTaken()
	forward(t, s, sink)
	sink.await(t, 1)
	parked := awaitParked(t, s, 2)
	for i, p := range parked {
		assert.Equal(t, store.SinkUnrouted, p.Sink)
		assert.Equal(t, kafka.TypeUnreadable, p.Envelope.Type)
		assert.Equal(t, fmt.Sprintf("%s/0@%d", w.topic, i), p.Envelope.ID)
	}
	assert.Contains(t, parked[0].Envelope.Metadata[kafka.MetadataProblem], "source.kafka.type is not set")
	assert.Contains(t, parked[1].Envelope.Metadata[kafka.MetadataProblem], `is "many"`)
	assert.Equal(t, "what is this", string(parked[0].Envelope.Payload), "byte for byte")
}

// Forwarders replace each other in the middle of their work.
func testKeysStayInOrderThroughRestarts(t *testing.T, cluster *kafkatest.Cluster) {
	const n = 2000
	w := newWorld(t, cluster, 4, nil)
	w.write(t, orders(0, n/2, 50)...)
	sink := newTaken()
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := n / 2; i < n; i += 50 {
			w.write(t, orders(i, 50, 50)...)
		}
	})
	for range 5 {
		stop := forward(t, w.open(t), sink)
		goal := min(n, sink.count()+1+rand.IntN(n/4))
		sink.await(t, goal)
		stop()
	}
	writing.Wait()
	forward(t, w.open(t), sink)
	inOrder(t, sink.await(t, n))
}

func testNewPartitionsAreNewLanes(t *testing.T, cluster *kafkatest.Cluster) {
	w := newWorld(t, cluster, 1, nil)
	w.write(t, orders(0, 10, 5)...)
	s, sink := w.open(t), newTaken()
	forward(t, s, sink)
	sink.await(t, 10)
	admin := kadm.NewClient(w.client)
	answers, err := admin.CreatePartitions(t.Context(), 2, w.topic)
	require.NoError(t, err)
	require.NoError(t, answers.Error())
	for n := range int32(3) {
		require.Eventually(t, func() bool {
			client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			require.NoError(t, err)
			defer client.Close()
			r := orders(100+int(n), 1, 5)[0]
			r.Topic, r.Partition = w.topic, n
			return client.ProduceSync(t.Context(), r).FirstErr() == nil
		}, patience, 100*time.Millisecond)
	}
	sink.await(t, 13)
	membership, err := s.Membership(t.Context())
	require.NoError(t, err)
	lanes := 0
	for _, l := range membership.Lanes {
		if l.Lane.Sink == "events" {
			lanes++
			assert.Equal(t, store.SlotRange{First: l.Lane.Number, Last: l.Lane.Number}, l.Lane.Slots)
		}
	}
	assert.Equal(t, 3, lanes)
}

// lose removes the first records of the topic's only partition, as retention does.
func (w *world) lose(t *testing.T, before int64) {
	t.Helper()
	offsets := kadm.Offsets{}
	offsets.AddOffset(w.topic, 0, before, -1)
	_, err := kadm.NewClient(w.client).DeleteRecords(t.Context(), offsets)
	require.NoError(t, err)
}

// begun runs a forwarder that creates the cursors at the oldest record, and stops it.
func (w *world) begun(t *testing.T) {
	t.Helper()
	s := w.open(t)
	for _, sink := range []string{"events", store.SinkUnrouted} {
		_, err := s.Cut(t.Context(), sink, 1, store.StartOldest)
		require.NoError(t, err)
	}
}

func testRecordsThatAreGoneStopTheLane(t *testing.T, cluster *kafkatest.Cluster) {
	w := newWorld(t, cluster, 1, nil)
	w.write(t, orders(0, 10, 5)...)
	w.begun(t)
	w.lose(t, 4)
	s := w.open(t)
	reader := leased(t, s)
	for range 2 { // it stays like this
		_, _, err := readAll(t, s, reader, 100)
		require.ErrorIs(t, err, kafka.ErrLost)
		require.ErrorContains(t, err, fmt.Sprintf("4 records, from %s/0@0 up to offset 3", w.topic))
		require.ErrorContains(t, err, "source.kafka.lost: skip")
	}
}

func testLostRecordsCanBeSkipped(t *testing.T, cluster *kafkatest.Cluster) {
	w := newWorld(t, cluster, 1, nil)
	w.write(t, orders(0, 10, 5)...)
	w.begun(t)
	w.lose(t, 4)
	sink := newTaken()
	forward(t, w.open(t, func(c *kafka.Config) { c.Lost = kafka.LostSkip }), sink)
	var ids []string
	for _, d := range sink.await(t, 6) {
		ids = append(ids, d.ID)
	}
	assert.ElementsMatch(t, []string{"order-4", "order-5", "order-6", "order-7", "order-8", "order-9"}, ids)
}

func testASinkBeginsWhereItSays(t *testing.T, cluster *kafkatest.Cluster) {
	w := newWorld(t, cluster, 1, nil)
	early, late := orders(0, 5, 1), orders(5, 5, 1)
	for i := range early {
		early[i].Timestamp, late[i].Timestamp = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	}
	w.write(t, early...)
	w.write(t, late...)
	s := w.open(t)
	for start, passed := range map[store.Start]int{store.StartOldest: 0, store.StartNow: 10, store.StartAt(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)): 5} {
		created, err := s.Cut(t.Context(), "sink-"+string(start[:3]), 1, start)
		require.NoError(t, err)
		assert.Equal(t, store.Created{Lanes: 1, Start: start, Passed: passed}, created)
	}
	again, err := s.Cut(t.Context(), "sink-now", 1, store.StartOldest)
	require.NoError(t, err)
	assert.Zero(t, again)
}

func testAReplayGoesBack(t *testing.T, cluster *kafkatest.Cluster) {
	w := newWorld(t, cluster, 2, nil)
	records := orders(0, 20, 7)
	for i, r := range records {
		r.Timestamp = time.Date(2026, 3, 1, 0, i, 0, 0, time.UTC)
	}
	w.write(t, records...)
	s, sink := w.open(t), newTaken()
	forward(t, s, sink)
	sink.await(t, 20)
	query := store.ReplayQuery{Sink: "events", Types: []notification.TypeFilter{notification.AllTypes}, Since: time.Date(2026, 3, 1, 0, 10, 0, 0, time.UTC), UpTo: 20}
	var count store.ReplayCount
	require.Eventually(t, func() (ok bool) { // until the last checkpoint is written
		var err error
		count, err = s.CountReplay(t.Context(), query)
		require.NoError(t, err)
		return count.Rows == 10
	}, patience, 20*time.Millisecond)
	last := records[len(records)-1]
	only, err := s.CountReplay(t.Context(), store.ReplayQuery{Sink: "events", Types: query.Types, From: fmt.Sprintf("%s/%d@%d", w.topic, last.Partition, last.Offset), UpTo: 20})
	require.NoError(t, err)
	assert.EqualValues(t, 1, only.Rows, "a replay from a record begins with it")
	require.NoError(t, s.Begin(t.Context(), store.Action{ID: "again", Name: "replay", Planned: 10}))
	result, err := s.Replay(t.Context(), store.ReplayBatch{ReplayQuery: query, Action: "again", Limit: 100})
	require.NoError(t, err)
	assert.Equal(t, store.ReplayResult{Changed: 10, Through: 20}, result)
	require.Eventually(t, func() bool {
		sink.mu.Lock()
		defer sink.mu.Unlock()
		return len(sink.all) >= 30
	}, patience, 20*time.Millisecond)
	query.Types = append(query.Types, notification.TypeFilter{Names: []string{"order.paid"}})
	_, err = s.CountReplay(t.Context(), query)
	require.ErrorContains(t, err, "leave out type and until")
}

func testTheGroupsFollow(t *testing.T, cluster *kafkatest.Cluster) {
	w := newWorld(t, cluster, 2, nil)
	w.write(t, orders(0, 20, 7)...)
	sink := newTaken()
	forward(t, w.open(t), sink)
	sink.await(t, 20)
	admin := kadm.NewClient(w.client)
	require.Eventually(t, func() bool {
		offsets, err := admin.FetchOffsets(t.Context(), "waybill.events")
		sum := int64(0)
		offsets.Each(func(o kadm.OffsetResponse) {
			if o.Topic == w.topic {
				sum += o.At
			}
		})
		return err == nil && sum == 20
	}, patience, 50*time.Millisecond)
}

func testASampleHasWhatIsPending(t *testing.T, cluster *kafkatest.Cluster) {
	w := newWorld(t, cluster, 2, map[string]string{"retention.ms": "172800000"})
	records := orders(0, 20, 7)
	for _, r := range records {
		r.Headers[3].Value = nil
		r.Timestamp = time.Now().Add(-time.Hour)
	}
	w.write(t, records...)
	w.begun(t)
	s := w.open(t)
	require.InDelta(t, time.Hour, lagOf(t, s), float64(time.Minute))
	sample, err := s.Sample(t.Context(), store.SampleQuery{})
	require.NoError(t, err)
	require.Len(t, sample.Sinks, 2)
	events := sample.Sinks[1]
	assert.Equal(t, "events", events.Sink)
	assert.Equal(t, 20, events.Pending)
	assert.InDelta(t, time.Hour, events.Lag, float64(time.Minute))
	assert.Equal(t, 2, events.Free)
	assert.Equal(t, 48*time.Hour, sample.Keeps)
	assert.EqualValues(t, 20, sample.LastOffset)
}

func testTopicsThatCannotBeReadAreRefused(t *testing.T, cluster *kafkatest.Cluster) {
	w := newWorld(t, cluster, 1, map[string]string{"cleanup.policy": "compact"})
	check := func(change func(*kafka.Config)) error {
		source, err := kafka.New(w.config(change))
		require.NoError(t, err)
		defer source.Close()
		return source.Open(t.Context())
	}
	require.ErrorContains(t, check(func(*kafka.Config) {}), "is compacted")
	require.ErrorContains(t, check(func(c *kafka.Config) { c.Topics = []string{"no-such-topic"} }), "topic no-such-topic does not exist")
	require.NoError(t, check(func(c *kafka.Config) { c.Lost = kafka.LostSkip }))
}

// A forwarder follows its database, and people, even while Kafka does not answer.
func testAnOutageOfTheBrokersIsWaitedFor(t *testing.T, cluster *kafkatest.Cluster) {
	const lease = 6 * time.Second // so long that a busy machine loses none
	w := newWorld(t, cluster, 2, nil)
	w.write(t, orders(0, 10, 3)...)
	s, sink := w.open(t, func(c *kafka.Config) { c.SetTimeout(time.Second) }), newTaken()
	forward(t, s, sink, func(c *forwarder.Config) { c.Lease = lease })
	sink.await(t, 10)
	works := func(sinks ...string) bool { // on the lanes of these sinks, and no others
		membership, err := s.Membership(t.Context())
		require.NoError(t, err)
		return len(membership.Members) == 1 && !slices.ContainsFunc(membership.Lanes, func(l store.LaneState) bool {
			return slices.Contains(sinks, l.Lane.Sink) != (l.Owner != "")
		})
	}
	pause := func(action string, paused bool) {
		require.NoError(t, s.Begin(t.Context(), store.Action{ID: action, Name: action}))
		_, err := s.Pause(t.Context(), action, "events", paused)
		require.NoError(t, err)
	}
	alive := func() bool { return works("events", store.SinkUnrouted) }
	require.Eventually(t, alive, patience, 20*time.Millisecond, "the forwarder leases all lanes")
	cluster.Stop(t)
	start := sync.OnceFunc(func() { cluster.Start(t) })
	defer start() // then the forwarder ends at once
	for stopped := time.Now(); time.Since(stopped) < lease*3/2; time.Sleep(100 * time.Millisecond) {
		require.Eventually(t, alive, patience, 20*time.Millisecond, "its heartbeats continue, and its leases are renewed") // after a stall, again
	}
	pause("pause", true)
	require.Eventually(t, func() bool { return works(store.SinkUnrouted) }, patience, 50*time.Millisecond)
	pause("resume", false)
	start()
	w.writeAgain(t, orders(10, 10, 3)...)
	sink.await(t, 20)
}

func testFailuresKeepTheOrderOfKeys(t *testing.T, cluster *kafkatest.Cluster) {
	w := newWorld(t, cluster, 3, nil)
	w.write(t, orders(0, 60, 6)...)
	s, sink := w.open(t), newTaken()
	failed := make(map[string]bool)
	sink.answer = func(d *notification.Delivery) error {
		if d.ID == "order-7" {
			return sinks.Permanent(errors.New("refused"))
		}
		if !failed[d.ID] && rand.IntN(3) == 0 {
			failed[d.ID] = true
			return errors.New("not now")
		}
		return nil
	}
	forward(t, s, sink)
	inOrder(t, sink.await(t, 59))
	dead := awaitParked(t, s, 1)[0]
	require.Equal(t, store.StateDead, dead.State)
	require.Equal(t, "order-7", dead.Envelope.ID)
}
