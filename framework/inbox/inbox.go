// Package inbox makes the effects of a notification happen once, although it may be delivered
// several times: the consumer stores the ids that it has handled, in the transaction that
// writes its effects.
//
// A separate consumer, such as a process that reads a Kafka topic, asks for each id:
//
//	first, err := box.Once(ctx, db, "invoices", id, func(ctx context.Context, tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, `INSERT INTO invoices …`)
//		return err
//	})
//
// [Middleware] does that for Watermill handlers, and [Handler] for net/http handlers. [HandleTx]
// and [Mux] make handlers in the forwarder's own process. With pgx, use [OnceInPgx],
// Config.Pgx, and [outbox.Pgx] for [Inbox.First].
//
// The ids are in a table beside the outbox's tables. The forwarder removes them after its
// InboxRetention; a delivery that is repeated later than that is handled as a new one. A
// database that only consumes has the tables of an outbox too, and needs a forwarder or a job
// that removes old ids.
package inbox

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
)

// maxName is the limit of a consumer name and of an id, in bytes: both are the key of an index.
const maxName = 1000

// Inbox stores ids in one database. It is safe for concurrent use.
type Inbox struct{ store store.Inbox }

// New returns the inbox of a store. All SQL stores have one.
func New(s store.Inbox) *Inbox { return &Inbox{s} }

// First stores in the caller's transaction that a consumer handles an id, and reports whether
// this is the first time. The stored id commits or rolls back with tx, like the caller's
// writes. If it is not the first time, the caller must write nothing, and may commit or roll
// back.
//
// While another transaction is handling the same id, First waits for it to end. Under the
// isolation levels REPEATABLE READ and SERIALIZABLE it fails instead with
// [store.ErrCollision], as any conflicting write does, and the caller retries the transaction.
// After an error, roll tx back.
//
// tx is a transaction as for Publish; a *sql.DB fails with [outbox.ErrNotTransaction].
//
// consumer names what handles the ids: effects happen once for each consumer and id. The name
// must not change while its ids may be delivered again.
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

// Once runs f in a transaction of db if the consumer has not handled the id yet, and reports
// whether it did. It commits if f returns nil. It rolls back if f panics or returns an error,
// which it returns unchanged; the id then counts as not handled.
//
// After an error of the commit, the transaction may still have been committed: call Once again
// to find out.
func (i *Inbox) Once(ctx context.Context, db *sql.DB, consumer, id string, f func(ctx context.Context, tx *sql.Tx) error) (first bool, err error) {
	var silent *outbox.Publisher
	err = silent.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		if first, err = i.First(ctx, tx, consumer, id); err != nil || !first {
			return err
		}
		return f(ctx, tx)
	})
	return first && err == nil, err
}
