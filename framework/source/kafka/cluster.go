package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-go/waybill/framework/store"
)

const (
	// metadataAge is the maximum age of the metadata, and so how long new partitions stay unnoticed.
	metadataAge = 10 * time.Second
	// faultyAge is metadataAge while a topic cannot be read.
	faultyAge = time.Second
)

// cluster is the metadata of a cluster and its topics. It is immutable.
type cluster struct {
	id      string
	asked   time.Time
	leaders map[partition]leader
	topics  map[string]topicID
	names   map[topicID]string
	faults  map[string]error // why topics cannot be read, by name
	// parts has the partitions of the configured topics, in the order of topics and numbers.
	parts []partition
}

// leader is the broker from which a partition is read.
type leader struct{ node, epoch int32 }

// cluster returns metadata that was requested after a time.
func (s *Source) cluster(ctx context.Context, after time.Time) (*cluster, error) {
	if c := s.known.Load(); c != nil && !c.asked.Before(after) {
		return c, nil
	}
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c := s.known.Load(); c != nil && !c.asked.Before(after) { // another request has updated it meanwhile
		return c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.timeout)
	defer cancel()
	asked := time.Now()
	metadata, err := s.admin.Metadata(ctx, s.config.Topics...)
	if err != nil {
		return nil, fmt.Errorf("read the metadata of the topics: %w", err)
	}
	c := &cluster{
		id: metadata.Cluster, asked: asked, leaders: make(map[partition]leader), topics: make(map[string]topicID), names: make(map[topicID]string), faults: make(map[string]error),
	}
	for _, name := range s.config.Topics {
		if err := c.add(metadata.Topics[name], name); err != nil {
			c.faults[name] = err
		}
	}
	if len(c.topics) == 0 {
		return nil, c.faulty()
	}
	if len(c.parts) > store.Slots {
		return nil, fmt.Errorf("%w: the topics have %d partitions together, and the limit is %d: read some of them with another forwarder", store.ErrLanes, len(c.parts), store.Slots)
	}
	s.known.Store(c)
	return c, nil
}

// faulty returns why topics cannot be read; nil if all can.
func (c *cluster) faulty() error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(c.faults)) {
		problems = append(problems, c.faults[name])
	}
	return errors.Join(problems...)
}

// add adds a configured topic.
func (c *cluster) add(t kadm.TopicDetail, name string) error {
	switch {
	case errors.Is(t.Err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("topic %s does not exist in cluster %s: create it, or correct source.kafka.topics", name, c.id)
	case t.Err != nil:
		return fmt.Errorf("topic %s: %w", name, t.Err)
	case topicID(t.ID) == topicID{}:
		return fmt.Errorf("%w: topic %s has no id: Kafka 3.0 or later is needed", store.ErrUnsupported, name)
	}
	c.topics[name], c.names[topicID(t.ID)] = topicID(t.ID), name
	for _, p := range t.Partitions.Sorted() {
		part := partition{topicID(t.ID), p.Partition}
		c.parts = append(c.parts, part)
		c.leaders[part] = leader{p.Leader, p.LeaderEpoch}
	}
	return nil
}

// record returns the position before a record in the form of users, such as orders/3@1042.
func (c *cluster) record(name string) (p position, err error) {
	slash, at := strings.LastIndexByte(name, '/'), strings.LastIndexByte(name, '@')
	if slash > 0 && at > slash {
		p.name = name[:slash]
		number, numberErr := strconv.ParseInt(name[slash+1:at], 10, 32)
		offset, offsetErr := strconv.ParseInt(name[at+1:], 10, 64)
		p.number, p.next, err = int32(number), offset, errors.Join(numberErr, offsetErr)
	}
	if slash <= 0 || at < slash || err != nil || p.next < 0 {
		return p, fmt.Errorf("%q is not a record: write topic/partition@offset, such as orders/3@1042", name)
	}
	p.topic = c.topics[p.name]
	if !slices.Contains(c.parts, p.partition) {
		return p, fmt.Errorf("%s: the source does not read this partition", name)
	}
	return p, nil
}

// recent returns metadata that is not too old.
func (s *Source) recent(ctx context.Context) (*cluster, error) {
	age := metadataAge
	if c := s.known.Load(); c != nil && len(c.faults) > 0 {
		age = faultyAge
	}
	return s.cluster(ctx, time.Now().Add(-age))
}

// outdated makes the next use of the metadata request it again, after an answer that contradicts it.
func (s *Source) outdated(c *cluster) {
	if time.Since(c.asked) > leastAge {
		s.known.CompareAndSwap(c, nil)
	}
}

// leastAge is the minimum time between two requests, for a cluster without a leader.
const leastAge = 250 * time.Millisecond

// misplaced reports whether an error means that the metadata is outdated.
func misplaced(err error) bool {
	return slices.ContainsFunc([]error{
		kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch,
		kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InconsistentTopicID, kerr.KafkaStorageError, kerr.ReplicaNotAvailable,
	}, func(known error) bool { return errors.Is(err, known) })
}

// The special times of ListOffsets.
const (
	latest   = -1 // with isolation read_committed: the last stable offset
	earliest = -2
)

// listed is an answer of ListOffsets.
type listed struct {
	offset int64 // -1 if there is no record at or after the time
	epoch  int32 // the leader epoch at the offset; -1 if not known
	at     time.Time
}

// list reads offsets of partitions at a time in milliseconds, or latest or earliest. It leaves out
// partitions with an error, and returns the first error. If fenced is true, former leaders and leaders
// with another epoch than known do not answer.
func (s *Source) list(ctx context.Context, c *cluster, parts []partition, of int64, fenced bool) (offsets map[partition]listed, firstErr error, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.timeout)
	defer cancel()
	request := kmsg.NewPtrListOffsetsRequest()
	request.IsolationLevel = 1
	topics := make(map[topicID]int)
	for _, part := range parts {
		at, known := topics[part.topic]
		if !known {
			at = len(request.Topics)
			topics[part.topic] = at
			topic := kmsg.NewListOffsetsRequestTopic()
			topic.Topic = c.names[part.topic]
			request.Topics = append(request.Topics, topic)
		}
		asked := kmsg.NewListOffsetsRequestTopicPartition()
		asked.Partition, asked.Timestamp = part.number, of
		if fenced {
			asked.CurrentLeaderEpoch = c.leaders[part].epoch
		}
		request.Topics[at].Partitions = append(request.Topics[at].Partitions, asked)
	}
	offsets = make(map[partition]listed, len(parts))
	for _, shard := range s.client.RequestSharded(ctx, request) {
		if shard.Err != nil {
			firstErr = cmp.Or(firstErr, shard.Err)
			continue
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					firstErr = cmp.Or(firstErr, fmt.Errorf("%s/%d: %w", t.Topic, p.Partition, err))
					continue
				}
				offsets[partition{c.topics[t.Topic], p.Partition}] = listed{p.Offset, p.LeaderEpoch, time.UnixMilli(p.Timestamp).UTC()}
			}
		}
	}
	if misplaced(firstErr) {
		s.outdated(c)
	}
	if len(offsets) == 0 && firstErr != nil {
		return nil, nil, fmt.Errorf("read the offsets: %w", firstErr)
	}
	return offsets, firstErr, nil
}

