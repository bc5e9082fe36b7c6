package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-go/waybill/sinks"
)

// The positions topic holds the notes of a sink's lanes: lane n's in partition n, under the sink's name. Only
// the newest counts, so it is compacted.

// positionsPrefix is what the positions topic's name begins with by default; the sink's follows.
const positionsPrefix = "waybill-positions-"

// largestNote is what the topic is made for, in bytes. A note has some 14 bytes for each of a round's rows, and
// some 150 for each that was parked: half a megabyte at most, and twice that behind a crash.
const largestNote = 4 << 20

// transactionVersion is the least level of the feature transaction.version: with it (KIP-890) a request that
// comes late cannot get into a later transaction.
const transactionVersion = 2

// noteKey is the key of notes; markKey that of marks, which must not replace them.
func (s *Sink) noteKey() string { return s.name }
func (s *Sink) markKey() string { return s.name + "/opened" }

// checkTransactions returns ErrTransactionVersion where the cluster's transactions are not safe enough.
func (s *Sink) checkTransactions(ctx context.Context, client *kgo.Client) error {
	request := kmsg.NewPtrApiVersionsRequest()
	request.ClientSoftwareName, request.ClientSoftwareVersion = "waybill", "1"
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	level := int16(0)
	for _, f := range response.FinalizedFeatures {
		if f.Name == "transaction.version" {
			level = f.MaxVersionLevel
		}
	}
	if level >= transactionVersion {
		return nil
	}
	return fmt.Errorf("%w: exactly_once needs level %d, which Apache Kafka has from 4.0 on, and the cluster is at %d: upgrade it with kafka-features.sh --bootstrap-server %s upgrade --feature transaction.version=%d, or set exactly_once: false",
		ErrTransactionVersion, transactionVersion, level, s.config.Brokers[0], transactionVersion)
}

// checkPositions finds out whether the positions topic is fit for a lane. It may create it.
func (s *Sink) checkPositions(ctx context.Context, admin *kadm.Client, lane sinks.LedgerLane, create bool) error {
	topic := s.config.Positions
	found, err := admin.Metadata(ctx, topic)
	if err != nil {
		return err
	}
	if err := s.checkCluster(found.Cluster); err != nil {
		return err
	}
	detail := found.Topics[topic]
	if errors.Is(detail.Err, kerr.UnknownTopicOrPartition) && create {
		return s.createPositions(ctx, admin, lane)
	}
	switch n := len(detail.Partitions); {
	case errors.Is(detail.Err, kerr.UnknownTopicOrPartition):
		return s.missing(lane, detail.Err)
	case detail.Err != nil:
		return fmt.Errorf("%w: topic %s: %w (grant this client DESCRIBE, READ, WRITE and DESCRIBE_CONFIGS on it)", ErrPositions, topic, detail.Err)
	case n <= lane.Number:
		return fmt.Errorf("%w: topic %s has %d partitions, and lane %d has to have one of its own: kafka-topics.sh --bootstrap-server %s --alter --topic %s --partitions %d",
			ErrPositions, topic, n, lane.Number, s.config.Brokers[0], topic, positionsPartitions(lane))
	}
	return s.checkCompacted(ctx, admin)
}

// checkCluster returns ErrOtherCluster where this is not the cluster that was met first. What another one
// has no notes of may be delivered.
func (s *Sink) checkCluster(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cluster = cmp.Or(s.cluster, id); s.cluster == id {
		return nil
	}
	return fmt.Errorf("%w: brokers led to cluster %s before, and lead to %s now; start the forwarder again if it has moved there for good, with its topics, %s among them",
		ErrOtherCluster, s.cluster, id, s.config.Positions)
}

// checkLedgers says what would keep a ledger from being opened.
func (s *Sink) checkLedgers(ctx context.Context) error {
	client := s.franz.client()
	defer client.Close()
	err := s.checkTransactions(ctx, client)
	if err == nil {
		err = s.checkPositions(ctx, kadm.NewClient(client), sinks.LedgerLane{Of: 1}, false)
	}
	if err == nil || errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil
	}
	return s.unfit(err)
}

