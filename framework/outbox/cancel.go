package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// CancelID cancels, in the caller's transaction, the notification with this id if it is
// scheduled with [DeliverAt]. It returns how many notifications were still scheduled, by the
// database's clock: 0 or 1, or more if publishers gave one id to several. 0 is not an error:
// the notification is delivered, on its way, already cancelled, or never existed.
//
// If tx commits before the notification's time, by the forwarder's clock, the notification is
// delivered to no sink. If it commits later, the notification may still be delivered, whatever
// CancelID returned. If tx rolls back, nothing is cancelled.
//
// tx is a transaction as for Publish. After an error, roll it back.
func (p *Publisher) CancelID(ctx context.Context, tx Tx, id string) (cancelled int, err error) {
	if id == "" {
		return 0, fmt.Errorf("%w: the id is empty", ErrCancel)
	}
	if err := notification.ValidateKey(id); err != nil {
		return 0, fmt.Errorf("%w: the id: %w", ErrCancel, err)
	}
	return p.cancel(ctx, tx, store.Scheduled{ID: id})
}

// CancelKey is [Publisher.CancelID] for all notifications of a type and an ordering key that
// are still scheduled, including those published under aliases of the type. It does not cancel
// what is published later with the same key, even in the same transaction, nor what another
// transaction has published and not committed yet.
func (p *Publisher) CancelKey(ctx context.Context, tx Tx, typ, key string) (cancelled int, err error) {
	if typ == "" || key == "" {
		return 0, fmt.Errorf("%w: cancelling by key needs a type and a key, not %q and %q; a notification without a key is cancelled by its id",
			ErrCancel, typ, key)
	}
	if err := errors.Join(notification.ValidateType(typ), notification.ValidateKey(key)); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrCancel, err)
	}
	types := []string{typ}
	if info, known := p.types.Lookup(typ); known {
		types = append([]string{info.Name}, info.Aliases...)
	}
	return p.cancel(ctx, tx, store.Scheduled{Types: types, Key: key})
}

func (p *Publisher) cancel(ctx context.Context, tx Tx, s store.Scheduled) (int, error) {
	tx, err := CheckTx(tx)
	if err != nil {
		return 0, err
	}
	canceller, can := p.log.(store.Canceller)
	if !can {
		return 0, fmt.Errorf("%w: a %T cannot cancel notifications", ErrLog, p.log)
	}
	return canceller.Cancel(ctx, tx, s)
}
