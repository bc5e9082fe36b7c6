package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/store"
)

// Source is a log that consists of topics. It is safe for concurrent use, also by several forwarders.
type Source struct {
	config       Config
	client       *kgo.Client
	admin        *kadm.Client
	decompressor kgo.Decompressor
	types        *typeRule // nil if the configuration has none
	groups       groups
	kept         kept
	ages         ages

	asking chan struct{} // of capacity 1: full during a request for metadata
	known  atomic.Pointer[cluster]
}

var _ store.Source = (*Source)(nil)

// New validates a configuration and returns a source. It does not connect yet. Close ends its
// connections.
func New(c Config) (*Source, error) {
	c.SetDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	s := &Source{config: c, decompressor: kgo.DefaultDecompressor(), asking: make(chan struct{}, 1), kept: kept{most: maxKept}, ages: ages{of: make(map[place]time.Time)}}
	opened, err := new(c.connection()).Open()
	if err != nil {
		return nil, err
	}
	// The client refreshes its metadata at this age, and when it proves wrong.
	if s.client, err = kgo.NewClient(append(opened.Options(), kgo.MetadataMinAge(time.Second))...); err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	s.admin = kadm.NewClient(s.client)
	if s.types, err = compileType(c.Type); err != nil {
		s.client.Close()
		return nil, err
	}
	s.groups = groups{source: s, moved: make(map[string]map[partition]position), had: make(map[string]map[partition]written)}
	return s, nil
}

// ErrUnavailable means that the cluster does not answer. It may be temporary.
var ErrUnavailable = errors.New("the Kafka cluster cannot be reached")

