package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/encoding"
	"github.com/waybill-go/waybill/sinks/internal/naming"
	"github.com/waybill-go/waybill/sinks/internal/redact"
	"github.com/waybill-go/waybill/sinks/kafka/connection"
	"github.com/waybill-go/waybill/sinks/large"
)

// batchSize is the largest number of deliveries in a batch. Larger ones were no faster, and a
// batch waits for the last of its records.
const batchSize = 500

// grace is how long a call of the client may take after its context has ended. Then its
// records are given up. If the client has not returned after another grace, it is closed.
const grace = 500 * time.Millisecond

// Kind is the sink kind kafka. Its setting client may name the given libraries, besides franz-go.
func Kind(libraries ...Library) sinks.Kind {
	return sinks.NewKind("kafka", "a record in a Kafka topic for each notification",
		func(in sinks.Instance, c Config) (sinks.Sink, error) {
			for _, l := range libraries {
				if l.Name() == c.Client {
					c.Library = l
				}
			}
			return New(in, c)
		}, answers...)
}

// Sink writes deliveries to one Kafka topic, or to the topics that its template names. Its
// methods are safe for concurrent use, except that Close must be the last call.
//
// It is not a [sinks.Addresser], even if data names the topics: nearly all failures are those
// of the cluster, and would open a breaker for each topic.
type Sink struct {
	name   string
	config Config
	topic  naming.Name
	limits sinks.BatchLimits
	logger *slog.Logger
	franz  franz
	opened *connection.Opened
	open   func(life context.Context) client
	// encoder encodes payloads; nil if they are written as they are.
	encoder *encoding.Encoder
	// large stores values that are too large for a record; nil if there is no store.
	large *large.Bodies

	mu      sync.Mutex
	closed  bool
	current *session
	cluster string         // the id of the first ledger's cluster; "" before
	running sync.WaitGroup // calls, and the ends of sessions

	// exclusive is held for writing while isolate sends records that must not share a request
	// with those of another call.
	exclusive    sync.RWMutex
	warnRejected sync.Once
}

// client writes records.
type client interface {
	// produce writes publications and sets the err of each. It does not store a record
	// unless the previous one of its key in the list is stored. It may mark publications as
	// deferred, except the first of each key. It returns soon after ctx has ended or the
	// client was closed.
	produce(ctx context.Context, list []*publication)
	// close fails what is in flight. Nothing is written afterwards.
	close()
}

// session is a client and its lifetime.
type session struct {
	client
	life context.Context // ends when the client is closed; its cause is the reason
	end  context.CancelCauseFunc
}

var (
	_ sinks.Sink          = (*Sink)(nil)
	_ sinks.Batcher       = (*Sink)(nil)
	_ sinks.Collector     = (*Sink)(nil)
	_ sinks.Closer        = (*Sink)(nil)
	_ sinks.HealthChecker = (*Sink)(nil)
)

// New makes a sink from the configuration with defaults for zero fields, and validates it.
// The first delivery connects.
func New(in sinks.Instance, c Config) (*Sink, error) {
	c.SetDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	if err := c.setPositions(in.Name); err != nil {
		return nil, err
	}
	if c.Client != ClientFranz && c.Library == nil {
		return nil, fmt.Errorf("client: this program lacks %s; it must import github.com/waybill-go/waybill/sinks/kafka/%[1]s, and pass its Library to kafka.Kind or kafka.Config", c.Client)
	}
	s := &Sink{name: in.Name, config: c, logger: in.Logger}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	reach := c.connection()
	reach.ClientID, reach.Dial, reach.Logger, reach.Name = "waybill-"+in.Name, in.Dial, s.logger, in.Name
	var err error
	if s.opened, err = reach.Open(); err != nil {
		return nil, err
	}
	if s.topic, err = newTopic(c.Topic); err != nil {
		return nil, fmt.Errorf("topic: %w", err)
	}
	if s.franz, err = newFranz(c, s.opened.Options()); err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	if c.Encoding.Enabled() {
		if s.encoder, err = encoding.New(in, c.Encoding); err != nil {
			return nil, err
		}
	}
	if s.large, err = c.Large.Open(in, c.MaxMessageBytes); err != nil {
		return nil, err
	}
	s.limits = sinks.BatchLimits{Size: batchSize, Ordered: true}
	s.open = s.franz.open
	if c.Library != nil {
		s.limits, s.open = sinks.BatchLimits{Size: 1}, s.openLibrary
	}
	return s, nil
}

