package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/eapache/go-resiliency/breaker"

	"github.com/waybill-go/waybill/sinks/internal/redact"
)

// reconnectPause is the least time between two attempts to connect, however
// many deliveries ask for it.
const reconnectPause = 500 * time.Millisecond

// triesToAsk is how often a topic is asked for before what the brokers say counts.
const triesToAsk = 4

// connector has the producer made when the first delivery needs it, by one
// attempt at a time. The client cannot be made while no broker answers, and a
// forwarder must start all the same. Once made, the client finds its way back
// to the cluster by itself.
type connector struct {
	brokers []string
	topic   string // "" if each notification names its own
	config  *sarama.Config
	asking  *sarama.Config // of clients that only ask
	source  string         // of events; "" for the format json

	producer atomic.Pointer[producer]
	found    sync.Map // topics from data that exist, by name

	mu      sync.Mutex
	last    *attempt            // running, or failed not long ago
	asked   map[string]*attempt // the same for each topic from data
	closed  bool
	running sync.WaitGroup // goroutines of attempts and of health checks
}

// attempt is one try to connect, or to find a topic. err and again are set before done is closed.
type attempt struct {
	done  chan struct{}
	err   error
	again time.Time // no other attempt before then
}

// awaitProducer returns the producer, once there is one. All errors are
// unavailable, but for ctx's when it is cancelled.
func (c *connector) awaitProducer(ctx context.Context) (*producer, error) {
	if p := c.producer.Load(); p != nil {
		return p, nil
	}
	a := c.attempt()
	if err := a.await(ctx); err != nil {
		return nil, err
	}
	if a.err != nil {
		return nil, notConnected(c.topic, a.err)
	}
	return c.producer.Load(), nil
}

// awaitTopic returns when a topic from data is found. It is looked for ahead of
// the first record, because sarama's breaker would make of the third record to
// a topic that does not exist a reason for all others to wait.
func (c *connector) awaitTopic(ctx context.Context, topic string) error {
	a := c.search(topic)
	if a == nil {
		return nil
	}
	if err := a.await(ctx); err != nil {
		return err
	}
	if a.err == nil {
		return nil
	}
	if f, _ := faultOf(a.err); f == ofTopic || f == ofTopicName {
		return classify(fromData, topic, a.err)
	}
	return notConnected(topic, a.err)
}

// failed gives an error of the producer its class. A topic from data that the
// producer cannot find any more is looked for again.
func (c *connector) failed(topic string, err error) error {
	if f, _ := faultOf(err); f == ofTopic || errors.Is(err, breaker.ErrBreakerOpen) {
		c.found.Delete(topic)
	}
	return classify(c.origin(), topic, c.withoutPassword(err))
}

// withoutPassword is an error whose text has not the password: brokers choose the words
// of a refusal.
func (c *connector) withoutPassword(err error) error {
	return redact.New(c.config.Net.SASL.Password).Error(err)
}

func (c *connector) origin() origin { return c.topic == "" }

// attempt returns the attempt to connect that is running, or failed not long ago,
// or begins.
func (c *connector) attempt() *attempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return refused()
	}
	if c.last == nil || c.last.over() {
		c.last = c.begin(c.connect)
	}
	return c.last
}

// search returns the attempt to find a topic that is running, or failed not long
// ago, or begins; nil where the topic needs none: it is found, or stands in the
// configuration.
//
// All use one client. It has one request under way and puts the topics that come
// meanwhile into the next, so that a thousand topics cost a few requests and no
// connection of their own.
func (c *connector) search(topic string) *attempt {
	if c.topic != "" {
		return nil
	}
	if _, ok := c.found.Load(topic); ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return refused()
	}
	maps.DeleteFunc(c.asked, func(_ string, a *attempt) bool { return a.over() || a.succeeded() })
	if a := c.asked[topic]; a != nil {
		return a
	}
	if c.asked == nil {
		c.asked = make(map[string]*attempt)
	}
	asking := c.producer.Load().asking
	a := c.begin(func() error {
		err := askForTopic(asking, topic)
		if err == nil {
			c.found.Store(topic, nil)
		}
		return err
	})
	c.asked[topic] = a
	return a
}

// refused is the attempt of a connector that is closed.
func refused() *attempt {
	a := &attempt{done: make(chan struct{}), err: ErrClosed}
	close(a.done)
	return a
}

// begin starts an attempt. The caller holds mu.
func (c *connector) begin(try func() error) *attempt {
	a := &attempt{done: make(chan struct{})}
	c.running.Add(1)
	go func() {
		defer c.running.Done()
		defer close(a.done)
		a.err = c.explain(try())
		a.again = time.Now().Add(reconnectPause)
	}()
	return a
}

// await returns nil when the attempt has ended. Where the time is over first nothing
// is known but that the cluster is slow.
func (a *attempt) await(ctx context.Context) error {
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return notConnected("", ctx.Err())
	}
	return ctx.Err()
}

// over tells whether the attempt failed long enough ago for another one. One
// that succeeded is never over.
func (a *attempt) over() bool {
	select {
	case <-a.done:
		return a.err != nil && time.Now().After(a.again)
	default:
		return false
	}
}

