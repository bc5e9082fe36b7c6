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
)

const (
	// retries is how often the client sends again what failed for the moment.
	retries = 4
	// leastAge is the time between two questions for the topics' state: a record whose
	// partition has no leader is sent again after it.
	leastAge = 250 * time.Millisecond
	// linger is longer than making a batch takes. Nothing waits for its end: what is
	// written at once is sent when all of it is in the client.
	linger = 10 * time.Millisecond
	// maxBuffered is more than the engine hands over.
	maxBuffered = 1 << 30
)

// backoff is how long the client waits before it tries again: 1, 8, 64 and 512 ms.
func backoff(try int) time.Duration {
	return time.Millisecond << (3 * (min(max(try, 1), retries) - 1))
}

// franz makes clients of franz-go.
type franz struct {
	options []kgo.Opt
	config  Config
}

func newFranz(c Config, reach []kgo.Opt) (franz, error) {
	options := append(slices.Clip(reach),
		kgo.AllowAutoTopicCreation(),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchMaxBytes(int32(max(c.MaxMessageBytes, leastBatchBytes))),
		kgo.ProduceRequestTimeout(c.step()),
		kgo.ProducerLinger(linger),
		kgo.MaxBufferedRecords(maxBuffered),
		kgo.RecordRetries(retries),
		kgo.UnknownTopicRetries(retries),
		kgo.RecordPartitioner(new(partitioner)),
	)
	if c.Acks == AcksLeader {
		options = append(options, kgo.RequiredAcks(kgo.LeaderAck()))
	}
	if !*c.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	return franz{options, c}, kgo.ValidateOpts(options...)
}

// client returns a client. It connects to nothing yet.
func (f franz) client(more ...kgo.Opt) *kgo.Client {
	return f.transactional(append(more, kgo.AllowIdempotentProduceCancellation())...) // the engine sends again what it gave up
}

// transactional returns a client that may have a transactional id. It gives up no record whose fate is unknown.
func (f franz) transactional(more ...kgo.Opt) *kgo.Client {
	compression := kgo.ProducerBatchCompression(codecs[f.config.Compression].franz) // one for each, since clients write to it
	client, err := kgo.NewClient(append(append(slices.Clip(f.options), compression), more...)...)
	if err != nil {
		panic(err) // they are validated
	}
	return client
}

func (f franz) open(context.Context) client {
	return &franzClient{Client: f.client(), needsID: *f.config.Idempotent}
}

// franzClient writes with franz-go.
type franzClient struct {
	*kgo.Client
	needsID  bool
	hasID    atomic.Bool
	askForID singleflight.Group
	end      sync.Once
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
		c.PurgeTopicsFromProducing(topic) // it may be another one of that name when it is there again
	}
}

// prepare gets a producer id. The client would ask for it by itself, but a refusal
// would be that of records then, and be remembered.
func (c *franzClient) prepare(ctx context.Context) error {
	if !c.needsID || c.hasID.Load() {
		return nil
	}
	answer := c.askForID.DoChan("", func() (any, error) {
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

// batch is a batch of the client: records of one partition that are stored together, or not at
// all.
type batch struct {
	partition int
	number    uint64 // counts all batches of the client, from 1
}

// partitioner puts a key where the Java client does, and records without one anywhere. It
// also keeps the order of keys, for which it looks at how the client makes its batches.
//
// The client writes the batches of a partition in order. When one fails it fails all behind it. But
// what is handed to it after that is written, also what was handed over a moment too late. So a record goes into the
// batch that the one before it of its key is in, or waits until that one is stored.
type partitioner struct {
	last atomic.Uint64 // number of a batch
}

func (p *partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return &topicPartitioner{client: p, java: kgo.StickyKeyPartitioner(nil).ForTopic(topic), batches: make(map[int]uint64)}
}

// topicPartitioner is used by one record at a time.
type topicPartitioner struct {
	client  *partitioner
	java    kgo.TopicPartitioner
	batches map[int]uint64 // the last one of each partition
	begins  bool           // the record that comes next begins a batch
}

var _ kgo.TopicPartitionerOnNewBatch = (*topicPartitioner)(nil)

func (t *topicPartitioner) RequiresConsistency(r *kgo.Record) bool { return r.Key != nil }

// OnNewBatch is called if the record does not go into the last batch of its partition;
// the client asks for the partition again then.
func (t *topicPartitioner) OnNewBatch() { t.begins = true }

// Partition returns -1, which fails the record, if that has to wait.
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
	if b := p.behind; b != nil && !b.stored && (b.held || b.batch != p.batch || b.batch.number == 0) {
		p.held = true
		return -1
	}
	return at
}

// ---- questions ------------------------------------------------------------------

// askOnce asks for a topic over connections of its own, or without one whether the cluster
// answers.
func (f franz) askOnce(ctx context.Context, topic string) error {
	client := f.client()
	defer client.Close()
	return f.ask(ctx, client, topic)
}

// ask finds out whether the topic has a partition that can be written. What
// may have changed a moment later it asks again, as a topic that was just created
// has no leader yet.
func (f franz) ask(ctx context.Context, client *kgo.Client, topic string) error {
	for try := 1; ; try++ {
		err := askForMetadata(ctx, client, topic)
		if try > retries || !errors.Is(err, kerr.UnknownTopicOrPartition) && !errors.Is(err, kerr.LeaderNotAvailable) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(f.config.step() / 20):
		}
	}
}

func askForMetadata(ctx context.Context, client *kgo.Client, topic string) error {
	request := kmsg.NewPtrMetadataRequest()
	request.AllowAutoTopicCreation = true
	request.Topics = []kmsg.MetadataRequestTopic{}
	if topic != "" {
		asked := kmsg.NewMetadataRequestTopic()
		asked.Topic = kmsg.StringPtr(topic)
		request.Topics = append(request.Topics, asked)
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
