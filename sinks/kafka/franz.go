package kafka

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/singleflight"

	"github.com/waybill-go/waybill/sinks/kafka/connection"
)

const (
	// metadataMaxAge is the age at which the topics' state is requested again, and so how long partitions that
	// were added get no records.
	metadataMaxAge = 10 * time.Second
	// linger is longer than the client needs to make a batch. Records do not wait for its
	// end: ProduceSync sends them as soon as the client has all of them.
	linger = 10 * time.Millisecond
	// maxBuffered is more records than the engine delivers at once.
	maxBuffered = 1 << 30
)

// franz makes clients of franz-go.
type franz struct {
	options []kgo.Opt
	config  Config
}

func newFranz(c Config, reach []kgo.Opt) (franz, error) {
	options := append(slices.Clip(reach),
		kgo.AllowAutoTopicCreation(),
		kgo.MetadataMaxAge(metadataMaxAge),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchMaxBytes(int32(max(c.MaxMessageBytes, minBatchBytes))),
		kgo.ProduceRequestTimeout(c.step()),
		kgo.ProducerLinger(linger),
		kgo.MaxBufferedRecords(maxBuffered),
		kgo.RecordRetries(connection.Retries),
		kgo.UnknownTopicRetries(connection.Retries),
		kgo.RecordPartitioner(new(partitioner)),
	)
	if !c.idempotent() {
		options = append(options, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	}
	return franz{options, c}, kgo.ValidateOpts(options...)
}

// client returns a client, which connects when it is used. It can give up a record that may
// have been written, because the engine delivers that again.
func (f franz) client(more ...kgo.Opt) *kgo.Client {
	return f.transactional(append(more, kgo.AllowIdempotentProduceCancellation())...)
}

// transactional returns a client that may have a transactional id. It does not give up a
// record that may have been written.
func (f franz) transactional(more ...kgo.Opt) *kgo.Client {
	compression := kgo.ProducerBatchCompression(codecs[f.config.Compression]) // the client writes to it, so each needs its own
	client, err := kgo.NewClient(append(append(slices.Clip(f.options), compression), more...)...)
	if err != nil {
		panic(err) // newFranz has validated the options
	}
	return client
}

func (f franz) open(context.Context) client {
	return &franzClient{Client: f.client(), needsID: f.config.idempotent()}
}

// franzClient writes with franz-go.
type franzClient struct {
	*kgo.Client
	needsID   bool
	hasID     atomic.Bool
	requestID singleflight.Group
	end       sync.Once
}

func (c *franzClient) close() { c.end.Do(c.Close) }

func (c *franzClient) produce(ctx context.Context, list []*publication) {
	if err := c.prepare(ctx); err != nil {
		for _, p := range list {
			p.err = err
		}
		return
	}
	records := make([]*kgo.Record, len(list))
	for i, p := range list {
		records[i] = &p.record
	}
	var recreated map[string]bool
	for _, result := range c.ProduceSync(ctx, records...) {
		p := result.Record.Context.(*publication)
		if p.err = result.Err; p.err != nil && isUnknownTopic(p.err) && !recreated[p.topic] {
			if recreated == nil {
				recreated = make(map[string]bool)
			}
			recreated[p.topic] = true
		}
	}
	for topic := range recreated {
		c.PurgeTopicsFromProducing(topic) // a topic that is created again under this name has another id
	}
}

// prepare gets a producer id. The client would get it by itself, but a refusal would then
// become an error of records, and the client would remember it.
func (c *franzClient) prepare(ctx context.Context) error {
	if !c.needsID || c.hasID.Load() {
		return nil
	}
	answer := c.requestID.DoChan("", func() (any, error) {
		_, _, err := c.ProducerID(ctx)
		if err != nil {
			return nil, &connectError{err}
		}
		c.hasID.Store(true)
		return nil, nil
	})
	select {
	case a := <-answer:
		return a.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// batch is a batch of the client: records of one partition that are stored together or not at
// all.
type batch struct {
	partition int
	number    uint64 // counts the batches of the client, from 1
}

// partitioner chooses the partition of a key as the Java client does, and any partition for a
// record without a key. It also keeps the order of keys, for which it observes how the client
// makes its batches.
//
// The client writes the batches of a partition in order. When one fails, it fails all later
// ones that it already has, but still writes records that it receives afterwards. So a record
// joins the batch of the previous record of its key, or waits until that one is stored.
type partitioner struct {
	last atomic.Uint64 // the highest number of a batch
}

func (p *partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return &topicPartitioner{client: p, java: kgo.StickyKeyPartitioner(nil).ForTopic(topic), batches: make(map[int]uint64)}
}

// topicPartitioner is used by one record at a time.
type topicPartitioner struct {
	client  *partitioner
	java    kgo.TopicPartitioner
	batches map[int]uint64 // the number of each partition's last batch
	begins  bool           // the next record begins a batch
}

var _ kgo.TopicPartitionerOnNewBatch = (*topicPartitioner)(nil)

func (t *topicPartitioner) RequiresConsistency(r *kgo.Record) bool { return r.Key != nil }

// OnNewBatch is called if the record does not fit into the last batch of its partition. The
// client then calls Partition again.
func (t *topicPartitioner) OnNewBatch() { t.begins = true }

// Partition returns -1, which fails the record, if the record must wait for the previous one
// of its key.
func (t *topicPartitioner) Partition(r *kgo.Record, n int) int {
	begins := t.begins
	t.begins = false
	p := r.Context.(*publication)
	if r.Key == nil {
		return rand.IntN(n)
	}
	at := t.java.Partition(r, n)
	if begins {
		t.batches[at] = t.client.last.Add(1)
	}
	p.batch = batch{at, t.batches[at]}
	if b := p.previous; b != nil && !b.stored && (b.deferred || b.batch != p.batch || b.batch.number == 0) {
		p.deferred = true
		return -1
	}
	return at
}

// checkTopicOnce is checkTopic with a new client.
func (f franz) checkTopicOnce(ctx context.Context, topic string) error {
	client := f.client()
	defer client.Close()
	return f.checkTopic(ctx, client, topic)
}

// checkTopic returns an error unless the topic has a partition that can be written. With the
// topic "" it only checks that the cluster answers. It retries errors that may be gone a moment
// later, since a topic that was just created has no leader yet.
func (f franz) checkTopic(ctx context.Context, client *kgo.Client, topic string) error {
	for try := 1; ; try++ {
		err := requestTopic(ctx, client, topic)
		if try > connection.Retries || !errors.Is(err, kerr.UnknownTopicOrPartition) && !errors.Is(err, kerr.LeaderNotAvailable) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(f.config.step() / 20):
		}
	}
}

func requestTopic(ctx context.Context, client *kgo.Client, topic string) error {
	request := kmsg.NewPtrMetadataRequest()
	request.AllowAutoTopicCreation = true
	request.Topics = []kmsg.MetadataRequestTopic{}
	if topic != "" {
		requested := kmsg.NewMetadataRequestTopic()
		requested.Topic = kmsg.StringPtr(topic)
		request.Topics = append(request.Topics, requested)
	}
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, t := range response.Topics {
		err = kerr.ErrorForCode(t.ErrorCode)
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 && p.Leader >= 0 {
				return err
			}
			err = errors.Join(err, kerr.ErrorForCode(p.ErrorCode))
		}
	}
	return err
}
