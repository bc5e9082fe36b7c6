// Package outbox publishes notifications: it appends them to the log inside the
// application's own database transaction, so that both are committed or neither is.
//
//	publisher, err := outbox.New(types, store, outbox.Config{})
//	…
//	err = publisher.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
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
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/tracing"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/serializer"
)

// DefaultMaxPayload is the default payload limit: 1 MiB.
const DefaultMaxPayload = 1 << 20

// Config holds the optional settings of a Publisher.
type Config struct {
	// MaxPayload is the limit of one payload in bytes; default DefaultMaxPayload.
	MaxPayload int
	// Wake, if set, is called by Announce, and so after each commit of RunInTx, RunInPgx and
	// RunUnit that published something. Set it to the Wake method of a forwarder in this
	// process, so that deliveries begin at once. It must not block, and must be safe for
	// concurrent use.
	Wake func()
	// Metadata, if set, returns metadata for every notification of a Publish call, such as
	// tenant and user, taken from the call's context. A notification's own options take
	// precedence. Empty values are left out. In a handler of a notification,
	// [notification.Cause] returns the notification being handled, with its metadata. The
	// function must be safe for concurrent use. Append does not call it.
	Metadata func(ctx context.Context) map[string]string
	// TracerProvider, if set, such as to otel.GetTracerProvider(), makes an OpenTelemetry span
	// for each call of Publish; see package tracing. With or without it, Publish writes the
	// context's trace into the metadata of notifications that set no traceparent themselves.
	TracerProvider trace.TracerProvider
	// Published, if set, is called with the envelopes that a call of Publish or Append has
	// written. The transaction is not committed yet and may still roll back. It must be
	// quick and safe for concurrent use, and must neither keep nor change the envelopes.
	// Package observe counts with it.
	Published func([]notification.Envelope)
	// Privacy encrypts the private values of types with [registry.Private], which are refused without
	// it. Its Prepare has been called.
	Privacy *privacy.Keyring
	// Events says what is published for domain events that are published or recorded.
	Events []Mapping
	// Announcer announces commits to forwarders in other processes; default: the log, if it
	// is a store.Announcer. Silent announces nothing.
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
	refused   error         // if not nil: why nothing can be published
	one       *sql.Stmt     // the prepared INSERT of one row; nil: there is none
	appends   atomic.Uint64 // number of appends so far, in any transaction
}

// New returns a publisher of the registered types. It fails with ErrBinaryPayload if the
// log's payload column takes only JSON and a type's serializer makes something else. Types
// that are registered later are checked when they are published.
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
	if l, can := log.(prepared); can {
		p.one = l.Prepared()
	}
	problems := []error{err}
	for _, t := range types.Types() {
		if err := p.checkContentType(t.Name, t.ContentType); err != nil && !isWholePrivate(t) {
			problems = append(problems, err)
		}
		if len(t.Private) > 0 && c.Privacy == nil {
			problems = append(problems, errNoKeyring(t.Name))
		}
	}
	return p, errors.Join(problems...)
}

// Publish appends notifications in the caller's transaction, in the given order. They reach
// their sinks if tx commits. If it rolls back, nothing was published.
//
// A notification is a value of a registered type, a pointer to one, or either of them
// wrapped by [With]. A domain event is published as Config.Events says. Publish checks and
// serializes all notifications before it writes the first, so a mistake in one writes none.
// It uses one INSERT, or several if the database's limit of parameters requires it.
//
// In a handler of a notification, what is published inherits the correlation id of that
// notification and gets its id as causation id: see [notification.WithCause].
//
// tx is a *sql.Tx, anything that wraps one and has its methods (sqlx, bun, ent, gorm's
// Statement.ConnPool), or a pgx transaction in [Pgx]. With bun's Tx, Publish uses the *sql.Tx
// inside, without bun's query hooks. A *sql.DB fails with ErrNotTransaction, a transaction that
// has ended with ErrTxOver, and one of another database with store.ErrOtherDatabase. After
// [ErrDuplicate] tx is still usable; after any other error of the database roll it back.
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

