package kafka_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	kafka "github.com/waybill-go/waybill/framework/source/kafka"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// readAll reads a lane of a sink from its cursor to its end, in pages of a size.
func readAll(t *testing.T, s *sqlite.Store, reader store.Reader, limit int) (all []notification.Envelope, end store.Position, err error) {
	t.Helper()
	target, err := s.Probe(t.Context())
	require.NoError(t, err)
	for {
		page, err := reader.Next(t.Context(), target, limit)
		if err != nil {
			return all, end, err
		}
		all, end = append(all, page.Envelopes...), page.End
		if page.CaughtUp {
			return all, end, nil
		}
	}
}

func readerAt(t *testing.T, s *sqlite.Store, at store.Position) store.Reader {
	t.Helper()
	raw, err := at.MarshalJSON()
	require.NoError(t, err)
	reader, err := s.NewReader(raw, store.Filter{Types: notification.AllTypes})
	require.NoError(t, err)
	return reader
}

// leased leases the only lane of the sink events, and returns its reader.
func leased(t *testing.T, s *sqlite.Store) store.Reader {
	t.Helper()
	lease, err := s.Acquire(t.Context(), store.NewLane("events", 0, store.Slots), "test", time.Minute)
	require.NoError(t, err)
	reader, err := s.NewReader(lease.Position, store.Filter{Slots: lease.Lane.Slots, Types: notification.AllTypes})
	require.NoError(t, err)
	return reader
}

// An election took place between the last record that was read and the control record after it.
func testAControlRecordOfALaterEpochIsNoLoss(t *testing.T, cluster *kafkatest.Cluster) {
	w := newWorld(t, cluster, 1, nil)
	w.write(t, orders(0, 3, 1)...)
	w.begun(t)
	elect := func() {
		if cluster.Fake != nil {
			require.NoError(t, cluster.Fake.MoveTopicPartition(w.topic, 0, 0))
			return
		}
		cluster.Stop(t)
		cluster.Start(t)
	}
	elect()
	w.transact(t, w.transactional(t), kgo.TryAbort, orders(900, 1, 1)...)
	s := w.open(t)
	all, end, err := readAll(t, s, leased(t, s), 100)
	require.NoError(t, err)
	require.Len(t, all, 3)
	elect()
	w.writeAgain(t, orders(3, 1, 1)...)
	require.Eventually(t, func() bool {
		all, _, err = readAll(t, s, readerAt(t, s, end), 100)
		require.NotErrorIs(t, err, kafka.ErrLost)
		return err == nil && len(all) > 0 && all[0].ID == "order-3"
	}, patience, 100*time.Millisecond)
}

// shorten makes the fake cluster answer like a leader whose partition ends at an offset.
func shorten(cluster *kafkatest.Cluster, end int64) {
	cluster.Fake.ControlKey(int16(kmsg.ListOffsets), func(k kmsg.Request) (kmsg.Response, error, bool) {
		cluster.Fake.KeepControl()
		request := k.(*kmsg.ListOffsetsRequest)
		response := request.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, topic := range request.Topics {
			answer := kmsg.NewListOffsetsResponseTopic()
			answer.Topic = topic.Topic
			for _, p := range topic.Partitions {
				if p.Timestamp != -1 {
					return nil, nil, false
				}
				partition := kmsg.NewListOffsetsResponseTopicPartition()
				partition.Partition, partition.Offset = p.Partition, end
				answer.Partitions = append(answer.Partitions, partition)
			}
			response.Topics = append(response.Topics, answer)
		}
		return response, nil, true
	})
}

// An unclean election leaves a partition that ends before the position.
func TestAPartitionThatEndsBeforeThePositionIsAnError(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	w := newWorld(t, cluster, 1, nil)
	w.write(t, orders(0, 10, 1)...)
	w.begun(t)
	s := w.open(t)
	reader := leased(t, s)
	all, end, err := readAll(t, s, reader, 100)
	require.NoError(t, err)
	require.Len(t, all, 10)
	shorten(cluster, 5)
	_, _, err = readAll(t, s, reader, 100)
	require.ErrorIs(t, err, kafka.ErrLost)
	_, _, err = readAll(t, s, readerAt(t, s, end), 100)
	require.ErrorIs(t, err, kafka.ErrLost)
}

