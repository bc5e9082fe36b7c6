package outbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Unique lets Publish fail with a [*DuplicateError] if a notification of the same type was
// published with the same uniqueness key less than a period ago, by the database's clock.
// Then nothing of the call is published, and the transaction is as good as before: the caller
// may ignore the error and commit.
//
//	err := publisher.Publish(ctx, tx, outbox.With(reminder, outbox.Unique("order-17", 24*time.Hour)))
//	if err != nil && !errors.Is(err, outbox.ErrDuplicate) {
//		return err
//	}
//
// The key is taken if tx commits, and free again if it rolls back. Where another transaction
// takes the same key at the moment, Publish waits for its end. Under the isolation levels
// REPEATABLE READ and SERIALIZABLE it fails then instead with [store.ErrCollision], as any
// write does that meets another one, and the transaction is to be repeated. Transactions
// that take several keys in different orders can deadlock, unless one call takes them all.
//
// The key is neither the notification's id nor its ordering key; for "this id once in a day",
// give both: ID(id), Unique(id, 24*time.Hour). Cancelling a notification does not free its
// uniqueness key. Each one costs a statement.
func Unique(key string, period time.Duration) Option {
	return func(d *draft) { d.unique = &store.Claim{Key: key, Period: period} }
}

// checkUnique checks what Unique asks for.
func checkUnique(c *store.Claim) error {
	if err := notification.ValidateKey(c.Key); err != nil {
		return fmt.Errorf("%s: uniqueness: %w", c.Type, err)
	}
	if c.Key == "" || c.Period <= 0 {
		return fmt.Errorf("%s: %w: it needs a key and a period above 0, and these are %q and %s", c.Type, ErrUnique, c.Key, c.Period)
	}
	return nil
}

// claim takes all uniqueness keys of a call, or none of them.
func (p *Publisher) claim(ctx context.Context, tx Tx, claims []store.Claim) error {
	if len(claims) == 0 {
		return nil
	}
	claimer, can := p.log.(store.Claimer)
	if !can {
		return fmt.Errorf("%w: a %T keeps no uniqueness keys", ErrLog, p.log)
	}
	slices.SortStableFunc(claims, func(a, b store.Claim) int { // two calls that share keys do not deadlock
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Key, b.Key))
	})
	for i, c := range claims {
		free, err := claimer.Claim(ctx, tx, c)
		if err != nil {
			return err
		}
		if free {
			continue
		}
		duplicate := &DuplicateError{Type: c.Type, Key: c.Key}
		if q, asks := tx.(store.RowQuerier); asks {
			if duplicate.Until, err = claimer.ClaimedUntil(ctx, q, c); err != nil {
				return err
			}
		}
		for _, claimed := range claims[:i] {
			if err := claimer.Unclaim(ctx, tx, claimed); err != nil {
				return err
			}
		}
		return duplicate
	}
	return nil
}