// Deliver stores one record, and returns its place as the receipt: "kafka orders/3@1042",
// or without the offset if the broker recognized a duplicate of a record that it had
// stored before.
//
// It returns at most about a second after ctx has ended, and leaves no record in the client;
// see "Time" in the package documentation. If it fails after ctx has ended, it returns the
// context's error, or an unavailable error if the cluster took all the time. If the record was
// stored, it returns the receipt even after ctx has ended.
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	result := s.DeliverBatch(ctx, []*notification.Delivery{d})[0]
	return result.Receipt, result.Err
}

// BatchLimits returns that batches are ordered, have at most 500 deliveries, and do not wait.
// The client watermill makes no batches.
func (s *Sink) BatchLimits() sinks.BatchLimits { return s.limits }

// DeliverBatch stores one record for each delivery, and returns what Deliver would return for
// each. ctx limits the batch as a whole. After a delivery fails, no later one of its key is
// stored.
func (s *Sink) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	results := make([]sinks.Result, len(batch))
	w, err := s.session(ctx)
	if err != nil {
		return sinks.Failed(batch, err)
	}
	defer s.running.Done()
	_, list := s.publications(ctx, batch)
	s.write(ctx, w, list)
	for i, p := range list {
		results[i].Receipt, results[i].Err = s.outcome(ctx, w, p)
	}
	return results
}

// publications makes the publications of a batch with their records.
func (s *Sink) publications(ctx context.Context, batch []*notification.Delivery) (all []publication, list []*publication) {
	all = make([]publication, len(batch))
	list = make([]*publication, len(batch))
	last := make(map[string]*publication, len(batch)) // by key
	for i, d := range batch {
		p := &all[i]
		list[i] = p
		p.envelope = d.Envelope
		if d.Key != "" {
			p.previous = last[d.Key]
			last[d.Key] = p
		}
		p.err = s.prepare(ctx, p)
	}
	s.store(ctx, list)
	return all, list
}

// CheckHealth requests the topic from the cluster over a new connection, and returns an
// unavailable error if a delivery could not be made. If brokers create requested topics, this
// creates the topic, as the first delivery would. If the topic comes from data, CheckHealth
// only checks that the cluster answers. With exactly_once it also checks the cluster's
// transactions and the positions topic, which may be missing, with encoding whether the
// schema registry answers, and with large whether the store accepts bodies.
func (s *Sink) CheckHealth(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return notConnected(s.configuredTopic(), ErrClosed)
	}
	s.running.Add(1)
	s.mu.Unlock()
	defer s.running.Done()
	if err := s.franz.checkTopicOnce(ctx, s.configuredTopic()); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return notConnected(s.configuredTopic(), s.explain(&connectError{err}))
	}
	if s.encoder != nil {
		if err := s.encoder.CheckHealth(ctx); err != nil {
			return err
		}
	}
	if err := s.large.CheckHealth(ctx); err != nil {
		return err
	}
	if s.config.ExactlyOnce {
		return s.checkLedgers(ctx)
	}
	return nil
}

// Close closes the connections after the calls in flight have ended. If ctx ends first, it
// closes them at once, which ends the calls, and returns the context's error.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	w := s.current
	s.mu.Unlock()

	ended := make(chan struct{})
	go func() {
		s.running.Wait()
		if w != nil {
			w.stop(ErrClosed)
		}
		if s.encoder != nil {
			s.encoder.Close()
		}
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	if w != nil {
		w.stop(ErrClosed)
	}
	if s.encoder != nil {
		s.encoder.Close()
	}
	return ctx.Err()
}

