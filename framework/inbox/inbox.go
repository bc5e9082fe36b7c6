// Package inbox makes effects happen once, although deliveries come at least once: it
// notes in a transaction which notifications a consumer has handled, beside what the
// handler writes.
//
// A consumer of its own, such as a process that reads a Kafka topic, asks for each id:
//
//	first, err := box.Once(ctx, db, "invoices", id, func(ctx context.Context, tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, `INSERT INTO invoices …`)
//		return err
//	})
//
// [Middleware] does that for handlers of Watermill, [Handler] for those of net/http. Handlers in
// the forwarder's own process are made with [HandleTx] or [Mux]. With pgx take [OnceInPgx],
// Config.Pgx, and [outbox.Pgx] for [Inbox.First].
//
// The ids stand in a table beside the outbox's and go after the forwarder's
// InboxRetention; a delivery that comes again later is taken for a new one. A database that only
// consumes has the tables of an outbox too, and needs a forwarder, or a job of its own,
// that removes old ids.
package inbox

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
)

// maxName is how many bytes a consumer or an id may have: both are the key of an index.
const maxName = 1000

// Inbox notes ids in one database. It is safe for concurrent use.
type Inbox struct{ store store.Inbox }

// New returns the inbox of a store, such as those of postgres and sqlite.
func New(s store.Inbox) *Inbox { return &Inbox{s} }

// First notes in the caller's transaction that a consumer handles an id, and reports
// whether it is the first time. The note is there if tx commits, as is what the caller
// writes; so a caller that was not the first writes nothing and may commit or roll back.
//
// Where another transaction handles the same id at the moment, First waits for its end.
// Under the isolation levels REPEATABLE READ and SERIALIZABLE it fails instead with
// [store.ErrCollision], as any write does that meets another one; the transaction is to be
// repeated. After an error tx is to be rolled back.
//
// tx is what Publish takes; a *sql.DB gives [outbox.ErrNotTransaction].
//
// consumer names what is handled for: one effect for each name and id. Its name must
// not change while ids of it may come again.
func (i *Inbox) First(ctx context.Context, tx outbox.Tx, consumer, id string) (bool, error) {
	for what, name := range map[string]string{"consumer": consumer, "id": id} {
		if name == "" || len(name) > maxName {
			return false, fmt.Errorf("%w: the %s has %d bytes: use 1 to %d", ErrName, what, len(name), maxName)
		}
	}
	in, err := outbox.CheckTx(tx)
	if err != nil {
		return false, err
	}
	return i.store.First(ctx, in, consumer, id)
}

// Once runs f in a transaction of db if the consumer has not handled the id yet, and
// reports whether it did. It commits if f returns nil; if f returns an error, which comes
// back as it is, or panics, it rolls back, and the id counts as not handled.
//
// An error of the commit may hide that it was done: call Once again to find out.
func (i *Inbox) Once(ctx context.Context, db *sql.DB, consumer, id string, f func(ctx context.Context, tx *sql.Tx) error) (first bool, err error) {
	err = outbox.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		if first, err = i.First(ctx, tx, consumer, id); err != nil || !first {
			return err
		}
		return f(ctx, tx)
	})
	return first && err == nil, err
}