// listAll is a fenced list that fails unless each partition answers.
func (s *Source) listAll(ctx context.Context, c *cluster, parts []partition, of int64) (map[partition]listed, error) {
	offsets, partly, err := s.list(ctx, c, parts, of, true)
	if err == nil && len(offsets) < len(parts) {
		err = cmp.Or(partly, errors.New("a partition did not answer"))
		err = fmt.Errorf("read the offsets: %w", err)
	}
	return offsets, err
}

// fetch reads records of a partition from an offset on, up to about a number of bytes. next is the offset
// after the last record, including records of aborted transactions and control records.
func (s *Source) fetch(ctx context.Context, c *cluster, p position, most int32) (records []*kgo.Record, next int64, start int64, err error) {
	l := c.leaders[p.partition]
	if l.node < 0 {
		s.outdated(c)
		return nil, 0, 0, fmt.Errorf("%s/%d has no leader", p.name, p.number)
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.timeout)
	defer cancel()
	request := kmsg.NewPtrFetchRequest()
	request.MinBytes, request.MaxBytes, request.IsolationLevel, request.SessionEpoch = 1, most, 1, -1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = p.name, p.topic
	asked := kmsg.NewFetchRequestTopicPartition()
	asked.Partition, asked.FetchOffset, asked.PartitionMaxBytes, asked.CurrentLeaderEpoch = p.number, p.next, most, l.epoch
	topic.Partitions = append(topic.Partitions, asked)
	request.Topics = append(request.Topics, topic)
	answer, err := s.client.Broker(int(l.node)).RetriableRequest(ctx, request)
	if err != nil {
		s.outdated(c)
		return nil, 0, 0, err
	}
	response := answer.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(response.ErrorCode); err != nil {
		return nil, 0, 0, err
	}
	if len(response.Topics) != 1 || len(response.Topics[0].Partitions) != 1 {
		return nil, 0, 0, fmt.Errorf("the broker answered for %d topics", len(response.Topics))
	}
	part, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: p.next, IsolationLevel: kgo.ReadCommitted(), Topic: p.name, Partition: p.number,
	}, &response.Topics[0].Partitions[0], s.decompressor, nil)
	if misplaced(part.Err) {
		s.outdated(c)
	}
	return part.Records, next, part.LogStartOffset, part.Err
}

// diverges returns the offset at which the leader epoch of a position ended, if it is before the
// position: then an election has removed the records in between.
func (s *Source) diverges(ctx context.Context, p position) (end int64, lost bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.timeout)
	defer cancel()
	var request kadm.OffsetForLeaderEpochRequest
	request.Add(p.name, p.number, p.epoch)
	answers, err := s.admin.OffsetForLeaderEpoch(ctx, request)
	if err != nil {
		return 0, false, err
	}
	answer, ok := answers[p.name][p.number]
	switch {
	case !ok:
		return 0, false, errors.New("the broker did not answer for the leader epoch")
	case answer.Err != nil:
		return 0, false, answer.Err
	}
	return answer.EndOffset, answer.EndOffset >= 0 && answer.EndOffset < p.next, nil
}
