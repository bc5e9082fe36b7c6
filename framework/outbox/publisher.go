// Package outbox is the writing side: it appends notifications to the log inside
// the application's own database transaction, so that both are committed or
// neither is.
//
//	err := publisher.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
//		if _, err := tx.ExecContext(ctx, `INSERT INTO orders …`); err != nil {
//			return err
//		}
//		return publisher.Publish(ctx, tx, OrderPlaced{ID: "o-17"})
//	})
package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/tracing"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/serializer"
)

// DefaultMaxPayload is the limit of a payload in bytes where none is set: 1 MiB.
const DefaultMaxPayload = 1 << 20

// Config holds what a Publisher can do without.
type Config struct {
	// MaxPayload is the limit of one payload in bytes; default DefaultMaxPayload.
	MaxPayload int
	// Wake is called after each commit of RunInTx that published something, such
	// as a forwarder's Wake, so that its deliveries begin at once. It must not block.
	Wake func()
	// Metadata gives what every notification of a Publish call gets from the call's
	// context, such as tenant and user, unless its options name it too. Empty
	// values are left out. In a handler of a notification, [notification.Cause] has what
	// that came with. It must be safe for parallel calls. Append does not call it.
	Metadata func(ctx context.Context) map[string]string
	// TracerProvider, if set, makes a span of OpenTelemetry for each call of Publish, such as
	// otel.GetTracerProvider(); see package tracing. With or without one, the trace context
	// of the call's context goes into the metadata of notifications that name no
	// traceparent.
	TracerProvider trace.TracerProvider
	// Published, if set, is called with what a call of Publish or Append has written, before the
	// commit: the transaction may still roll back. It must be quick, safe for parallel
	// calls, and neither keep nor change the envelopes. package observe counts with it.
	Published func([]notification.Envelope)
	// Events says what becomes of domain events that are published or recorded.
	Events []Mapping
	// Announcer announces these commits to forwarders in other processes; default
	// the log, if it is a store.Announcer. Silent announces nothing.
	Announcer store.Announcer
}

// Publisher appends notifications to one log. It is safe for concurrent use.
type Publisher struct {
	types     *registry.Registry
	log       Log
	insertSQL insertSQL
	config    Config
	events    *mappings
	tracing   *tracing.Publishing // nil: no spans
	announcer announcer
	refused   error         // nil, or why nothing can be published
	appends   atomic.Uint64 // that were made, in any transaction
}

// New returns a publisher of the registered types. A type whose serializer makes
// no JSON is refused with ErrBinaryPayload where the log's payload column is
// JSON; types that are registered later are checked when they are published.
func New(types *registry.Registry, log Log, c Config) (*Publisher, error) {
	if types == nil || log == nil {
		return nil, errors.New("outbox: a publisher needs a registry and a log")
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = DefaultMaxPayload
	}
	if c.MaxPayload < 0 {
		return nil, fmt.Errorf("outbox: the payload limit is %d bytes: use more than 0", c.MaxPayload)
	}
	if c.Announcer == nil {
		c.Announcer, _ = log.(store.Announcer)
	}
	events, err := newMappings(c.Events)
	p := &Publisher{types: types, log: log, insertSQL: insertSQL{log: log}, config: c, events: events, announcer: announcer{to: c.Announcer}, tracing: tracing.NewPublishing(c.TracerProvider)}
	if source := store.SourceOf(log); source != nil {
		p.refused = fmt.Errorf("%w: it is %s", ErrSource, source.Name())
	}
	problems := []error{err}
	for _, t := range types.Types() {
		if err := p.checkContentType(t.Name, t.ContentType); err != nil {
			problems = append(problems, err)
		}
	}
	return p, errors.Join(problems...)
}

// Publish appends notifications in the caller's transaction, in their order.
// They reach their sinks if tx commits, and never existed if it rolls back.
//
// A notification is a value of a registered type, or a pointer to one, or either
// wrapped by [With]. A domain event is published as Config.Events says. All of them are
// checked and serialized before the first is written, so a mistake in one writes none.
// They go in one INSERT, or in several where they exceed the database's parameters of a
// statement.
//
// In a handler of a notification, whose context has it as its cause, what is published
// inherits the correlation id and gets the causation id: see [notification.WithCause].
//
// tx is a *sql.Tx, or anything that wraps one and has its methods (sqlx, bun,
// ent, gorm's Statement.ConnPool), or a transaction of pgx in [Pgx]. In bun's Tx the
// *sql.Tx is used, without bun's query hooks. A *sql.DB gives ErrNotTransaction, a
// transaction that has ended ErrTxOver, and one of another database
// store.ErrOtherDatabase. After an error of the database tx is to be rolled back; behind
// [ErrDuplicate] it is usable.
func (p *Publisher) Publish(ctx context.Context, tx Tx, notifications ...any) error {
	tx, err := CheckTx(tx)
	if err != nil {
		return err
	}
	if p.tracing == nil || len(notifications) == 0 {
		_, err := p.publish(ctx, tx, notifications)
		return err
	}
	return p.publishTraced(ctx, tx, notifications)
}