// publish returns the envelopes that it wrote or, after an error of the database, tried to write.
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
	if err := p.seal(ctx, tx, &c); err != nil {
		return nil, err
	}
	return c.envelopes, p.append(ctx, tx, c.envelopes)
}

// Append appends existing envelopes in the caller's transaction and in the given order, as
// Publish does. It is for programs that move notifications, or that make or receive serialized
// ones. Their types need not be registered.
//
// An envelope needs a type, and a payload that fits the log's column. Unset fields get
// defaults: a new UUIDv7 as id, version 1, and the present time as OccurredOn. The database
// assigns offset and slot. Append does not change the envelopes.
func (p *Publisher) Append(ctx context.Context, tx Tx, envelopes ...notification.Envelope) error {
	tx, err := CheckTx(tx)
	if err != nil {
		return err
	}
	c := call{envelopes: slices.Clone(envelopes)}
	for i := range c.envelopes {
		if err := cmp.Or(p.complete(&c.envelopes[i], false), p.checkSealed(&c.envelopes[i])); err != nil {
			return numbered(err, i, len(envelopes))
		}
	}
	if err := p.seal(ctx, tx, &c); err != nil {
		return err
	}
	return p.append(ctx, tx, c.envelopes)
}

// append writes complete envelopes.
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

// numbered adds to err which notification of the call it is about.
func numbered(err error, i, of int) error {
	if of == 1 {
		return err
	}
	return fmt.Errorf("notification %d of %d: %w", i+1, of, err)
}

// RunInTx runs f in a transaction of db. It commits if f returns nil. It rolls back if f
// panics or returns an error, and returns that error unchanged. After a commit that
// published something with p, it does what Announce does. f must not end tx. The options are
// those of [sql.DB.BeginTx], such as an isolation level; nil means the database's defaults.
//
// RunInTx does not retry: if the database refuses a transaction because of a deadlock or the
// isolation level, the caller runs it again as a whole. After an error of the commit, the
// transaction may still have been committed. A nil publisher announces nothing.
func (p *Publisher) RunInTx(ctx context.Context, db *sql.DB, options *sql.TxOptions, f func(ctx context.Context, tx *sql.Tx) error) error {
	return p.announcing(func() error { return inTx(ctx, db, options, f) })
}

// announcing runs commit and announces it if something was appended meanwhile: by this
// transaction, or by another one at the same time, which does no harm.
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

// Announce wakes the forwarders after a commit that published something: the one of this
// process by Config.Wake, those of other processes by Config.Announcer. RunInTx and RunInPgx
// call it; a program that begins and commits its own transactions calls it after the commit.
// Before the commit it is useless; after a rollback it is harmless.
//
// It returns at once. A goroutine makes the announcements to other processes, one at a time,
// and waits after one for 0.4 ms for each commit that it announced, at most 10 ms. It merges
// those requested meanwhile into one. Each may take 1 s. Errors are ignored: a forwarder that
// misses an announcement finds the rows at its next look.
func (p *Publisher) Announce() {
	if p.config.Wake != nil {
		p.config.Wake()
	}
	p.announcer.announce()
}

// call holds what one call of Publish appends.
type call struct {
	metadata  notification.Metadata // common to all notifications of the call
	envelopes []notification.Envelope
	claims    []store.Claim // uniqueness keys of the notifications that have one
	private   []sealing
}

// add adds one notification, or what a domain event is mapped to.
func (p *Publisher) add(ctx context.Context, c *call, n any) error {
	n, options := unwrap(n)
	if m, mapped := p.events.of(n, p.types); mapped {
		return p.addMapped(ctx, c, m, n, options)
	}
	return p.addOne(c, n, options)
}

