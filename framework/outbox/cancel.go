package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// CancelID cancels, in the caller's transaction, the notification of an id that is scheduled
// with [DeliverAt], and returns how many were still scheduled by the database's clock: 0 or
// 1, unless publishers chose one id for several. 0 is no error: the notification is delivered,
// on its way, cancelled already, or never was.
//
// A notification of which tx commits before its time, by the clock of the forwarder, is
// delivered to no sink. Behind its time it may be delivered all the same, whatever
// CancelID returned. If tx rolls back nothing is cancelled.
//
// tx is one as for Publish. After an error it is to be rolled back.
func (p *Publisher) CancelID(ctx context.Context, tx Tx, id string) (cancelled int, err error) {
	if id == "" {
		return 0, fmt.Errorf("%w: an id is needed to cancel by it", ErrCancel)
	}
	if err := notification.ValidateKey(id); err != nil {
		return 0, fmt.Errorf("%w: the id: %w", ErrCancel, err)
	}
	return p.cancel(ctx, tx, store.Scheduled{ID: id})
}

// CancelKey is [Publisher.CancelID] for all notifications of a type that have an ordering
// key and are still scheduled. Those of aliases of a registered type are among them. What is
// published later with the same key is not cancelled, in the same transaction neither, nor
// what another transaction has published and not committed yet.
func (p *Publisher) CancelKey(ctx context.Context, tx Tx, typ, key string) (cancelled int, err error) {
	if typ == "" || key == "" {
		return 0, fmt.Errorf("%w: a type and a key are needed to cancel by them, and these are %q and %q: cancel what has no key by its id",
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
		return 0, fmt.Errorf("%w: a %T cannot cancel", ErrLog, p.log)
	}
	return canceller.Cancel(ctx, tx, s)
}