// succeeded tells whether the attempt has ended well.
func (a *attempt) succeeded() bool {
	select {
	case <-a.done:
		return a.err == nil
	default:
		return false
	}
}

// connect makes the producer. It asks all that can be refused with a client
// of its own first: sarama does not close the one that it makes for a producer
// when the producer cannot be made, and its breaker would turn the third
// delivery to an unknown topic into one that failed for no reason. Where data
// names the topics the producer keeps that client.
func (c *connector) connect() error {
	asking, err := sarama.NewClient(c.brokers, c.asking)
	if err != nil {
		return err
	}
	producer, err := c.newProducer(asking)
	if err != nil {
		_ = asking.Close()
		return err
	}
	if c.topic == "" {
		producer.asking = asking
	} else {
		_ = asking.Close()
	}
	c.producer.Store(producer)
	return nil
}

func (c *connector) newProducer(asking sarama.Client) (*producer, error) {
	if c.topic != "" {
		if err := askForTopic(asking, c.topic); err != nil {
			return nil, err
		}
	}
	if c.config.Producer.Idempotent {
		if err := askForProducerID(asking); err != nil {
			return nil, err
		}
	}
	return newProducer(c.brokers, c.config, marshaler{source: c.source})
}

// check asks the cluster for the topic over a connection of its own.
func (c *connector) check(ctx context.Context) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return notConnected(c.topic, ErrClosed)
	}
	c.running.Add(1)
	c.mu.Unlock()

	answer := make(chan error, 1)
	go func() {
		defer c.running.Done()
		answer <- c.ask()
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *connector) ask() error {
	if err := c.find(c.topic); err != nil {
		return notConnected(c.topic, c.explain(err))
	}
	return nil
}

// explain says more of a broker that would not talk to us. Brokers close the
// connection if they expect another protocol, without a word or, where they want
// TLS, with a few bytes of it; old ones also if they refuse the credentials. What a broker has against the mechanism, sarama
// drops: then ErrOutOfBrokers wraps nothing.
func (c *connector) explain(err error) error {
	err = c.withoutPassword(err)
	sasl, encrypted := c.config.Net.SASL.Enable, c.config.Net.TLS.Enable
	switch {
	case sasl && errors.Is(err, sarama.ErrOutOfBrokers) && errors.Unwrap(err) == nil:
		return fmt.Errorf("do the brokers offer sasl.mechanism %s? %w", c.config.Net.SASL.Mechanism, err)
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return err
	case sasl && encrypted:
		return fmt.Errorf("%w: are sasl.user, sasl.password and sasl.mechanism right? %w", ErrHungUp, err)
	case sasl:
		return fmt.Errorf("%w: are sasl.user, sasl.password and sasl.mechanism right, or does it want tls? %w", ErrHungUp, err)
	case encrypted:
		return fmt.Errorf("%w: does it want sasl, or no tls? %w", ErrHungUp, err)
	}
	return fmt.Errorf("%w: does it want sasl, or tls? %w", ErrHungUp, err)
}

// find asks for a topic over a connection of its own, or without one for
// whatever topics there are.
func (c *connector) find(topic string) error {
	client, err := sarama.NewClient(c.brokers, c.asking)
	if err != nil {
		return err
	}
	defer client.Close()
	if topic != "" {
		return askForTopic(client, topic)
	}
	err = client.RefreshMetadata()
	if errors.Is(err, sarama.ErrLeaderNotAvailable) || errors.Is(err, sarama.ErrReplicaNotAvailable) {
		return nil // of some topic or other: the cluster answers
	}
	return err
}

// askForTopic finds out whether the topic has a partition that can be written. What
// may have changed a moment later it asks again, as a topic that was just created
// has no leader yet. Other topics are asked for during its pauses.
func askForTopic(client sarama.Client, topic string) error {
	pause := client.Config().Metadata.Retry.Backoff
	deadline := time.Now().Add(client.Config().Metadata.Timeout - pause)
	for try := 1; ; try++ {
		err := client.RefreshMetadata(topic)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, sarama.ErrLeaderNotAvailable):
			// That is said as soon as one partition has none; the others may.
			if writable, _ := client.WritablePartitions(topic); len(writable) > 0 {
				return nil
			}
		case !errors.Is(err, sarama.ErrUnknownTopicOrPartition) && !errors.Is(err, sarama.ErrOutOfBrokers):
			return err
		}
		if try == triesToAsk || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pause)
	}
}

func askForProducerID(client sarama.Client) error {
	response, err := client.InitProducerID()
	if err != nil {
		return err
	}
	if response.Err != sarama.ErrNoError {
		return response.Err
	}
	return nil
}

// close waits for what is running and closes the producer; when ctx ends first
// that goes on alone, for no longer than the client's own limits.
func (c *connector) close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()

	closed := make(chan error, 1)
	go func() {
		c.running.Wait()
		if p := c.producer.Swap(nil); p != nil {
			closed <- p.close()
			return
		}
		closed <- nil
	}()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
