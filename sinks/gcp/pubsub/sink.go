// Package pubsub publishes notifications to a topic of Google Cloud Pub/Sub.
//
// A delivery counts as made when the service has stored the message and returned its id. The message has the payload
// or a JSON document as its body, and attributes with the id, the type, the version, the time and the key of the
// notification.
//
// Order: a request has messages of one ordering key only, so a batch is sent as one request for each key, and one for
// all notifications without a key. Requests of different keys run in parallel. Those of a key follow one another, and
// end at the first failure. If the service refuses a request with several messages, its halves are sent, until it is
// clear which message it refuses.
//
// If data names the topic, a topic that does not exist or refuses access makes only its own notifications wait: the sink
// is a [sinks.Addresser].
//
// The client library makes no retries, since the engine knows the order of the keys and what else waits.
package pubsub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/encoding"
	"github.com/waybill-go/waybill/sinks/internal/naming"
	"github.com/waybill-go/waybill/sinks/large"
)

const (
	// batchSize is the largest number of deliveries in a batch. It is less than a request can have.
	batchSize = 500
	// inFlight is how many requests of a batch to a topic run in parallel. A connection carries about a hundred.
	inFlight = 64
)

// Kind is the sink kind pubsub.
func Kind() sinks.Kind {
	return sinks.NewKind("pubsub", "a message to a topic of Google Cloud Pub/Sub for each notification",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) }, answers...)
}

// Sink publishes to one topic, or to those that its template names. Its methods are safe for concurrent use, except
// that Close must be the last call.
type Sink struct {
	in      sinks.Instance
	config  Config
	topic   naming.Name
	encoder *encoding.Encoder // nil if payloads are sent as they are
	bodies  *large.Bodies     // nil if large ones are not stored

	life context.Context // ends when Close gives up waiting
	end  context.CancelFunc

	mu      sync.Mutex
	closed  bool
	current *session
	running sync.WaitGroup // sessions that begin or end
}

var (
	_ sinks.Sink          = (*Sink)(nil)
	_ sinks.Batcher       = (*Sink)(nil)
	_ sinks.Addresser     = (*Sink)(nil)
	_ sinks.Closer        = (*Sink)(nil)
	_ sinks.HealthChecker = (*Sink)(nil)
)

// New makes a sink from the configuration with defaults for zero fields, and validates it. The first delivery connects.
func New(in sinks.Instance, c Config) (_ *Sink, err error) {
	c.SetDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &Sink{in: in, config: c}
	if s.topic, err = naming.New(c.Topic, checkTopic); err != nil {
		return nil, fmt.Errorf("topic: %w", err)
	}
	if s.bodies, err = c.Large.Open(in, maxBody); err != nil {
		return nil, err
	}
	if c.Encoding.Enabled() {
		if s.encoder, err = encoding.New(in, c.Encoding); err != nil {
			return nil, err
		}
	}
	s.life, s.end = context.WithCancel(context.Background())
	return s, nil
}

// fromData reports whether data names the topics.
func (s *Sink) fromData() bool { return naming.IsTemplate(s.config.Topic) }

// Destination returns the topic if it comes from data, and otherwise "".
func (s *Sink) Destination(d *notification.Delivery) string {
	return naming.Destination(s.config.Topic, s.topic, d.Envelope)
}

// Deliver publishes one message. The receipt has the topic and the message's id: "pubsub orders 1357924680".
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	result := s.DeliverBatch(ctx, []*notification.Delivery{d})[0]
	return result.Receipt, result.Err
}

// BatchLimits returns that batches have at most 500 deliveries and do not wait. They are ordered, except with unordered if
// data names the topics.
func (s *Sink) BatchLimits() sinks.BatchLimits {
	return sinks.BatchLimits{Size: batchSize, Ordered: !s.config.Unordered || !s.fromData()}
}