// publish returns what it was about to write, also where that failed.
func (p *Publisher) publish(ctx context.Context, tx Tx, notifications []any) ([]notification.Envelope, error) {
	c := call{metadata: p.metadata(ctx), envelopes: make([]notification.Envelope, 0, len(notifications))}
	for i, n := range notifications {
		if err := p.add(ctx, &c, n); err != nil {
			return nil, numbered(err, i, len(notifications))
		}
	}
	if err := p.claim(ctx, tx, c.claims); err != nil {
		return c.envelopes, err
	}
	return c.envelopes, p.append(ctx, tx, c.envelopes)
}

// Append appends envelopes that are made already, in the caller's transaction and in
// their order, as Publish does: for a program that moves notifications, makes them
// by itself, or gets them serialized. The registry is not asked.
//
// An envelope needs a type, and a payload that the log's column takes. An id that is
// not set becomes a new UUIDv7, a version 1, and OccurredOn now; the database assigns
// offset and slot. The envelopes are only read.
func (p *Publisher) Append(ctx context.Context, tx Tx, envelopes ...notification.Envelope) error {
	tx, err := CheckTx(tx)
	if err != nil {
		return err
	}
	envelopes = slices.Clone(envelopes)
	for i := range envelopes {
		if err := p.complete(&envelopes[i]); err != nil {
			return numbered(err, i, len(envelopes))
		}
	}
	return p.append(ctx, tx, envelopes)
}

// append writes envelopes that are complete.
func (p *Publisher) append(ctx context.Context, tx Tx, envelopes []notification.Envelope) error {
	if len(envelopes) == 0 {
		return nil
	}
	if p.refused != nil {
		return p.refused
	}
	if err := p.insert(ctx, tx, envelopes); err != nil {
		return err
	}
	p.appends.Add(1)
	if p.config.Published != nil {
		p.config.Published(envelopes)
	}
	return nil
}

// numbered names the notification of a call that err is about.
func numbered(err error, i, of int) error {
	if of == 1 {
		return err
	}
	return fmt.Errorf("notification %d of %d: %w", i+1, of, err)
}

// RunInTx runs f in a transaction of db: it commits if f returns nil, and rolls
// back if f returns an error, which comes back as it is, or panics. After a
// commit of what was published with p it does what Announce does. f must not commit
// tx. Options are those of [sql.DB.BeginTx], such as an isolation level; nil has the
// database's defaults.
//
// Nothing is repeated: where the isolation level or a deadlock has the database refuse
// a transaction, the caller runs it again, as a whole. An error of the commit may hide
// that it was done. A nil publisher announces nothing.
func (p *Publisher) RunInTx(ctx context.Context, db *sql.DB, options *sql.TxOptions, f func(ctx context.Context, tx *sql.Tx) error) error {
	return p.announcing(func() error { return InTx(ctx, db, options, f) })
}

// announcing runs a transaction and announces it, if something was appended meanwhile: by
// this transaction, or by another one at the same time, which does no harm.
func (p *Publisher) announcing(commit func() error) error {
	if p == nil {
		return commit()
	}
	before := p.appends.Load()
	if err := commit(); err != nil {
		return err
	}
	if p.appends.Load() != before {
		p.Announce()
	}
	return nil
}

// Announce wakes the forwarders after a commit that published something: with
// Config.Wake the one of this process, with Config.Announcer those of others.
// RunInTx and RunInPgx call it; a program that begins and commits transactions by itself
// calls it after the commit. Before the commit it is of no use, and for a rollback
// it does no harm.
//
// It returns at once. Announcements to other processes are made one at a time in
// the background, with a rest of twice as long as one took, 2 ms at most:
// those that are asked for meanwhile become one. Each may take 1 s. An error is
// dropped, since a forwarder that misses an announcement finds the rows at its next
// look.
func (p *Publisher) Announce() {
	if p.config.Wake != nil {
		p.config.Wake()
	}
	p.announcer.announce()
}

// call is what one call of Publish appends.
type call struct {
	metadata  notification.Metadata // of all of them
	envelopes []notification.Envelope
	claims    []store.Claim // of those that are to be unique
}

// add adds one notification to a call, or what a domain event is mapped to.
func (p *Publisher) add(ctx context.Context, c *call, n any) error {
	n, options := unwrap(n)
	if m, mapped := p.events.of(n, p.types); mapped {
		return p.addMapped(ctx, c, m, n, options)
	}
	return p.addOne(c, n, options)
}