// addOne adds one notification's envelope, and its uniqueness key if it has one.
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
	private, err := p.types.PrivateOf(n)
	if err != nil {
		return err
	}
	if err := p.complete(e, len(private) > 0); err != nil {
		return err
	}
	if len(private) > 0 {
		if err := p.checkPrivate(e.Type, private); err != nil {
			return err
		}
		c.private = append(c.private, sealing{len(c.envelopes), private})
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

// hint adds advice to err if the argument looks like one of another call.
func hint(n any, err error) error {
	switch n.(type) {
	case Option, []Option:
		return fmt.Errorf("%w: an option without a notification: publish With(notification, option)", ErrOption)
	case Tx:
		return fmt.Errorf("%w; pass the transaction once, as the second argument", err)
	case notification.Envelope, *notification.Envelope, []notification.Envelope:
		return fmt.Errorf("%w; use Append for an envelope", err)
	}
	if !errors.Is(err, registry.ErrUnregistered) {
		return err
	}
	if _, ok := n.(string); ok {
		return fmt.Errorf("%w: string; pass only the notification: Register has given its type a name", registry.ErrUnregistered)
	}
	if reflect.TypeOf(n).Kind() == reflect.Slice {
		return fmt.Errorf("%w; a slice is not published as a whole: convert it to []any and publish slice..., or publish its elements one by one", err)
	}
	return fmt.Errorf("%w; for a domain event, add an outbox.Map or outbox.Ignore to outbox.Config.Events", err)
}

// metadata returns the metadata that all notifications of a call get from its context: the
// cause, the values of Config.Metadata, and the trace.
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

// inherit adds the metadata of the call; the notification's own values take precedence.
func inherit(e *notification.Envelope, metadata notification.Metadata) {
	if len(metadata) == 0 {
		return
	}
	own := e.Metadata
	e.Metadata = metadata.Clone()
	if _, traced := own[notification.MetadataTraceparent]; traced {
		delete(e.Metadata, notification.MetadataTracestate) // it belongs to the call's traceparent
	}
	maps.Copy(e.Metadata, own)
}

// complete sets the defaults of unset fields and checks the envelope, apart from checkRow if it will be encrypted.
func (p *Publisher) complete(e *notification.Envelope, private bool) error {
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
	if err == nil && !private {
		err = p.checkRow(e)
	}
	if err != nil && e.Type != "" {
		return fmt.Errorf("%s: %w", e.Type, err)
	}
	return err
}

func (p *Publisher) check(e *notification.Envelope) error {
	if err := cmp.Or(notification.ValidateType(e.Type), e.Validate()); err != nil {
		return err
	}
	if len(e.Payload) > p.config.MaxPayload {
		return fmt.Errorf("%w: %d bytes, the limit is %d: keep large data elsewhere and publish a reference, or raise MaxPayload",
			ErrTooLarge, len(e.Payload), p.config.MaxPayload)
	}
	return nil
}

// checkRow checks whether the log takes an envelope.
func (p *Publisher) checkRow(e *notification.Envelope) error {
	if limits := p.log.Limits(); limits.Row > 0 && store.Size(e) > limits.Row {
		return fmt.Errorf("%w: with %d bytes, the notification does not fit into a statement: %s of the server allows %d",
			ErrTooLarge, store.Size(e), limits.Setting, limits.Row)
	}
	if contentType := e.Metadata.Get(notification.MetadataContentType); contentType != "" {
		if err := p.checkContentType(e.Type, contentType); err != nil {
			return err
		}
	}
	if err := p.log.CheckPayload(e.Payload); err != nil {
		return fmt.Errorf("%w: the payload column takes only JSON: %w", ErrBinaryPayload, err)
	}
	return nil
}

func (p *Publisher) checkContentType(typ, contentType string) error {
	if p.log.BinaryPayload() || serializer.IsJSON(contentType) {
		return nil
	}
	return fmt.Errorf("%w: %s is serialized as %s and the payload column takes only JSON: migrate with the payload %q, or register the type with a JSON serializer",
		ErrBinaryPayload, typ, contentType, "bytea")
}
