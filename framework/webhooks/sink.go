package webhooks

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

// Pauses are the default pauses after failed attempts, about three days in all: those of Standard Webhooks,
// with a last one of a day.
var Pauses = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour,
	14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// DefaultThreshold is how many deliveries are in flight by default: more than to a single destination, since
// some of many endpoints are always slow.
const DefaultThreshold = 256

// Sink delivers notifications to the endpoints of their tenants. Make a forwarder with it; there can be one in
// an outbox. All methods are safe for concurrent use.
type Sink struct {
	config Config
	tenant string // the metadata with the tenant
	in     sinks.Instance
	vault  *vault
	limits limits
	client atomic.Pointer[httpsink.Client] // of the last Open

	mu         sync.Mutex
	residences map[string]weak.Pointer[residence] // by the name of the database; its hooks keep one
}

var (
	_ forwarder.Resident = (*Sink)(nil)
	_ sinks.Addresser    = (*Sink)(nil)
	_ sinks.Opener       = (*Sink)(nil)
	_ sinks.Closer       = (*Sink)(nil)
)

// KindName is the name of the kind.
const KindName = "webhooks"

// Kind is the sink kind webhooks.
func Kind() sinks.Kind {
	return sinks.NewKind(KindName, "requests to the endpoints of your customers, as Standard Webhooks",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) }, answers...)
}

// answers are the answers of an endpoint, for the reference.
var answers = []sinks.Answer{
	{Says: "2xx", Means: "delivered"},
	{Says: "410", Means: "dead, and the endpoint is disabled"},
	{Says: "408, 425, 429, 502, 503, 504 with `Retry-After`", Means: "throttled until then, for at most 1 h"},
	{Says: "anything else, no connection, no answer within `timeout`", Means: "transient"},
	{Says: "the endpoint is disabled", Means: "invalid; the delivery can be recovered"},
	{Says: "the endpoint was deleted", Means: "delivered, with a receipt that says so"},
}

// New makes a sink from c with defaults for zero fields; in is as for package httpsink. It does not
// connect. Its error joins all mistakes of c.
func New(in sinks.Instance, c Config) (*Sink, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.SetDefaults()
	v, err := newVault(c.EncryptionKeys)
	if err != nil {
		return nil, err
	}
	s := &Sink{config: c, tenant: c.tenantName(), in: in, vault: v, limits: usualLimits, residences: make(map[string]weak.Pointer[residence])}
	return s, s.Open(context.Background()) // reports the mistakes of connections
}

// Endpoints returns what manages the endpoints to which the sink delivers in an outbox, with the settings of the
// sink. name is that of the sink in the forwarder; "" is the one that it was made with.
func (s *Sink) Endpoints(of Store, name string) (*Endpoints, error) {
	in := s.in
	in.Name = cmp.Or(name, in.Name)
	return NewEndpoints(of, in, s.config)
}

// Open makes the connections' pool. It does not connect.
func (s *Sink) Open(context.Context) error {
	client, err := httpsink.NewClient(s.in, s.config.ClientConfig)
	if err != nil {
		return err
	}
	if before := s.client.Swap(client); before != nil {
		before.Close()
	}
	return nil
}

// OwnTypes returns [Type].
func (s *Sink) OwnTypes() []string { return []string{Type} }

// Defaults is the function [Defaults].
func (s *Sink) Defaults(of forwarder.Sink) forwarder.Sink { return Defaults(of) }

// Defaults fills the settings of deliveries of a sink of this kind, which need not be built: it sets [Pauses] and
// DefaultThreshold, and keeps answers, which are the customers', out of the errors of deliveries.
func Defaults(of forwarder.Sink) forwarder.Sink {
	if r := of.Retry; r.MaxAge == 0 && r.MaxAttempts == 0 && r.Initial == 0 && r.Max == 0 && r.Pauses == nil {
		of.Retry.Pauses = slices.Clone(Pauses)
	}
	if of.Parallelism.Threshold == 0 && of.Parallelism.Adaptive == (forwarder.Adaptive{}) {
		of.Parallelism.Threshold = DefaultThreshold
	}
	if of.AnswerBytes == nil {
		of.AnswerBytes = new(int)
	}
	return of
}