// addOne adds the stored form of one notification, and its claim if it is to be unique.
func (p *Publisher) addOne(c *call, n any, options []Option) error {
	e, err := p.types.Encode(n)
	if err != nil {
		return hint(n, err)
	}
	unique, err := apply(options, e)
	if err != nil {
		return fmt.Errorf("%s: %w", e.Type, err)
	}
	inherit(e, c.metadata)
	if err := p.complete(e); err != nil {
		return err
	}
	if unique != nil {
		unique.Type = e.Type
		if err := checkUnique(unique); err != nil {
			return err
		}
		c.claims = append(c.claims, *unique)
	}
	c.envelopes = append(c.envelopes, *e)
	return nil
}

// hint adds the way out where what was published looks like another call that was meant.
func hint(n any, err error) error {
	switch n.(type) {
	case Option, []Option:
		return fmt.Errorf("%w: it stands alone: publish With(notification, option)", ErrOption)
	case Tx:
		return fmt.Errorf("%w; a transaction comes first, and once", err)
	case notification.Envelope, *notification.Envelope, []notification.Envelope:
		return fmt.Errorf("%w; an envelope that is made already goes to Append", err)
	}
	if !errors.Is(err, registry.ErrUnregistered) {
		return err
	}
	if reflect.TypeOf(n).Kind() == reflect.Slice {
		return fmt.Errorf("%w; a slice is not published as a whole: make it a []any and publish slice..., or publish its elements one by one", err)
	}
	return fmt.Errorf("%w, or, if it is a domain event, give outbox.Config.Events an outbox.Map or outbox.Ignore for it", err)
}

// metadata is what all notifications of a call get from its context: what they are
// published for, what Config.Metadata gives, and the trace.
func (p *Publisher) metadata(ctx context.Context) notification.Metadata {
	var m notification.Metadata
	if p.config.Metadata != nil {
		m = maps.Clone(p.config.Metadata(ctx))
		maps.DeleteFunc(m, func(_, value string) bool { return value == "" })
	}
	if cause := notification.Cause(ctx); cause != nil {
		m = m.Clone()
		m[notification.MetadataCausationID] = cause.ID
		m[notification.MetadataCorrelationID] = cmp.Or(cause.Metadata.Get(notification.MetadataCorrelationID), cause.ID)
	}
	return tracing.Inject(ctx, m)
}

// inherit adds the metadata of the call, unless the notification's own names it.
func inherit(e *notification.Envelope, metadata notification.Metadata) {
	if len(metadata) == 0 {
		return
	}
	own := e.Metadata
	e.Metadata = metadata.Clone()
	if _, traced := own[notification.MetadataTraceparent]; traced {
		delete(e.Metadata, notification.MetadataTracestate) // which goes with another one
	}
	maps.Copy(e.Metadata, own)
}

// complete fills in what is not set, and checks the whole.
func (p *Publisher) complete(e *notification.Envelope) error {
	if e.ID == "" {
		e.ID = notification.NewID()
	}
	if e.Version == 0 {
		e.Version = 1
	}
	if e.OccurredOn.IsZero() {
		e.OccurredOn = time.Now()
	}
	e.OccurredOn = e.OccurredOn.UTC().Truncate(time.Microsecond)
	e.DeliverAt = e.DeliverAt.UTC().Truncate(time.Microsecond)
	err := p.check(e)
	if err != nil && e.Type != "" {
		return fmt.Errorf("%s: %w", e.Type, err)
	}
	return err
}

func (p *Publisher) check(e *notification.Envelope) error {
	if err := e.Validate(); err != nil {
		return err
	}
	if len(e.Payload) > p.config.MaxPayload {
		return fmt.Errorf("%w: %d bytes, the limit is %d: keep large data elsewhere and publish a reference, or raise MaxPayload",
			ErrTooLarge, len(e.Payload), p.config.MaxPayload)
	}
	if contentType := e.Metadata.Get(notification.MetadataContentType); contentType != "" {
		return p.checkContentType(e.Type, contentType)
	}
	if !p.log.BinaryPayload() && !json.Valid(e.Payload) {
		return fmt.Errorf("%w: the payload column is json and takes nothing else", ErrBinaryPayload)
	}
	return nil
}

func (p *Publisher) checkContentType(typ, contentType string) error {
	if p.log.BinaryPayload() || serializer.IsJSON(contentType) {
		return nil
	}
	return fmt.Errorf("%w: %s is serialized as %s and the payload column is json: migrate with the payload %q, or register the type with a JSON serializer",
		ErrBinaryPayload, typ, contentType, "bytea")
}
