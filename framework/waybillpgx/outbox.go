// Package waybillpgx is package waybill for programs that use pgx: transactions are a pgx.Tx of the
// program's pool, and what is published in them is sent together with the COMMIT.
//
//	o := waybillpgx.New(pool, waybill.PostgresConfig{})
//	defer o.Close()
//	waybill.Register[OrderPlaced](o, "order.placed", waybill.Key(OrderPlaced.ID))
//	waybillpgx.HandleTx(o, "warehouse", func(ctx context.Context, tx pgx.Tx, n OrderPlaced) error { … })
//	err := o.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
//		… // your own statements
//		return o.Publish(ctx, tx, OrderPlaced{…})
//	})
//	err = o.Run(ctx)
//
// It is a separate module, since Waybill itself does not depend on pgx.
package waybillpgx

import (
	"cmp"
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/inbox"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/waybillpgx/pgxbatch"
)

// Outbox is a [waybill.Outbox] whose transactions are those of pgx. [New] makes it. The functions
// of package waybill that declare types and handlers take it.
type Outbox struct {
	*waybill.Outbox
	pool *pgxpool.Pool
	db   *sql.DB
}

var _ waybill.Declaring = (*Outbox)(nil)

// New returns the outbox of the database of a pool, which the program keeps and closes. Transactions
// of the program and of its handlers take their connections from the pool.
//
// The forwarder, schedules, announcements and what else Waybill does by itself have connections of
// their own, so that neither requests nor handlers that use the whole pool can keep a forwarder from its
// leases and checkpoints. They are made as those of the pool: with its ConnConfig, so with its addresses,
// TLS, parameters and tracer, and with its BeforeConnect and AfterConnect. They do not call PrepareConn,
// BeforeAcquire, AfterRelease, BeforeClose and ShouldPing, which are about the use of a pool.
//
// Beside the MaxConns of the pool, the server sees up to 10 connections (Config.Connections of the
// forwarder, which is 8, and 2), of which those end that have been idle for a minute; and while Run runs
// 2 more, which listen and show that the process is alive. If the pool's address is that of a pooler, there are no
// such two: commits of other processes do not wake the forwarder, which polls, unless c.Listen or c.ListenDSN
// is an address of the server itself, which is used through lib/pq.
//
// New connects to nothing. Call [Outbox.Close] in the end.
func New(pool *pgxpool.Pool, c waybill.PostgresConfig) *Outbox {
	s := sessions{pool.Config()}
	if c.Listen == "" && c.ListenDSN == nil && c.Sessions == nil {
		c.Sessions = s
	}
	db := s.open(nil)
	o := &Outbox{waybill.Postgres(db, c), pool, db}
	o.limit()
	return o
}

// spare is how many connections there are beside those of the forwarder: for announcements, and for
// schedules or what a person does.
const spare = 2

// limit limits the connections, once Config is set.
func (o *Outbox) limit() {
	n := cmp.Or(o.Config.Connections, forwarder.DefaultConnections) + spare
	o.db.SetMaxOpenConns(n)
	o.db.SetMaxIdleConns(n)
}

// Close closes the outbox's own connections, and leaves the pool alone. Call it after Run has returned.
// Publish still works afterwards, in transactions of the pool.
func (o *Outbox) Close() error { return o.db.Close() }

// Open is [waybill.Outbox.Open].
func (o *Outbox) Open(ctx context.Context) error {
	o.limit()
	return o.Outbox.Open(ctx)
}

// Run is [waybill.Outbox.Run].
func (o *Outbox) Run(ctx context.Context) error {
	if err := o.Open(ctx); err != nil {
		return err
	}
	return o.Outbox.Run(ctx)
}

// InTx is [waybill.Outbox.InTx] in a transaction of the pool. What f publishes is sent with the next
// statement or with the COMMIT, which then also returns the database's errors; see package pgxbatch.
func (o *Outbox) InTx(ctx context.Context, f func(ctx context.Context, tx pgx.Tx) error) error {
	if err := o.Open(ctx); err != nil {
		return err
	}
	return outbox.RunInPgx(ctx, o.Publisher(), pgxbatch.Pool(o.pool), pgx.TxOptions{}, f)
}

// InUnit is [waybill.Outbox.InUnit] in a transaction of the pool, as [Outbox.InTx] begins it.
func (o *Outbox) InUnit(ctx context.Context, f func(ctx context.Context, tx pgx.Tx, u *waybill.Unit) error) error {
	if err := o.Open(ctx); err != nil {
		return err
	}
	return outbox.RunUnitInPgx(ctx, o.Publisher(), pgxbatch.Pool(o.pool), pgx.TxOptions{}, f)
}

// Publish appends notifications in the caller's transaction; see [outbox.Publisher.Publish]. Call
// Announce after the commit of a transaction that InTx or InUnit did not begin.
func (o *Outbox) Publish(ctx context.Context, tx pgx.Tx, notifications ...any) error {
	return o.Outbox.Publish(ctx, outbox.Pgx(tx), notifications...)
}

// CancelID is [waybill.Outbox.CancelID] in a pgx transaction.
func (o *Outbox) CancelID(ctx context.Context, tx pgx.Tx, id string) (cancelled int, err error) {
	return o.Outbox.CancelID(ctx, outbox.Pgx(tx), id)
}

// CancelKey is [waybill.Outbox.CancelKey] in a pgx transaction.
func (o *Outbox) CancelKey(ctx context.Context, tx pgx.Tx, typ, key string) (cancelled int, err error) {
	return o.Outbox.CancelKey(ctx, outbox.Pgx(tx), typ, key)
}

// HandleTx is [waybill.HandleTx] for a function that works in a transaction of the pool: what it writes
// and publishes in tx commits together with the notification's id in the inbox, so it happens once, even
// where a delivery is repeated. The function must neither end tx nor keep it. Each delivery in flight holds a
// connection of the pool. Handlers of one sink share its transaction.
//
// waybill.HandleTx would take connections of the forwarder for its *sql.Tx.
func HandleTx[T any](o *Outbox, sink string, handle func(ctx context.Context, tx pgx.Tx, n T) error) *waybill.Sink {
	return waybill.HandleIn(o, sink, inbox.Pgx(pgxbatch.Pool(o.pool), pgx.TxOptions{}), handle)
}