// Open reads the topics from the cluster. It fails if a topic does not exist, is compacted, or has too
// many partitions, and with ErrUnavailable if the cluster does not answer.
func (s *Source) Open(ctx context.Context) error {
	c, err := s.cluster(ctx, time.Now())
	if err == nil {
		err = c.faulty()
	}
	if err == nil {
		return s.checkCompaction(ctx, c)
	}
	if network := net.Error(nil); errors.As(err, &network) || kerr.IsRetriable(err) || kgo.IsRetryableBrokerErr(err) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// Close writes the groups' last offsets and ends the connections.
func (s *Source) Close() {
	s.groups.close()
	s.client.Close()
}

// checkCompaction refuses compacted topics, which lose records before they are read, without a trace.
// It accepts a topic whose configuration it may not read.
func (s *Source) checkCompaction(ctx context.Context, c *cluster) error {
	if s.config.Lost == LostSkip {
		return nil
	}
	var problems []error
	for topic, config := range s.configs(ctx) {
		if strings.Contains(config["cleanup.policy"], "compact") {
			problems = append(problems, fmt.Errorf("topic %s of cluster %s is compacted: records may be removed unnoticed before they are read; "+
				"set its cleanup.policy to delete, or source.kafka.lost: skip", topic, c.id))
		}
	}
	return errors.Join(problems...)
}

// configs returns the settings of the topics, as far as the user may read them.
func (s *Source) configs(ctx context.Context) map[string]map[string]string {
	ctx, cancel := context.WithTimeout(ctx, s.config.timeout)
	defer cancel()
	described, err := s.admin.DescribeTopicConfigs(ctx, s.config.Topics...)
	if err != nil {
		return nil
	}
	topics := make(map[string]map[string]string)
	for _, topic := range described {
		topics[topic.Name] = make(map[string]string)
		for _, config := range topic.Configs {
			topics[topic.Name][config.Key] = config.MaybeValue()
		}
	}
	return topics
}

// Name describes the source.
func (s *Source) Name() string {
	name := "topic "
	if len(s.config.Topics) > 1 {
		name = "topics "
	}
	return name + strings.Join(s.config.Topics, ", ") + " of Kafka"
}

// target has the ends of the partitions.
type target struct {
	ends map[partition]int64
	last int64
}

// Last returns the sum of all ends, which grows with each record.
func (t *target) Last() int64 { return t.last }

// Probe reads the last stable offset of each partition. It leaves out partitions without an answer.
func (s *Source) Probe(ctx context.Context) (store.Target, error) {
	c, err := s.recent(ctx)
	if err != nil {
		return nil, err
	}
	offsets, _, err := s.list(ctx, c, c.parts, latest, false)
	if err != nil {
		return nil, err
	}
	t := &target{ends: make(map[partition]int64, len(offsets))}
	for part, l := range offsets {
		t.ends[part] = l.offset
		t.last += l.offset
	}
	return t, nil
}

// Begin returns the beginnings of lanes that a sink does not have yet; see store.Source.
func (s *Source) Begin(ctx context.Context, known []json.RawMessage, start store.Start) ([]store.LaneBeginning, error) {
	c, err := s.cluster(ctx, time.Now().Add(-metadataAge/2))
	if err != nil {
		return nil, err
	}
	has := make(map[partition]bool, len(known))
	for _, raw := range known {
		p, err := parsePosition(raw)
		if err == nil && c.faults[p.name] == nil { // otherwise the lane reports it, and others may grow
			err = c.check(p)
		}
		if errors.Is(err, ErrLost) {
			err = fmt.Errorf("%w: %w", store.ErrPosition, err)
		}
		if err != nil {
			return nil, err
		}
		has[p.partition] = true
	}
	var missing []partition
	for _, part := range c.parts {
		if !has[part] {
			missing = append(missing, part)
		}
	}
	if len(missing) == 0 {
		return nil, nil
	}
	if len(missing)+len(known) > store.Slots {
		return nil, fmt.Errorf("%w: including topics that are no longer configured, the sink would have %d lanes, but the limit is %d: forget it, and start it again with start: oldest",
			store.ErrLanes, len(missing)+len(known), store.Slots)
	}
	if len(known) > 0 {
		start = store.StartOldest
	}
	return s.begin(ctx, c, missing, start)
}

func (s *Source) begin(ctx context.Context, c *cluster, parts []partition, start store.Start) ([]store.LaneBeginning, error) {
	oldest, err := s.listAll(ctx, c, parts, earliest)
	if err != nil {
		return nil, err
	}
	from := oldest
	if since, isTime := start.Time(); isTime || start == store.StartNow {
		if from, err = s.listAll(ctx, c, parts, latest); err != nil {
			return nil, err
		}
		if isTime {
			if from, err = s.since(ctx, c, parts, since, from); err != nil {
				return nil, err
			}
		}
	}
	beginnings := make([]store.LaneBeginning, len(parts))
	for i, part := range parts {
		at := position{partition: part, cluster: c.id, name: c.names[part.topic], next: from[part].offset, epoch: from[part].epoch}
		if beginnings[i].Position, err = at.MarshalJSON(); err != nil {
			return nil, err
		}
		beginnings[i].Passed = at.next - oldest[part].offset
	}
	return beginnings, nil
}

// since returns the first offset of each partition at or after a time, and the end if there is none.
func (s *Source) since(ctx context.Context, c *cluster, parts []partition, at time.Time, ends map[partition]listed) (map[partition]listed, error) {
	of := at.UnixMilli()
	if of < 0 {
		of = earliest // negative numbers mean something else
	}
	first, err := s.listAll(ctx, c, parts, of)
	if err != nil {
		return nil, err
	}
	for part, l := range first {
		if end := ends[part]; l.offset < 0 || l.offset > end.offset {
			first[part] = end
		}
	}
	return first, nil
}

// check returns why a position does not belong to the current topics: ErrPosition for another cluster,
// which stops the whole forwarder; other errors stop only the lane.
func (c *cluster) check(p position) error {
	id, configured := c.topics[p.name]
	switch fault := c.faults[p.name]; {
	case p.cluster != c.id:
		return fmt.Errorf("%w: it is in cluster %s, but source.kafka.brokers lead to cluster %s: correct the addresses, or use another outbox.prefix for the other cluster",
			store.ErrPosition, p.cluster, c.id)
	case fault != nil:
		return fmt.Errorf("the lane has stopped at %s: %w", p, fault)
	case configured && id != p.topic:
		return fmt.Errorf("%w: topic %s was deleted and created again (%s, before %s), so the records after %s are gone: forget the sink, and start it again with start: oldest",
			ErrLost, p.name, id, p.topic, p)
	}
	return nil
}

// NewReader returns a reader that continues at a position. The position is required, since it names the
// partition of the lane.
func (s *Source) NewReader(raw json.RawMessage, filter store.Filter) (store.Reader, error) {
	if len(raw) == 0 {
		return nil, fmt.Errorf("%w: it names no partition", store.ErrPosition)
	}
	p, err := parsePosition(raw)
	if err != nil {
		return nil, err
	}
	if known := s.known.Load(); known != nil {
		if err := known.check(p); err != nil {
			return nil, err
		}
	}
	r := &reader{source: s, lane: filter.Slots.First, filter: filter, fetched: fetched{at: p, read: p.next}, share: &share{of: &s.kept}}
	runtime.AddCleanup(r, (*share).giveBack, r.share) // readers are not closed
	return r, nil
}

// Through returns the engine's offset before the position.
func (s *Source) Through(lane store.LanePosition) (int64, error) {
	p, err := parsePosition(lane.Position)
	return engineOffset(lane.Lane.Number, p.next) - 1, err
}

// Settled updates the group of the sink.
func (s *Source) Settled(lane store.Lane, at store.Position) {
	if p, ok := at.(position); ok {
		s.groups.follow(lane.Sink, p)
	}
}

// At returns the positions at a time or at a record; see store.Source.
func (s *Source) At(ctx context.Context, lane store.LanePosition, since time.Time, from string) (json.RawMessage, int64, error) {
	p, err := parsePosition(lane.Position)
	if err != nil {
		return nil, 0, err
	}
	c, err := s.recent(ctx)
	if err == nil {
		err = c.check(p)
	}
	if err != nil {
		return nil, 0, err
	}
	parts := []partition{p.partition}
	oldest, err := s.listAll(ctx, c, parts, earliest)
	if err != nil {
		return nil, 0, err
	}
	to := oldest[p.partition].offset
	if from != "" {
		record, err := c.record(from)
		if err != nil {
			return nil, 0, err
		}
		if record.partition != p.partition {
			return lane.Position, 0, nil
		}
		to = max(to, record.next)
	}
	if !since.IsZero() {
		first, err := s.since(ctx, c, parts, since, map[partition]listed{p.partition: {offset: p.next}})
		if err != nil {
			return nil, 0, err
		}
		to = max(to, first[p.partition].offset)
	}
	if to >= p.next {
		return lane.Position, 0, nil
	}
	rows := p.next - to
	p.next, p.epoch = to, -1
	raw, err := p.MarshalJSON()
	return raw, rows, err
}
