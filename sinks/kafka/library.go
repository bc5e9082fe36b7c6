package kafka

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/singleflight"

	"github.com/waybill-go/waybill/sinks/kafka/connection"
)

// Library is another client library that can write records, such as that of sinks/kafka/watermill. A
// program that does not give it to [Kind] or to [Config] does not link it.
type Library interface {
	// Name is its value of [Config.Client].
	Name() string
	// Open returns a writer. Its connections are made by to.Connect, and end with life. c has
	// its defaults.
	Open(life context.Context, c Config, to *connection.Opened) (Writer, error)
}

// Writer writes with a library. It is safe for concurrent use, except that Close is the last call.
type Writer interface {
	// Write stores a record, and sets its partition and its offset. An error of a broker wraps
	// the one of package kerr.
	Write(r *kgo.Record) error
	Close() error
}

func (s *Sink) openLibrary(life context.Context) client {
	return &libraryClient{
		franz: s.franz, prober: s.franz.client(),
		open: func() (Writer, error) { return s.config.Library.Open(life, s.config, s.opened) },
	}
}

// libraryClient writes with a library.
type libraryClient struct {
	franz franz
	open  func() (Writer, error)

	// This client checks access and topics before the writer is used. sarama reports little
	// about a cluster that denies access. And after three records for a missing topic,
	// sarama's breaker would delay the records of all other topics.
	prober *kgo.Client
	probes singleflight.Group
	found  sync.Map // existing topics, by name

	using  sync.RWMutex // held for writing to change the fields below
	writer Writer
	closed bool
}

func (c *libraryClient) produce(ctx context.Context, list []*publication) {
	for _, p := range list {
		if p.err = c.probe(ctx, p.topic); p.err != nil || !p.canGo() {
			continue
		}
		if p.err = c.publish(p); p.err == nil || isProtocol(p.err) {
			continue
		}
		// After some failures at once, sarama's breaker hides that the topic is gone.
		if why := c.probe(ctx, p.topic); isUnknownTopic(why) {
			p.err = why
		}
	}
}

// probe checks that the topic exists, and makes the writer if there is none.
func (c *libraryClient) probe(ctx context.Context, topic string) error {
	if _, ok := c.found.Load(topic); ok {
		return nil
	}
	answer := c.probes.DoChan(topic, func() (any, error) {
		err := c.franz.checkTopic(ctx, c.prober, topic)
		if err != nil && !isProtocol(err) {
			err = &connectError{err}
		}
		if err == nil {
			err = c.connect(ctx)
		}
		if err == nil {
			c.found.Store(topic, nil)
		}
		return nil, err
	})
	select {
	case a := <-answer:
		return a.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// connect makes the writer, unless there is one or the client is closed.
func (c *libraryClient) connect(ctx context.Context) error {
	c.using.Lock()
	defer c.using.Unlock()
	if c.writer != nil || c.closed {
		return nil
	}
	if c.franz.config.idempotent() {
		if _, _, err := c.prober.ProducerID(ctx); err != nil {
			return &connectError{err}
		}
	}
	writer, err := c.open()
	if err != nil {
		return &connectError{err}
	}
	c.writer = writer
	return nil
}

func (c *libraryClient) publish(p *publication) error {
	c.using.RLock()
	defer c.using.RUnlock()
	if c.closed {
		return ErrClosed
	}
	err := c.writer.Write(&p.record)
	if err != nil {
		c.found.Delete(p.topic) // it may be gone, which sarama's breaker hides
	}
	return err
}

// close closes the writer. Its connections have ended with the life of the client.
func (c *libraryClient) close() {
	c.prober.Close()
	c.using.Lock()
	defer c.using.Unlock()
	if c.writer != nil && !c.closed {
		_ = c.writer.Close()
	}
	c.closed = true
}
