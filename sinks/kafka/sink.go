package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/redact"
)

// batchSize is how many deliveries a batch has at most. Larger ones were no faster, and a
// batch waits for the last of its records.
const batchSize = 500

// grace is how long what is in flight may still take when its context has ended; then
// its records are given up, and after as long again the client with all that it holds.
const grace = 500 * time.Millisecond

// Kind is the sink kind kafka.
func Kind() sinks.Kind {
	return sinks.NewKind("kafka", "Writes each notification as a record to a Kafka topic.",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) }, answers...)
}

// Sink writes deliveries to Kafka, to one topic or to those that its template
// names. Its methods are safe for concurrent use, except that Close must be the last call.
//
// It is no [sinks.Addresser], also where data names the topics: nearly all that can go
// wrong is the cluster's, and would open a breaker for each topic.
type Sink struct {
	name   string
	config Config
	topic  topic
	limits sinks.BatchLimits
	logger *slog.Logger
	franz  franz
	token  *rememberedToken // nil without one
	open   func(life context.Context) client

	mu      sync.Mutex
	closed  bool
	current *session
	cluster string         // of the first ledger; "" before
	running sync.WaitGroup // deliveries, and the ends of sessions

	// alone is held exclusively by what must not share a request.
	alone        sync.RWMutex
	warnRejected sync.Once
}

// client writes records.
type client interface {
	// produce writes publications and sets the err of each. In a list with several of a
	// key, no record is stored of which an earlier one of its key is not: it may hold some
	// back, which it was too early to write, and has to write the first of each key. It
	// returns soon after ctx has ended, or the client was closed.
	produce(ctx context.Context, list []*publication)
	// close fails what is in flight. Nothing is written afterwards.
	close()
}

// session is one life of a client.
type session struct {
	client
	life context.Context // ends with the client, with the reason as its cause
	end  context.CancelCauseFunc
}

var (
	_ sinks.Sink          = (*Sink)(nil)
	_ sinks.Batcher       = (*Sink)(nil)
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
	if c.ClientID == "" {
		c.ClientID = "waybill-" + in.Name
	}
	s := &Sink{name: in.Name, config: c, logger: in.Logger}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	connection := c.connection()
	connection.Dial, connection.Logger, connection.Name = in.Dial, s.logger, in.Name
	reached, err := connection.reach()
	if err != nil {
		return nil, err
	}
	s.token = reached.token
	if s.topic, err = newTopic(c.Topic); err != nil {
		return nil, fmt.Errorf("topic: %w", err)
	}
	if s.franz, err = newFranz(c, connection.options(reached)); err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	s.limits = sinks.BatchLimits{Size: batchSize, Ordered: true}
	s.open = s.franz.open
	if c.Client == ClientWatermill {
		w, err := newWatermill(c, reached, s.franz)
		if err != nil {
			return nil, fmt.Errorf("kafka client: %w", err)
		}
		s.limits, s.open = sinks.BatchLimits{Size: 1}, w.open
	}
	return s, nil
}

// Deliver stores one record, and returns its place as the receipt: "kafka orders/3@1042",
// or without the offset if the broker recognized a duplicate of a record that it had
// stored before.
//
// It returns about a second after ctx ended, at the latest, and leaves nothing behind in
// the client; see "Time" in the package's documentation. A failure after ctx ended is
// reported as the context's error, unless the time passed because of the cluster, a success as the
// success that it is.
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	result := s.DeliverBatch(ctx, []*notification.Delivery{d})[0]
	return result.Receipt, result.Err
}

// BatchLimits says that batches are ordered and wait for nothing. With the client
// watermill there are none.
func (s *Sink) BatchLimits() sinks.BatchLimits { return s.limits }

// DeliverBatch stores one record for each delivery, and says of each what
// Deliver would. What is said there of ctx and the time holds for the batch as a
// whole. Once a delivery fails, no later one of its key is stored.
func (s *Sink) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	results := make([]sinks.Result, len(batch))
	w, err := s.session(ctx)
	if err != nil {
		return sinks.Failed(batch, err)
	}
	defer s.running.Done()
	_, list := s.publications(batch)
	s.write(ctx, w, list)
	for i, p := range list {
		results[i].Receipt, results[i].Err = s.outcome(ctx, w, p)
	}
	return results
}

// publications are those of a batch, with their records.
func (s *Sink) publications(batch []*notification.Delivery) (all []publication, list []*publication) {
	all = make([]publication, len(batch))
	list = make([]*publication, len(batch))
	heads := make(map[string]*publication, len(batch))
	for i, d := range batch {
		p := &all[i]
		list[i] = p
		p.envelope = d.Envelope
		if d.Key != "" {
			p.behind = heads[d.Key]
			heads[d.Key] = p
		}
		p.err = s.prepare(p)
	}
	return all, list
}

