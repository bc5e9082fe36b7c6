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

// grace is how long what is in flight may still take when its context has ended.
const grace = 500 * time.Millisecond

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
	network network // whose life is that of clients that only ask
	source  string  // of events; "" for the format json

	writing    context.Context // ends with the connections of all producers
	endAsking  context.CancelCauseFunc
	endWriting context.CancelCauseFunc

	producer atomic.Pointer[producer]
	found    sync.Map // topics from data that exist, by name

	mu      sync.Mutex
	last    *attempt            // running, or failed not long ago
	asked   map[string]*attempt // the same for each topic from data
	closed  bool
	running sync.WaitGroup // goroutines of attempts and of health checks
}

func newConnector(brokers []string, config *sarama.Config, n network) *connector {
	c := &connector{brokers: brokers, config: config, network: n}
	c.network.life, c.endAsking = context.WithCancelCause(context.Background())
	c.writing, c.endWriting = context.WithCancelCause(context.Background())
	return c
}

// attempt is one try to connect, or to find a topic. The other fields are set before done is closed.
type attempt struct {
	done     chan struct{}
	err      error
	again    time.Time // no other attempt before then
	producer *producer // of one to connect
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
	return a.producer, nil
}

// limit has the producer replaced if what is in flight is not back a moment after ctx
// has ended. The caller calls back when it is.
//
// Nothing else ends what sarama was given: left alone it would be sent, or sent again,
// when the engine has tried the delivery again, and gone on to later ones of its key. So
// the producer's connections are cut, which fails all that it holds, and makes it write
// nothing more.
func (c *connector) limit(ctx context.Context, w *producer) (back func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	isBack := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		late := time.NewTimer(grace)
		defer late.Stop()
		select {
		case <-isBack:
		case <-late.C:
			c.replace(w)
		}
	})
	return func() {
		if !stop() {
			close(isBack)
		}
	}
}

// replace ends a producer; the next delivery connects again.
func (c *connector) replace(w *producer) {
	w.cut(ErrOverdue)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || !c.producer.CompareAndSwap(w, nil) {
		return
	}
	c.last = nil
	c.running.Go(func() { _ = w.close() })
}

// awaitTopic returns when a topic from data is found. It is looked for ahead of
// the first record, because sarama's breaker would make of the third record to
// a topic that does not exist a reason for all others to wait.
func (c *connector) awaitTopic(ctx context.Context, w *producer, topic string) error {
	a := c.search(w, topic)
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
// producer cannot find any more is looked for again: at once where sarama's breaker, which
// does not say why it opened, hides whether it is there.
func (c *connector) failed(ctx context.Context, w *producer, topic string, err error) error {
	open := errors.Is(err, breaker.ErrBreakerOpen)
	if f, _ := faultOf(err); f == ofTopic || open {
		c.found.Delete(topic)
	}
	if open && ctx.Err() == nil {
		if gone := c.awaitTopic(ctx, w, topic); gone != nil {
			return gone
		}
	}
	return classify(c.origin(), topic, c.withoutPassword(err))
}

// withoutPassword is an error whose text has neither the password nor the token: brokers
// choose the words of a refusal.
func (c *connector) withoutPassword(err error) error {
	secrets := []string{c.config.Net.SASL.Password}
	if token, ok := c.config.Net.SASL.TokenProvider.(*rememberedToken); ok {
		secrets = append(secrets, token.secret())
	}
	return redact.New(secrets...).Error(err)
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
func (c *connector) search(w *producer, topic string) *attempt {
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
	a := c.begin(func(*attempt) error {
		err := askForTopic(c.network.life, w.asking, topic)
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
func (c *connector) begin(try func(a *attempt) error) *attempt {
	a := &attempt{done: make(chan struct{})}
	c.running.Go(func() {
		defer close(a.done)
		a.err = c.explain(try(a))
		a.again = time.Now().Add(reconnectPause)
	})
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
func (c *connector) connect(a *attempt) error {
	asking, err := sarama.NewClient(c.brokers, c.asking())
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
	a.producer = producer
	c.producer.Store(producer)
	return nil
}

// asking is the configuration of a client that only asks.
func (c *connector) asking() *sarama.Config { return askingConfig(c.network.over(c.config)) }

func (c *connector) newProducer(asking sarama.Client) (*producer, error) {
	if c.topic != "" {
		if err := askForTopic(c.network.life, asking, c.topic); err != nil {
			return nil, err
		}
	}
	if c.config.Producer.Idempotent {
		if err := askForProducerID(asking); err != nil {
			return nil, err
		}
	}
	return newProducer(c.writing, c.network, c.brokers, c.config, marshaler{source: c.source})
}

// check asks the cluster for the topic over a connection of its own.
func (c *connector) check(ctx context.Context) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return notConnected(c.topic, ErrClosed)
	}
	answer := make(chan error, 1)
	c.running.Go(func() { answer <- c.ask() })
	c.mu.Unlock()
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
	sasl, encrypted := c.config.Net.SASL.Enable, c.network.encrypt != nil
	switch {
	case sasl && errors.Is(err, sarama.ErrOutOfBrokers) && errors.Unwrap(err) == nil:
		return fmt.Errorf("do the brokers offer sasl.mechanism %s? %w", c.config.Net.SASL.Mechanism, err)
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return err
	case sasl && encrypted:
		return fmt.Errorf("%w: are %s right? %w", ErrHungUp, c.credentials(), err)
	case sasl:
		return fmt.Errorf("%w: are %s right, or does it want tls? %w", ErrHungUp, c.credentials(), err)
	case encrypted:
		return fmt.Errorf("%w: does it want sasl, or no tls? %w", ErrHungUp, err)
	}
	return fmt.Errorf("%w: does it want sasl, or tls? %w", ErrHungUp, err)
}

// credentials are the keys of what lets the client in.
func (c *connector) credentials() string {
	if c.config.Net.SASL.TokenProvider != nil {
		return "the token and sasl.mechanism"
	}
	return "sasl.user, sasl.password and sasl.mechanism"
}

// find asks for a topic over a connection of its own, or without one for
// whatever topics there are.
func (c *connector) find(topic string) error {
	client, err := sarama.NewClient(c.brokers, c.asking())
	if err != nil {
		return err
	}
	defer client.Close()
	if topic != "" {
		return askForTopic(c.network.life, client, topic)
	}
	err = client.RefreshMetadata()
	if errors.Is(err, sarama.ErrLeaderNotAvailable) || errors.Is(err, sarama.ErrReplicaNotAvailable) {
		return nil // of some topic or other: the cluster answers
	}
	return err
}

// askForTopic finds out whether the topic has a partition that can be written. What
// may have changed a moment later it asks again, as a topic that was just created
// has no leader yet. Other topics are asked for during its pauses, which end with life.
func askForTopic(life context.Context, client sarama.Client, topic string) error {
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
		select {
		case <-life.Done():
			return context.Cause(life)
		case <-time.After(pause):
		}
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

// close ends what asks, and closes the producer when what is in flight has ended; when
// ctx ends first, the connections are cut, and nothing more is written.
func (c *connector) close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.endAsking(ErrClosed)

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
		c.endWriting(ErrClosed)
		return ctx.Err()
	}
}