func (s *Sink) checkCompacted(ctx context.Context, admin *kadm.Client) error {
	topic := s.config.Positions
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return err
	}
	config, err := configs.On(topic, nil)
	if err = cmp.Or(err, config.Err); err != nil {
		return fmt.Errorf("%w: topic %s: %w (grant this client DESCRIBE_CONFIGS on it)", ErrPositions, topic, err)
	}
	for _, c := range config.Configs {
		if c.Key == "cleanup.policy" && c.MaybeValue() != "compact" {
			return fmt.Errorf("%w: topic %s has cleanup.policy=%s, which forgets positions: kafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s --add-config cleanup.policy=compact",
				ErrPositions, topic, c.MaybeValue(), s.config.Brokers[0], topic)
		}
	}
	return nil
}

// leastPositions and mostPositions bound how many partitions a positions topic is made with: a partition
// without a lane costs little, and lanes may be cut into more.
const (
	leastPositions = 16
	mostPositions  = 64
)

func positionsPartitions(lane sinks.LedgerLane) int {
	return max(leastPositions, min(lane.Of, mostPositions), lane.Number+1)
}

func (s *Sink) createPositions(ctx context.Context, admin *kadm.Client, lane sinks.LedgerLane) error {
	compact, largest := "compact", strconv.Itoa(largestNote)
	configs := map[string]*string{"cleanup.policy": &compact, "max.message.bytes": &largest}
	created, err := admin.CreateTopic(ctx, int32(positionsPartitions(lane)), -1, configs, s.config.Positions)
	if err = cmp.Or(err, created.Err); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return s.missing(lane, err)
	}
	s.logger.Info("the topic of positions is created", "topic", s.config.Positions, "partitions", positionsPartitions(lane))
	for { // the brokers know it a moment later
		if err := s.checkPositions(ctx, admin, lane, false); !errors.Is(err, kerr.UnknownTopicOrPartition) && !errors.Is(err, kerr.LeaderNotAvailable) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(s.config.step() / 20):
		}
	}
}

func (s *Sink) missing(lane sinks.LedgerLane, err error) error {
	return fmt.Errorf("%w: topic %s is missing, and the brokers do not let this client create it (%w): kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions %d --config cleanup.policy=compact --config max.message.bytes=%d",
		ErrPositions, s.config.Positions, err, s.config.Brokers[0], s.config.Positions, positionsPartitions(lane), largestNote)
}

// newest reads the newest note of a partition, whose writers are fenced, before a mark: nil if there is none.
// It reads backwards in growing steps, since what is aborted and what is not compacted yet stands between.
func (s *Sink) newest(ctx context.Context, admin *kadm.Client, partition int32, mark int64) (note []byte, err error) {
	starts, err := admin.ListStartOffsets(ctx, s.config.Positions)
	if err != nil {
		return nil, err
	}
	start, known := starts.Lookup(s.config.Positions, partition)
	if !known {
		return nil, fmt.Errorf("%w: topic %s has no partition %d", ErrPositions, s.config.Positions, partition)
	}
	if start.Err != nil {
		return nil, start.Err
	}
	for back := int64(firstBack); ; back *= growingBack {
		from := max(start.Offset, mark-back)
		if note, err = s.lastNote(ctx, partition, from, mark); note != nil || err != nil || from == start.Offset {
			return note, err
		}
	}
}

const (
	firstBack   = 8
	growingBack = 8
)

// lastNote is the last note from an offset on and before a mark, up to which it reads. What is fetched
// has ended, since the mark is behind it.
func (s *Sink) lastNote(ctx context.Context, partition int32, from, mark int64) (note []byte, err error) {
	client := s.franz.client(
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.config.Positions: {partition: kgo.NewOffset().At(from)}}),
	)
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, r := range fetches.Records() {
			if r.Offset >= mark {
				return note, nil
			}
			if string(r.Key) == s.noteKey() {
				note = r.Value
			}
		}
	}
}