// session returns the current session, or opens one, and counts a call as running.
func (s *Sink) session(ctx context.Context) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, notConnected(s.configuredTopic(), ErrClosed)
	}
	if s.current == nil {
		w := new(session)
		w.life, w.end = context.WithCancelCause(context.Background())
		w.client = s.open(w.life)
		s.current = w
	}
	s.running.Add(1)
	return s.current, nil
}

// replace ends a session; the next delivery opens another.
func (s *Sink) replace(w *session, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == w {
		s.current = nil
	}
	if s.closed {
		go w.stop(why) // Close waits for the calls in flight, and stops the session, too
		return
	}
	s.running.Go(func() { w.stop(why) })
}

// stop closes the client. The first reason counts.
func (w *session) stop(why error) {
	w.end(why)
	w.close()
}

// configuredTopic returns the topic, or "" if it comes from data.
func (s *Sink) configuredTopic() string {
	if naming.IsTemplate(s.config.Topic) {
		return ""
	}
	return s.config.Topic
}

func (s *Sink) origin() origin { return origin(naming.IsTemplate(s.config.Topic)) }

// The first and the last time that the clients can write.
var firstTimestamp, lastTimestamp = time.Unix(0, math.MinInt64).UTC(), time.Unix(0, math.MaxInt64).UTC()

// prepare makes the publication's record.
func (s *Sink) prepare(ctx context.Context, p *publication) error {
	topic, err := s.topic(p.envelope)
	if err != nil {
		return sinks.Invalid(err)
	}
	return s.prepareFor(ctx, topic, p)
}

// prepareFor makes the publication's record for a topic. If it is large, store makes it fit.
func (s *Sink) prepareFor(ctx context.Context, topic string, p *publication) error {
	if at := p.envelope.OccurredOn; at.Before(firstTimestamp) || at.After(lastTimestamp) {
		return classify(s.origin(), topic, fmt.Errorf("%w: it is %s, outside of %s to %s", ErrTimestamp, at.UTC().Format(time.RFC3339), firstTimestamp.Format(time.DateOnly), lastTimestamp.Format(time.DateOnly)))
	}
	p.tombstone = s.config.isTombstone(p.envelope.Type)
	if p.tombstone && p.envelope.Key == "" {
		return classify(s.origin(), topic, fmt.Errorf("%w: the type is %s", ErrTombstone, p.envelope.Type))
	}
	if s.encoder != nil && !p.tombstone {
		var err error
		if p.encoded, err = s.encoder.Encode(ctx, topic, p.envelope); err != nil {
			return err
		}
		p.contentType = s.encoder.ContentType()
	}
	p.fill(topic, s.config.Source)
	err := s.checkSize(p)
	p.large = s.large.IsLarge(p.record.Value) || err != nil && s.large != nil && !p.tombstone
	if p.large {
		return nil
	}
	return err
}

func (s *Sink) checkSize(p *publication) error {
	if n := p.size(); n > s.config.MaxMessageBytes {
		return classify(s.origin(), p.topic, fmt.Errorf("%w: it takes %d bytes, max_message_bytes is %d", ErrTooLarge, n, s.config.MaxMessageBytes))
	}
	return nil
}

// storesAtOnce is how many bodies a batch stores in parallel.
const storesAtOnce = 8

// store stores the values of the large records in a list, and writes pointers in their place. It takes
// no longer than the configured timeout, so that the others can still be written.
func (s *Sink) store(ctx context.Context, list []*publication) {
	if s.large == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	var storing errgroup.Group
	storing.SetLimit(storesAtOnce)
	for _, p := range list {
		if p.large && p.err == nil {
			storing.Go(func() error {
				p.err = s.storeOne(ctx, p)
				return nil
			})
		}
	}
	_ = storing.Wait()
}