// DeliverBatch publishes a message for each delivery, and returns what Deliver would return for each. After a delivery
// has failed, no later one of its key is sent, if batches are ordered.
//
// Storing the large bodies, and asking a registry, takes no longer than the timeout as a whole. All topics are sent to at
// the same time, and one that does not answer in time gets no further request of the batch. So what hangs leaves the
// rest of the batch its time.
func (s *Sink) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	c, err := s.session(ctx)
	if err != nil {
		return sinks.Failed(batch, err)
	}
	defer c.calls.Done()
	list := make([]*publication, len(batch))
	topics := make(map[string]*topic, 1)
	last := make(map[string]*publication, len(batch)) // by key
	ordered := s.BatchLimits().Ordered
	for i, d := range batch {
		p := &publication{envelope: d.Envelope, previous: last[d.Key]}
		p.to, p.err = s.topicOf(c, topics, d.Envelope)
		if d.Key != "" && ordered {
			last[d.Key] = p
		}
		list[i] = p
	}
	s.prepareAll(ctx, list)
	var sending sync.WaitGroup
	for _, groups := range s.groups(list) {
		sending.Go(func() {
			parallel(groups, func(group []*publication) {
				for len(group) > 0 {
					n := fitting(group)
					s.publish(ctx, c, group[:n])
					group = group[n:]
				}
			})
		})
	}
	sending.Wait()
	results := make([]sinks.Result, len(batch))
	for i, p := range list {
		if results[i].Err = p.err; p.err == nil {
			results[i].Receipt = notification.Receipt("pubsub " + p.to.named + " " + p.id)
		}
	}
	return results
}

// prepareAll makes the messages of a batch within the timeout.
func (s *Sink) prepareAll(ctx context.Context, list []*publication) {
	limited, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	parallel(list, func(p *publication) {
		if p.err == nil {
			p.err = s.prepare(limited, p)
		}
	})
}

// parallel calls a function for each element, with a limit.
func parallel[T any](list []T, do func(T)) {
	if len(list) == 1 {
		do(list[0])
		return
	}
	var calls errgroup.Group
	calls.SetLimit(inFlight)
	for _, element := range list {
		calls.Go(func() error {
			do(element)
			return nil
		})
	}
	_ = calls.Wait() // the functions return nil
}

// topicOf returns the topic of a notification: that of the map, to which it adds a new one.
func (s *Sink) topicOf(c *session, topics map[string]*topic, e *notification.Envelope) (*topic, error) {
	named, err := s.topic(e)
	if err != nil {
		return nil, sinks.Invalid(fmt.Errorf("topic: %w", err))
	}
	if known := topics[named]; known != nil {
		return known, nil
	}
	its := &topic{named: named, full: named}
	if !strings.HasPrefix(named, "projects/") {
		if c.project == "" {
			return nil, sinks.Unavailable(ErrProject)
		}
		its.full = "projects/" + c.project + "/topics/" + named
	}
	topics[named] = its
	return its, nil
}

// groups returns the publications that have not failed by topic, and in it by ordering key. A key with several topics is
// a group of its first one, so that it is in order.
func (s *Sink) groups(list []*publication) map[*topic][][]*publication {
	type common struct {
		key string
		to  *topic
	}
	first := make(map[string]*topic) // by ordering key
	at := make(map[common]int, len(list))
	all := make(map[*topic][][]*publication)
	for _, p := range list {
		if !p.canGo() {
			continue
		}
		its := common{to: p.to}
		if key := p.message.OrderingKey; key != "" {
			if first[key] == nil {
				first[key] = p.to
			}
			its = common{key, first[key]}
		}
		i, known := at[its]
		if !known {
			i = len(all[its.to])
			at[its] = i
			all[its.to] = append(all[its.to], nil)
		}
		all[its.to][i] = append(all[its.to][i], p)
	}
	return all
}

// fitting returns how many of the first publications can be in one request; at least one.
func fitting(list []*publication) int {
	size := len(list[0].to.full) + 8
	for i, p := range list {
		size += p.size
		if i > 0 && (i == maxMessages || size > maxRequest || p.to != list[0].to) {
			return i
		}
	}
	return len(list)
}