// A reader returns between stretches of records of other types, so that checkpoints can follow.
func TestAReaderReturnsWhileItSkipsOtherTypes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Fake(t), 1, nil)
	value, random := make([]byte, 1<<10), rand.NewChaCha8([32]byte{})
	for i := 0; i < 60_000; i += 5000 {
		records := orders(i, 5000, 1)
		for _, r := range records {
			_, _ = random.Read(value)
			r.Value = slices.Clone(value)
		}
		w.write(t, records...)
	}
	w.begun(t)
	s := w.open(t)
	lease, err := s.Acquire(t.Context(), store.NewLane("events", 0, store.Slots), "test", time.Minute)
	require.NoError(t, err)
	reader, err := s.NewReader(lease.Position, store.Filter{Types: notification.TypeFilter{Names: []string{"no.such.type"}}})
	require.NoError(t, err)
	target, err := s.Probe(t.Context())
	require.NoError(t, err)
	pages := 1
	for ; ; pages++ {
		page, err := reader.Next(t.Context(), target, 100)
		require.NoError(t, err)
		require.Empty(t, page.Envelopes)
		if page.CaughtUp {
			break
		}
	}
	require.Greater(t, pages, 3, "60 MB were skipped in one call")
}

// Writing microseconds or nanoseconds instead of milliseconds is a common mistake.
func testTimesThatNoDatabaseHas(t *testing.T, cluster *kafkatest.Cluster) {
	w := newWorld(t, cluster, 1, map[string]string{"message.timestamp.after.max.ms": fmt.Sprint(int64(math.MaxInt64))})
	for _, ms := range []int64{-1, 1_767_225_600_000_000, 1_767_225_600_000_000_000, math.MaxInt64} {
		w.write(t, &kgo.Record{Key: []byte("k"), Value: []byte("x"), Timestamp: time.UnixMilli(ms)})
	}
	s := w.open(t)
	forward(t, s, newTaken())
	for _, p := range awaitParked(t, s, 4) {
		_, err := p.Envelope.OccurredOn.MarshalJSON()
		require.NoError(t, err, p.Envelope.OccurredOn)
	}
	_, err := s.Sample(t.Context(), store.SampleQuery{})
	require.NoError(t, err)
}

// The position of a sink that starts at the end of a partition has a leader epoch too.
func TestASinkThatBeginsNowKnowsItsEpoch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Fake(t), 1, nil)
	w.write(t, orders(0, 10, 1)...)
	s := w.open(t)
	_, err := s.Cut(t.Context(), "events", 1, store.StartNow)
	require.NoError(t, err)
	lease, err := s.Acquire(t.Context(), store.NewLane("events", 0, store.Slots), "test", time.Minute)
	require.NoError(t, err)
	require.NotContains(t, string(lease.Position), `"leader_epoch":-1`, "an election that loses records would go unnoticed")
}

// A gap in the numbers of a sink's lanes does not cause endless attempts.
func TestAGapInTheLanesIsFilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Fake(t), 3, nil)
	w.begun(t)
	s := w.open(t)
	db, err := sqlite.OpenDB(w.file)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), `DELETE FROM outbox_cursors WHERE sink = 'events' AND lane < 2`)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = s.Cut(ctx, "events", 1, "")
	require.NoError(t, err)
	membership, err := s.Membership(t.Context())
	require.NoError(t, err)
	var lanes []int
	for _, l := range membership.Lanes {
		if l.Lane.Sink == "events" {
			lanes = append(lanes, l.Lane.Number)
		}
	}
	require.ElementsMatch(t, []int{0, 1, 2}, lanes)
}

// A delivery is parked for a retry when its lane moves back before it. What comes again of its key waits
// for it.
func TestAReplayedKeyWaitsForItsParkedDelivery(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Fake(t), 1, nil)
	w.write(t, orders(0, 20, 2)...)
	s, sink := w.open(t), newTaken()
	var failing atomic.Bool
	failing.Store(true)
	sink.answer = func(d *notification.Delivery) error {
		if failing.Load() && d.ID == "order-6" {
			return fmt.Errorf("not now")
		}
		return nil
	}
	many := func(c *forwarder.Config) {
		e := c.Sinks["events"]
		e.Retry.MaxAttempts, e.Retry.Max = 100_000, 300*time.Millisecond
		c.Sinks["events"] = e
	}
	forward(t, s, sink, many)
	before := len(sink.await(t, 13)) // ten of the other key, and three of this one
	awaitParked(t, s, 7)
	query := store.ReplayQuery{Sink: "events", Types: []notification.TypeFilter{notification.AllTypes}, UpTo: 20}
	require.Eventually(t, func() bool {
		count, err := s.CountReplay(t.Context(), query)
		return err == nil && count.Rows == 20
	}, patience, 20*time.Millisecond)
	require.NoError(t, s.Begin(t.Context(), store.Action{ID: "again", Name: "replay", Planned: 20}))
	_, err := s.Replay(t.Context(), store.ReplayBatch{ReplayQuery: query, Action: "again", Limit: 100})
	require.NoError(t, err)
	awaitParked(t, s, 10)
	failing.Store(false)
	awaitParked(t, s, 0)
	again := make(map[string][]string)
	require.Eventually(t, func() bool {
		clear(again)
		for _, d := range sink.await(t, 20)[before:] {
			if !slices.Contains(again[d.Key], d.ID) {
				again[d.Key] = append(again[d.Key], d.ID)
			}
		}
		return len(again["k0"])+len(again["k1"]) == 20
	}, patience, 20*time.Millisecond)
	var k0, k1 []string
	for _, n := range []int{6, 0, 2, 4, 8, 10, 12, 14, 16, 18} {
		k0 = append(k0, fmt.Sprintf("order-%d", n))
	}
	for n := 1; n < 20; n += 2 {
		k1 = append(k1, fmt.Sprintf("order-%d", n))
	}
	require.Equal(t, map[string][]string{"k0": k0, "k1": k1}, again)
}