// CheckHealth asks the cluster for the topic, over a connection of its own, and
// returns the classed error that a delivery would meet. Where brokers create
// topics that are asked for, this creates it just as the first delivery would.
// Of a topic from data it only finds out whether the cluster answers. With exactly_once it
// also says what would keep a lane's ledger from being opened, but for a positions topic that is missing.
func (s *Sink) CheckHealth(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return notConnected(s.configuredTopic(), ErrClosed)
	}
	s.running.Add(1)
	s.mu.Unlock()
	defer s.running.Done()
	if err := s.franz.askOnce(ctx, s.configuredTopic()); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return notConnected(s.configuredTopic(), s.explain(&connectError{err}))
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
	return ctx.Err()
}

// session returns the client that there is, or opens one, and counts a delivery as
// running.
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
		go w.stop(why) // Close waits for what is in flight, or stops it as well
		return
	}
	s.running.Go(func() { w.stop(why) })
}

// stop ends the client; the first reason counts.
func (w *session) stop(why error) {
	w.end(why)
	w.close()
}

// configuredTopic is "" if each notification names its own.
func (s *Sink) configuredTopic() string {
	if isTemplate(s.config.Topic) {
		return ""
	}
	return s.config.Topic
}

func (s *Sink) origin() origin { return origin(isTemplate(s.config.Topic)) }

// prepare makes the publication's record.
func (s *Sink) prepare(p *publication) error {
	topic, err := s.topic(p.envelope)
	if err != nil {
		return sinks.Permanent(err)
	}
	p.fill(topic, s.config.CloudEvents.Source)
	if n := p.size(); n > s.config.MaxMessageBytes {
		return classify(s.origin(), topic, fmt.Errorf("%w: it takes %d bytes, max_message_bytes is %d", ErrTooLarge, n, s.config.MaxMessageBytes))
	}
	return nil
}

// limit bounds what the client may take: the configured timeout, and a moment more than
// ctx. If it is not back a moment after that, the client is replaced. The caller calls
// back when it is.
//
// The client cannot give up single records whose fate is unknown, and would send them
// again when the engine has tried the delivery again, and gone on to later ones of its
// key.
func (s *Sink) limit(ctx context.Context, w *session) (sending context.Context, back func()) {
	sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.Timeout)
	noGrace := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	isBack := make(chan struct{})
	inTime := context.AfterFunc(sending, func() {
		late := time.NewTimer(grace)
		defer late.Stop()
		select {
		case <-isBack:
		case <-late.C:
			s.replace(w, ErrOverdue)
		}
	})
	return sending, func() {
		noGrace()
		if !inTime() {
			close(isBack)
		}
		cancel()
	}
}

// outcome is what came of a publication.
func (s *Sink) outcome(ctx context.Context, w *session, p *publication) (notification.Receipt, error) {
	err := p.err
	var (
		classed    *sinks.Error
		connecting *connectError
	)
	switch {
	case err == nil:
		return p.receipt(), nil
	case errors.Is(err, errBehind), errors.As(err, &classed):
		return "", err
	case errors.As(err, &connecting) && isProtocol(err), errors.Is(err, kerr.ClusterAuthorizationFailed):
		s.replace(w, err) // the client remembers that it was refused a producer id
	}
	if ended := context.Cause(w.life); errors.Is(ended, ErrOverdue) || errors.Is(ended, ErrClosed) {
		if !isProtocol(err) {
			err = fmt.Errorf("%w: %w", ended, err)
		}
	} else if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = ErrOverdue // of this delivery, or of another one that it was given up with
	}
	if ctx.Err() != nil {
		if f, _ := faultOf(err); f != ofCluster || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return "", ctx.Err()
		}
		err = fmt.Errorf("%w: %w", ctx.Err(), err) // it took so long because of the cluster
	}
	if connecting != nil {
		return "", notConnected(p.topic, s.explain(err))
	}
	return "", classify(s.origin(), p.topic, s.explain(err))
}

// explain says more of a broker that would not talk to us, and repeats neither the password nor
// the token: brokers choose the words of a refusal.
//
// Brokers close the connection if they expect another protocol, without a word or, where they want
// TLS, with a few bytes of it; old ones also if they refuse the credentials.
func (s *Sink) explain(err error) error {
	secrets := []string{s.config.SASL.Password}
	if s.token != nil {
		secrets = append(secrets, s.token.secret())
	}
	err = redact.New(secrets...).Error(err)
	if !hungUp(err) {
		return err
	}
	credentials := "sasl.user, sasl.password and sasl.mechanism"
	if s.token != nil {
		credentials = "the token and sasl.mechanism"
	}
	sasl, encrypted := s.config.SASL != (SASL{}) || s.token != nil, s.config.TLS.Enabled || s.config.TLSConfig != nil
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