// publish sends one request for publications of one topic and ordering key, and sets their errors and ids. It leaves out
// those that have failed, and those behind them. If the service refuses the request as invalid, it sends halves.
func (s *Sink) publish(ctx context.Context, c *session, list []*publication) {
	list = slices.DeleteFunc(slices.Clone(list), func(p *publication) bool { return !p.canGo() })
	if len(list) == 0 {
		return
	}
	err := s.send(ctx, c, list)
	if errors.Is(err, ErrOverdue) {
		list[0].to.silent.Store(true)
	}
	if class, _ := sinks.Classify(err); err != nil && class == sinks.ClassPermanent && len(list) > 1 {
		s.publish(ctx, c, list[:len(list)/2])
		s.publish(ctx, c, list[len(list)/2:])
		return
	}
	for _, p := range list {
		p.err = err
	}
}

func (s *Sink) send(ctx context.Context, c *session, list []*publication) error {
	switch to := list[0].to; {
	case ctx.Err() != nil:
		return late(ctx)
	case to.silent.Load():
		return sinks.Unavailable(fmt.Errorf("topic %s: %w", to.named, errSilent))
	}
	request := &pubsubpb.PublishRequest{Topic: list[0].to.full, Messages: make([]*pubsubpb.PubsubMessage, len(list))}
	for i, p := range list {
		request.Messages[i] = p.message
	}
	return s.call(ctx, c, list[0].to.named, func(ctx context.Context) error {
		answer, err := c.client.Publish(ctx, request)
		if err == nil && len(answer.GetMessageIds()) != len(list) {
			err = status.Errorf(codes.Internal, "%d messages got %d ids", len(list), len(answer.GetMessageIds()))
		}
		if err == nil {
			for i, id := range answer.GetMessageIds() {
				list[i].id = id
			}
		}
		return err
	})
}

// call makes a call of the service, which ends with ctx, with the timeout, and with Close. Its error has a class. New
// connections are made for later calls if the service refuses the credentials or does not answer.
func (s *Sink) call(ctx context.Context, c *session, topic string, do func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	err := do(limited)
	if err == nil {
		return nil
	}
	if code := status.Code(err); code == codes.Unauthenticated || errors.Is(limited.Err(), context.DeadlineExceeded) {
		s.replace(c)
	}
	return s.failure(ctx, topic, err)
}

// checked is the permission that CheckHealth asks for.
const checked = "pubsub.topics.publish"

// CheckHealth asks the service whether the credentials have the right to publish, which needs no other right. An
// emulator does not know, and is asked for the topic. If data names the topic, CheckHealth only checks that the service
// answers. It also checks the store of large bodies and the schema registry.
func (s *Sink) CheckHealth(ctx context.Context) error {
	c, err := s.session(ctx)
	if err != nil {
		return err
	}
	defer c.calls.Done()
	if err := s.checkTopic(ctx, c); err != nil {
		return err
	}
	if s.encoder != nil {
		if err := s.encoder.CheckHealth(ctx); err != nil {
			return err
		}
	}
	return s.bodies.CheckHealth(ctx)
}

func (s *Sink) checkTopic(ctx context.Context, c *session) error {
	at := &topic{named: "waybill-check", full: "projects/" + c.project + "/topics/waybill-check"} // need not be there
	if !s.fromData() {
		var err error
		if at, err = s.topicOf(c, map[string]*topic{}, nil); err != nil {
			return err
		}
	}
	granted := true
	err := s.call(ctx, c, at.named, func(ctx context.Context) error {
		its, err := c.client.TestIamPermissions(ctx, &iampb.TestIamPermissionsRequest{Resource: at.full, Permissions: []string{checked}})
		if status.Code(err) == codes.Unimplemented {
			_, err = c.client.GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: at.full})
			return err
		}
		granted = slices.Contains(its.GetPermissions(), checked)
		return err
	})
	var answer *Error
	switch {
	case s.fromData() && errors.As(err, &answer) && slices.Contains([]codes.Code{codes.NotFound, codes.PermissionDenied, codes.InvalidArgument}, answer.Code):
		return nil // the service answers
	case err == nil && !granted && !s.fromData():
		return sinks.Unavailable(fmt.Errorf("topic %s: %w", at.named, ErrRights))
	}
	return err
}

// Close closes the connections after the calls in flight have ended. If ctx ends first, it ends the calls, and returns
// the context's error.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	c := s.current
	s.current = nil
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if c != nil {
			c.close()
		}
		s.running.Wait()
		if s.encoder != nil {
			s.encoder.Close()
		}
		s.end()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		s.end()
		return ctx.Err()
	}
}
