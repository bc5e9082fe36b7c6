// Package outbox is the writing side: it appends notifications to the log inside
// the application's own database transaction, so that both are committed or
// neither is.
//
//	err := publisher.RunInTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
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
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
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
	announcer announcer
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
	p := &Publisher{types: types, log: log, insertSQL: insertSQL{log: log}, config: c, announcer: announcer{to: c.Announcer}}
	var problems []error
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
// wrapped by [With]. All of them are checked and serialized before the first is
// written, so a mistake in one writes none. They go in one INSERT, or in several
// where they exceed the database's parameters of a statement.
//
// In a handler of a notification, whose context has it as its cause, what is published
// inherits the correlation id and gets the causation id: see [notification.WithCause].
//
// tx is a *sql.Tx, or anything that wraps one and has its methods (sqlx, bun,
// ent, gorm's Statement.ConnPool). A *sql.DB gives ErrNotTransaction, and one of another
// database store.ErrOtherDatabase. After an error of the database tx is to be rolled back;
// behind [ErrDuplicate] it is usable.
func (p *Publisher) Publish(ctx context.Context, tx Tx, notifications ...any) error {
	if err := checkTx(tx); err != nil {
		return err
	}
	envelopes := make([]notification.Envelope, len(notifications))
	var claims []store.Claim
	for i, n := range notifications {
		e, unique, err := p.envelope(ctx, n)
		if err != nil {
			return numbered(err, i, len(notifications))
		}
		envelopes[i] = *e
		if unique != nil {
			claims = append(claims, *unique)
		}
	}
	if err := p.claim(ctx, tx, claims); err != nil {
		return err
	}
	return p.append(ctx, tx, envelopes)
}

// Append appends envelopes that are made already, in the caller's transaction and in
// their order, as Publish does: for a program that moves notifications, makes them
// by itself, or gets them serialized. The registry is not asked.
//
// An envelope needs a type, and a payload that the log's column takes. An id that is
// not set becomes a new UUIDv7, a version 1, and OccurredOn now; the database assigns
// offset and slot. The envelopes are only read.
func (p *Publisher) Append(ctx context.Context, tx Tx, envelopes ...notification.Envelope) error {
	if err := checkTx(tx); err != nil {
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
	if err := p.insert(ctx, tx, envelopes); err != nil {
		return err
	}
	published(ctx)
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
// commit with notifications it does what Announce does.
func (p *Publisher) RunInTx(ctx context.Context, db *sql.DB, f func(ctx context.Context, tx *sql.Tx) error) error {
	ctx, some := withPublished(ctx)
	if err := InTx(ctx, db, f); err != nil {
		return err
	}
	if *some {
		p.Announce()
	}
	return nil
}

// Announce wakes the forwarders after a commit that published something: with
// Config.Wake the one of this process, with Config.Announcer those of others.
// RunInTx calls it; a program that begins and commits transactions without RunInTx
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

// envelope makes the stored form of one notification, and its claim if it is to be unique.
func (p *Publisher) envelope(ctx context.Context, n any) (*notification.Envelope, *store.Claim, error) {
	var options []Option
	if item, wrapped := n.(Item); wrapped {
		n, options = item.notification, item.options
	}
	e, err := p.types.Encode(n)
	if err != nil {
		return nil, nil, err
	}
	unique := apply(options, e)
	inherit(e, notification.Cause(ctx))
	if err := p.complete(e); err != nil {
		return nil, nil, err
	}
	return e, unique, checkUnique(unique, e.Type)
}

// inherit notes what a notification is published for, unless its options have.
func inherit(e, cause *notification.Envelope) {
	if cause == nil {
		return
	}
	e.Metadata = e.Metadata.Clone()
	for name, value := range map[string]string{
		notification.MetadataCausationID:   cause.ID,
		notification.MetadataCorrelationID: cmp.Or(cause.Metadata.Get(notification.MetadataCorrelationID), cause.ID),
	} {
		if _, given := e.Metadata[name]; !given {
			e.Metadata[name] = value
		}
	}
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
