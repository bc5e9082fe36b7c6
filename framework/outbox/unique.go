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

// Unique makes Publish fail with a [*DuplicateError] if a notification of the same type was
// published with the same uniqueness key less than a period ago, by the database's clock.
// Then nothing of the call is published, and the transaction is still usable: the caller may
// ignore the error and commit.
//
//	err := publisher.Publish(ctx, tx, outbox.With(reminder, outbox.Unique("order-17", 24*time.Hour)))
//	if err != nil && !errors.Is(err, outbox.ErrDuplicate) {
//		return err
//	}
//
// The key is taken if tx commits, and free again if it rolls back. While another transaction
// is taking the same key, Publish waits for it to end. Under the isolation levels REPEATABLE
// READ and SERIALIZABLE it fails instead with [store.ErrCollision], as any conflicting write
// does, and the caller retries the transaction. Transactions that take several keys in
// different orders can deadlock, unless one call takes them all.
//
// The key is neither the notification's id nor its ordering key. To publish an id once a day,
// set both: ID(id), Unique(id, 24*time.Hour). Cancelling a notification does not free its
// uniqueness key. Each uniqueness key costs one statement.
func Unique(key string, period time.Duration) Option {
	return func(d *draft) { d.unique = &store.Claim{Key: key, Period: period} }
}

// checkUnique checks the key and the period of Unique.
func checkUnique(c *store.Claim) error {
	if err := notification.ValidateKey(c.Key); err != nil {
		return fmt.Errorf("%s: uniqueness: %w", c.Type, err)
	}
	if c.Key == "" || c.Period <= 0 {
		return fmt.Errorf("%s: %w: Unique needs a key and a period above 0, not %q and %s", c.Type, ErrUnique, c.Key, c.Period)
	}
	return nil
}

// claim takes all uniqueness keys of a call, or none.
func (p *Publisher) claim(ctx context.Context, tx Tx, claims []store.Claim) error {
	if len(claims) == 0 {
		return nil
	}
	claimer, can := p.log.(store.Claimer)
	if !can {
		return fmt.Errorf("%w: a %T has no uniqueness keys", ErrLog, p.log)
	}
	slices.SortStableFunc(claims, func(a, b store.Claim) int { // so that two calls with common keys do not deadlock
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