// Without a start the sink would begin after all records.
func TestAForgottenSinkContinuesAfterAGap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Fake(t), 1, nil)
	w.write(t, orders(0, 10, 1)...)
	w.begun(t)
	w.lose(t, 4)
	s := w.open(t)
	_, _, err := readAll(t, s, leased(t, s), 100)
	require.ErrorContains(t, err, "forget the sink and start it again with start: oldest")
	lease, err := s.Acquire(t.Context(), store.NewLane("events", 0, store.Slots), "test", time.Minute)
	require.NoError(t, err)
	require.NoError(t, s.Release(t.Context(), lease))
	_, err = s.Forget(t.Context(), "events")
	require.NoError(t, err)
	created, err := s.Cut(t.Context(), "events", 1, store.StartOldest)
	require.NoError(t, err)
	require.Zero(t, created.Passed)
}

// transactional returns a client with transactions.
func (w *world) transactional(t *testing.T) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(w.cluster.Brokers...), kgo.TransactionalID(w.topic))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// transact writes records in a transaction, which it commits or aborts.
func (w *world) transact(t *testing.T, client *kgo.Client, end kgo.TransactionEndTry, records ...*kgo.Record) {
	t.Helper()
	for _, r := range records {
		r.Topic = w.topic
	}
	require.NoError(t, client.BeginTransaction())
	require.NoError(t, client.ProduceSync(t.Context(), records...).FirstErr())
	require.NoError(t, client.EndTransaction(t.Context(), end))
}

// A reader is behind the writer of transactions: each target ends behind a control record, and what is
// fetched goes beyond it.
func testAReaderComesToEachEndBetweenTransactions(t *testing.T, cluster *kafkatest.Cluster) {
	w := newWorld(t, cluster, 1, nil)
	w.begun(t)
	client := w.transactional(t)
	s := w.open(t)
	reader := leased(t, s)
	var targets []store.Target
	var want []string
	for i := range 12 {
		records := orders(3*i, 3, 2)
		if i%3 == 0 {
			w.transact(t, client, kgo.TryAbort, orders(900+i, 2, 1)...)
		}
		for _, r := range records {
			want = append(want, string(r.Headers[0].Value))
		}
		if i%4 == 3 {
			w.write(t, records...)
		} else {
			w.transact(t, client, kgo.TryCommit, records...)
		}
		target, err := s.Probe(t.Context())
		require.NoError(t, err)
		targets = append(targets, target)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got []string
	for i := 0; i < len(targets) || len(got) < len(want); i++ {
		if i == len(targets) { // a broker answers before the end of a transaction is written
			target, err := s.Probe(ctx)
			require.NoError(t, err)
			targets = append(targets, target)
		}
		for caughtUp := false; !caughtUp; {
			page, err := reader.Next(ctx, targets[i], 2)
			require.NoError(t, err)
			for _, e := range page.Envelopes {
				got = append(got, e.ID)
			}
			caughtUp = page.CaughtUp
		}
		require.Equal(t, want[:len(got)], got)
	}
}

func testTransactionsArriveThroughTheForwarder(t *testing.T, cluster *kafkatest.Cluster) {
	w := newWorld(t, cluster, 3, nil)
	client := w.transactional(t)
	s, sink := w.open(t), newTaken()
	forward(t, s, sink)
	const transactions, each = 40, 10
	for i := range transactions {
		if i%3 == 0 {
			w.transact(t, client, kgo.TryAbort, orders(90_000+i, 5, 5)...)
		}
		w.transact(t, client, kgo.TryCommit, orders(each*i, each, 10)...)
	}
	all := sink.await(t, transactions*each)
	inOrder(t, all)
	for _, d := range all {
		require.NotContains(t, d.ID, "order-900", "it was aborted")
	}
	require.Eventually(t, func() bool {
		sample, err := s.Sample(t.Context(), store.SampleQuery{})
		require.NoError(t, err)
		return !slices.ContainsFunc(sample.Sinks, func(s store.SinkSample) bool { return s.Pending > 0 })
	}, patience, 20*time.Millisecond, "nothing is pending")
}