func (s *Sink) storeOne(ctx context.Context, p *publication) error {
	pointer, err := s.large.Put(ctx, p.envelope.ID, p.record.Value)
	if err != nil {
		return err
	}
	p.record.Headers = append(p.record.Headers, kgo.RecordHeader{Key: large.AttributeSize, Value: strconv.AppendInt(nil, int64(len(p.record.Value)), 10)})
	p.record.Value = pointer
	return s.checkSize(p)
}

// limit returns a context for a call of the client, which ends after the configured timeout or
// grace after ctx. Call done when the client has returned. If it has not returned within
// another grace, the session is replaced.
//
// The client gives up a record together with all records of its partition, and goes on with a
// new epoch of its producer id, so that a broker refuses late requests of the old epoch. But it
// cannot always do so, for example while the record shares a batch with one whose time is not
// over. It would send the record again after the engine has retried the delivery and made later
// ones of its key. The client watermill can never do so.
func (s *Sink) limit(ctx context.Context, w *session) (sending context.Context, done func()) {
	grace := cmp.Or(s.config.grace, grace)
	sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.Timeout)
	stopGrace := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	returned := make(chan struct{})
	stopWatch := context.AfterFunc(sending, func() {
		late := time.NewTimer(grace)
		defer late.Stop()
		select {
		case <-returned:
		case <-late.C:
			s.replace(w, ErrOverdue)
		}
	})
	return sending, func() {
		stopGrace()
		if !stopWatch() {
			close(returned)
		}
		cancel()
	}
}

// outcome returns the receipt or the classified error of a publication.
func (s *Sink) outcome(ctx context.Context, w *session, p *publication) (notification.Receipt, error) {
	err := p.err
	var (
		classed    *sinks.Error
		connecting *connectError
	)
	switch {
	case err == nil:
		return p.receipt(), nil
	case errors.Is(err, errPreviousFailed), errors.As(err, &classed):
		return "", err
	case errors.As(err, &connecting) && isProtocol(err), errors.Is(err, kerr.ClusterAuthorizationFailed):
		s.replace(w, err) // the client would remember that it was refused a producer id
	}
	if ended := context.Cause(w.life); errors.Is(ended, ErrOverdue) || errors.Is(ended, ErrClosed) {
		if !isProtocol(err) {
			err = fmt.Errorf("%w: %w", ended, err)
		}
	} else if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = ErrOverdue // this delivery is late, or another one that was given up with it
	}
	if ctx.Err() != nil {
		if f, _ := faultOf(err); f != clusterFault || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return "", ctx.Err()
		}
		err = fmt.Errorf("%w: %w", ctx.Err(), err) // the cluster took the time
	}
	if connecting != nil {
		return "", notConnected(p.topic, s.explain(err))
	}
	return "", classify(s.origin(), p.topic, s.explain(err))
}

// explain adds hints to the error of a broker that closes connections. It also removes the
// password and the token from err, because a broker may repeat them in its refusal.
//
// Brokers close a connection if they expect another protocol: silently, or with a few bytes of
// TLS. Old brokers also do if they refuse the credentials.
func (s *Sink) explain(err error) error {
	err = redact.New(s.opened.Secrets()...).Error(err)
	if !hungUp(err) {
		return err
	}
	credentials := "sasl.user, sasl.password and sasl.mechanism"
	if s.opened.HasTokens() {
		credentials = "the token and sasl.mechanism"
	}
	sasl, encrypted := s.opened.SASL != (connection.SASL{}), s.opened.Encrypts()
	switch {
	case sasl && encrypted:
		return fmt.Errorf("%w: are %s right? %w", ErrHungUp, credentials, err)
	case sasl:
		return fmt.Errorf("%w: are %s right, or does it want tls? %w", ErrHungUp, credentials, err)
	case encrypted:
		return fmt.Errorf("%w: does it want sasl, or no tls? %w", ErrHungUp, err)
	}
	return fmt.Errorf("%w: does it want sasl, or tls? %w", ErrHungUp, err)
}