// Reside returns the hooks for an outbox.
func (s *Sink) Reside(database string, of forwarder.Store, private *privacy.Keyring) (forwarder.Hooks, error) {
	usable, ok := of.(Store)
	if !ok {
		return forwarder.Hooks{}, fmt.Errorf("%w: a store of the type %T keeps no endpoints", forwarder.ErrConfig, of)
	}
	if source := store.SourceOf(of); source != nil {
		return forwarder.Hooks{}, fmt.Errorf("%w: webhooks are published to the log, but it is %s: move the sink to the first stage", forwarder.ErrConfig, source.Name())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.residences[database].Value()
	if r == nil || r.store != usable {
		publisher, err := outbox.New(registry.New(), usable, outbox.Config{MaxPayload: math.MaxInt32})
		if err != nil {
			return forwarder.Hooks{}, err
		}
		r = &residence{store: usable, publisher: publisher, vault: s.vault, known: make(map[string]*known), expected: make(map[string]bool)}
		maps.DeleteFunc(s.residences, func(_ string, other weak.Pointer[residence]) bool { return other.Value() == nil })
		s.residences[database] = weak.Make(r)
	}
	if private != nil {
		r.private.Store(private)
	}
	return forwarder.Hooks{Delivered: s.delivered(r), Parked: s.failed(r), Dead: s.failed(r)}, nil
}

// residenceOf returns the outbox that a delivery comes from.
func (s *Sink) residenceOf(d *notification.Delivery) *residence {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.residences[d.Metadata.Get(notification.MetadataDatabase)].Value(); r != nil {
		return r
	}
	return s.residences[""].Value()
}

// Destination returns the endpoint of a delivery, so that each has its own breaker. It is called for all deliveries
// of a page, whose endpoints are then read together.
func (s *Sink) Destination(d *notification.Delivery) string {
	if d.Type != Type {
		return ""
	}
	id := d.Metadata.Get(metadataEndpoint)
	if r := s.residenceOf(d); r != nil {
		r.expect(id)
	}
	return id
}

// Deliver makes one attempt at an endpoint. An original needs none: it is settled, and with it the
// notifications for its endpoints are published.
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	if d.Type != Type {
		return "", s.readable(d)
	}
	r := s.residenceOf(d)
	if r == nil {
		return "", sinks.Unavailable(errors.New("the sink has no outbox: make a forwarder with it"))
	}
	r.memory.forget(d)
	k, err := r.endpoint(ctx, d.Metadata.Get(metadataEndpoint))
	switch {
	case err != nil:
		return "", sinks.Unavailable(err)
	case k.deleted:
		return "endpoint deleted", nil
	case !k.Enabled():
		return "", sinks.Invalid(fmt.Errorf("%w: %s", ErrDisabled, k.DisabledReason))
	case k.noKeys != nil:
		return "", sinks.Unavailable(k.noKeys)
	}
	if k.limiter != nil {
		if wait := k.limiter.Reserve(); wait.Delay() > 0 {
			until := time.Now().Add(wait.Delay())
			wait.Cancel()
			return "", sinks.Throttled(until, errors.New("the endpoint's rate"))
		}
	}
	at := time.Now()
	sent, receipt, err := s.client.Load().Post(ctx, httpsink.Post{URL: k.URL, Header: k.Headers, ID: d.ID, Body: bytes.Clone(d.Payload), Keys: k.keys, At: at})
	if err = judged(sent, err); err == nil {
		r.succeeded(k.ID, at)
	}
	if class, _ := sinks.Classify(err); err == nil || class != sinks.ClassCancelled {
		r.memory.add(d, s.attempt(d, k, sent, at, err))
	}
	return receipt, err
}

// readable lets an original of a newer version than this program knows wait for a newer program, since conditions
// could not be evaluated.
func (s *Sink) readable(d *notification.Delivery) error {
	if s.in.Types == nil {
		return nil
	}
	if info, known := s.in.Types.Lookup(d.Type); known && d.Version > info.Version {
		return sinks.Unknown(fmt.Errorf("%s has version %d, and this program knows it up to %d", d.Type, d.Version, info.Version))
	}
	return nil
}

// judged returns the error of an attempt with its class: every failure of an endpoint is temporary, since its
// owner may mend it. Only 410 is final.
func judged(sent httpsink.Exchange, err error) error {
	class, _ := sinks.Classify(err)
	if err == nil || class == sinks.ClassCancelled || class == sinks.ClassThrottled {
		return err
	}
	if sent.Status == http.StatusGone {
		return sinks.Invalid(withoutClass(err))
	}
	return sinks.Transient(withoutClass(err))
}

// Close closes the connections at once.
func (s *Sink) Close(context.Context) error {
	s.client.Load().Close()
	return nil
}
