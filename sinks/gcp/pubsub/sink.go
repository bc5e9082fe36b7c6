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
	// inFlight is how many requests of a batch run in parallel. A connection carries about a hundred.
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
	_ sinks.Closer        = (*Sink)(nil)
	_ sinks.HealthChecker = (*Sink)(nil)
)

// New makes a sink from a configuration, and validates it. The first delivery connects. Call SetDefaults before you set
// fields, because a zero Timeout is a mistake.
func New(in sinks.Instance, c Config) (_ *Sink, err error) {
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

// Deliver publishes one message. The receipt has the topic and the message's id: "pubsub orders 1357924680".
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	result := s.DeliverBatch(ctx, []*notification.Delivery{d})[0]
	return result.Receipt, result.Err
}

// BatchLimits returns that batches have at most 500 deliveries and do not wait. They are ordered, unless ordered is
// false and data names the topics.
func (s *Sink) BatchLimits() sinks.BatchLimits {
	return sinks.BatchLimits{Size: batchSize, Ordered: s.config.Ordered || !s.fromData()}
}

// DeliverBatch publishes a message for each delivery, and returns what Deliver would return for each. After a delivery
// has failed, no later one of its key is sent.
func (s *Sink) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	c, err := s.session(ctx)
	if err != nil {
		return sinks.Failed(batch, err)
	}
	defer c.calls.Done()
	list := make([]*publication, len(batch))
	last := make(map[string]*publication, len(batch)) // by key
	for i, d := range batch {
		list[i] = &publication{envelope: d.Envelope, previous: last[d.Key]}
		if d.Key != "" {
			last[d.Key] = list[i]
		}
	}
	parallel(list, func(p *publication) {
		if p.named, p.topic, p.err = s.topicOf(c, p.envelope); p.err == nil {
			p.err = s.prepare(ctx, p)
		}
	})
	parallel(s.groups(list), func(group []*publication) {
		for len(group) > 0 {
			n := fitting(group)
			s.publish(ctx, c, group[:n])
			group = group[n:]
		}
	})
	results := make([]sinks.Result, len(batch))
	for i, p := range list {
		if results[i].Err = p.err; p.err == nil {
			results[i].Receipt = notification.Receipt("pubsub " + p.named + " " + p.id)
		}
	}
	return results
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

// topicOf returns the topic of a notification as it is named, and its full name.
func (s *Sink) topicOf(c *session, e *notification.Envelope) (named, full string, err error) {
	named, err = s.topic(e)
	switch {
	case err != nil:
		return "", "", sinks.Invalid(fmt.Errorf("topic: %w", err))
	case strings.HasPrefix(named, "projects/"):
		return named, named, nil
	case c.project == "":
		return "", "", sinks.Unavailable(ErrProject)
	}
	return named, "projects/" + c.project + "/topics/" + named, nil
}

// groups returns the publications by ordering key, or by topic if they have none.
func (s *Sink) groups(list []*publication) (groups [][]*publication) {
	type common struct{ key, topic string }
	at := make(map[common]int, len(list))
	for _, p := range list {
		its := common{topic: p.topic}
		if s.config.Ordered && p.envelope.Key != "" {
			its = common{key: p.envelope.Key} // in order also if it has several topics
		}
		i, known := at[its]
		if !known {
			i = len(groups)
			at[its] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], p)
	}
	return groups
}

// fitting returns how many of the first publications can be in one request; at least one.
func fitting(list []*publication) int {
	size := len(list[0].topic) + 8
	for i, p := range list {
		size += p.size
		if i > 0 && (i == maxMessages || size > maxRequest || p.topic != list[0].topic) {
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
	if ctx.Err() != nil {
		return late(ctx)
	}
	request := &pubsubpb.PublishRequest{Topic: list[0].topic, Messages: make([]*pubsubpb.PubsubMessage, len(list))}
	for i, p := range list {
		request.Messages[i] = p.message
	}
	return s.call(ctx, c, list[0].named, func(ctx context.Context) error {
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
	named, full := "waybill-check", "projects/"+c.project+"/topics/waybill-check" // need not be there
	if !s.fromData() {
		var err error
		if named, full, err = s.topicOf(c, nil); err != nil {
			return err
		}
	}
	err := s.call(ctx, c, named, func(ctx context.Context) error {
		granted, err := c.client.TestIamPermissions(ctx, &iampb.TestIamPermissionsRequest{Resource: full, Permissions: []string{checked}})
		switch {
		case status.Code(err) == codes.Unimplemented:
			_, err = c.client.GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: full})
		case err == nil && !slices.Contains(granted.GetPermissions(), checked):
			err = status.Error(codes.PermissionDenied, ErrRights.Error())
		}
		return err
	})
	if class, _ := sinks.Classify(err); s.fromData() && (class == sinks.ClassTransient || class == sinks.ClassPermanent) {
		return nil // the service answers
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
