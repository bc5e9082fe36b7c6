package inbox

import (
	"context"
	"database/sql"

	"github.com/waybill-go/waybill/framework/outbox"
)

// Transactions begins the transactions in which handlers write: see [Pgx]. The zero value
// is not usable.
type Transactions struct {
	// run runs f in a transaction. It commits if f returns nil, and announces the commit with
	// the publisher, if any. Handlers get tx; inboxTx is the same transaction for the inbox.
	run func(ctx context.Context, p *outbox.Publisher, f func(ctx context.Context, tx any, inboxTx outbox.Tx) error) error
}

// Pgx returns transactions of a *pgxpool.Pool, with pgx.TxOptions:
//
//	inbox.Config{Inbox: box, Pgx: inbox.Pgx(pool, pgx.TxOptions{}), Publisher: publisher}
//
// A *pgx.Conn also works, for one delivery at a time.
func Pgx[Tx outbox.PgxTx[Tag], Tag outbox.PgxTag, Options any](pool outbox.PgxDB[Tx, Options], options Options) Transactions {
	return Transactions{func(ctx context.Context, p *outbox.Publisher, f func(context.Context, any, outbox.Tx) error) error {
		return outbox.RunInPgx(ctx, p, pool, options, func(ctx context.Context, tx Tx) error { return f(ctx, tx, outbox.Pgx(tx)) })
	}}
}

// transactions returns those of DB or Pgx.
func (c Config) transactions() Transactions {
	if c.DB == nil {
		return c.Pgx
	}
	return Transactions{func(ctx context.Context, p *outbox.Publisher, f func(context.Context, any, outbox.Tx) error) error {
		return p.RunInTx(ctx, c.DB, nil, func(ctx context.Context, tx *sql.Tx) error { return f(ctx, tx, tx) })
	}}
}

// OnceInPgx is [Inbox.Once] for a pgx transaction.
func OnceInPgx[Tx outbox.PgxTx[Tag], Tag outbox.PgxTag, Options any](ctx context.Context, i *Inbox, pool outbox.PgxDB[Tx, Options], options Options,
	consumer, id string, f func(ctx context.Context, tx Tx) error) (first bool, err error) {
	err = outbox.RunInPgx(ctx, nil, pool, options, func(ctx context.Context, tx Tx) error {
		if first, err = i.First(ctx, outbox.Pgx(tx), consumer, id); err != nil || !first {
			return err
		}
		return f(ctx, tx)
	})
	return first && err == nil, err
}
