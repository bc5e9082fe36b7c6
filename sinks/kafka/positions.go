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

// The positions topic has the notes of a sink's lanes. The notes of lane n are in partition n,
// and their key is the sink's name. Only the newest note counts, so the topic is compacted.

// positionsPrefix and the sink's name form the default name of the positions topic.
const positionsPrefix = "waybill-positions-"

// maxNoteBytes is the topic's max.message.bytes. A note has about 14 bytes for each row of a
// round and about 150 for each parked row: at most half a megabyte, and twice that after a
// crash.
const maxNoteBytes = 4 << 20

// transactionVersion is the required level of the feature transaction.version. From this level
// on (KIP-890), a late request cannot become part of a later transaction.
const transactionVersion = 2

// noteKey returns the key of notes, and markKey that of marks. They differ, so that compaction
// does not replace a note by a mark.
func (s *Sink) noteKey() string { return s.name }
func (s *Sink) markKey() string { return s.name + "/opened" }

// checkTransactions returns ErrTransactionVersion if the cluster's transaction.version is too
// low.
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
	return fmt.Errorf("%w: exactly_once needs level %d, which Apache Kafka has from 4.0 on, but the cluster has %d: upgrade it with kafka-features.sh --bootstrap-server %s upgrade --feature transaction.version=%d, or set exactly_once: false",
		ErrTransactionVersion, transactionVersion, level, s.config.Brokers[0], transactionVersion)
}

// checkPositions checks that the positions topic can hold the notes of a lane. With create, it
// creates a missing topic.
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
		return s.missingPositions(lane, detail.Err)
	case detail.Err != nil:
		return fmt.Errorf("%w: topic %s: %w (grant this client DESCRIBE, READ, WRITE and DESCRIBE_CONFIGS on it)", ErrPositions, topic, detail.Err)
	case n <= lane.Number:
		return fmt.Errorf("%w: topic %s has %d partitions, but lane %d needs its own: kafka-topics.sh --bootstrap-server %s --alter --topic %s --partitions %d",
			ErrPositions, topic, n, lane.Number, s.config.Brokers[0], topic, positionsPartitions(lane))
	}
	return s.checkCompacted(ctx, admin)
}

// checkCluster returns ErrOtherCluster unless id is the same at each call. Another cluster does
// not have the notes, so deliveries that the first one has would be made again.
func (s *Sink) checkCluster(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cluster = cmp.Or(s.cluster, id); s.cluster == id {
		return nil
	}
	return fmt.Errorf("%w: the brokers belonged to cluster %s before and belong to %s now; if the topics, including %[4]s, have moved there for good, restart the forwarder",
		ErrOtherCluster, s.cluster, id, s.config.Positions)
}

// checkLedgers returns the error that opening a ledger would return now. A missing positions
// topic is not an error, because OpenLedger creates it.
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
	return s.ledgerError(err)
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
			return fmt.Errorf("%w: topic %s has cleanup.policy=%s, which deletes positions: kafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s --add-config cleanup.policy=compact",
				ErrPositions, topic, c.MaybeValue(), s.config.Brokers[0], topic)
		}
	}
	return nil
}

// A positions topic is created with minPartitions to maxPartitions partitions, or more if a
// lane needs them. Partitions without a lane cost little, and the number of lanes may grow.
const (
	minPartitions = 16
	maxPartitions = 64
)

func positionsPartitions(lane sinks.LedgerLane) int {
	return max(minPartitions, min(lane.Of, maxPartitions), lane.Number+1)
}

func (s *Sink) createPositions(ctx context.Context, admin *kadm.Client, lane sinks.LedgerLane) error {
	compact, largest := "compact", strconv.Itoa(maxNoteBytes)
	configs := map[string]*string{"cleanup.policy": &compact, "max.message.bytes": &largest}
	created, err := admin.CreateTopic(ctx, int32(positionsPartitions(lane)), -1, configs, s.config.Positions)
	if err = cmp.Or(err, created.Err); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return s.missingPositions(lane, err)
	}
	s.logger.Info("the positions topic is created", "topic", s.config.Positions, "partitions", positionsPartitions(lane))
	for { // until the brokers know the new topic
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

func (s *Sink) missingPositions(lane sinks.LedgerLane, err error) error {
	return fmt.Errorf("%w: topic %s is missing, and the brokers do not let this client create it (%w): kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions %d --config cleanup.policy=compact --config max.message.bytes=%d",
		ErrPositions, s.config.Positions, err, s.config.Brokers[0], s.config.Positions, positionsPartitions(lane), maxNoteBytes)
}

// newest returns the newest note of a partition before a mark, nil if there is none. Other
// writers of the partition are fenced. There may be aborted notes and older marks before the
// mark, so newest searches backwards in growing steps.
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
	for back := int64(firstStepBack); ; back *= stepBackFactor {
		from := max(start.Offset, mark-back)
		if note, err = s.lastNote(ctx, partition, from, mark); note != nil || err != nil || from == start.Offset {
			return note, err
		}
	}
}

const (
	firstStepBack  = 8
	stepBackFactor = 8
)

// lastNote returns the last note between the offset from and a mark. It reads up to the mark.
// All transactions before the mark have ended.
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
