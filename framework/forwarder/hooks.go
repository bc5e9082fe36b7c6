package forwarder

import (
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
)

// Hooks are called with the results of deliveries, in the transaction of the checkpoint that
// writes them: what hooks write commits with it, or not at all. Its fields, of which any may be
// nil:
//
//	Delivered func(ctx context.Context, tx *sql.Tx, delivered []Delivered) error
//	Parked    func(ctx context.Context, tx *sql.Tx, parked []event.Parked) error // now retrying, scheduled, blocked or quiet
//	Dead      func(ctx context.Context, tx *sql.Tx, dead []event.Parked) error
//
// A hook gets at most 1,000 deliveries and must be quick: its context ends after a third of
// the lease. It must neither commit nor roll back. If it returns nil but the transaction has
// ended or cannot commit, because a statement failed or a deferred constraint is violated, it
// counts as failed.
//
// Only the deliveries for which a hook fails are held back. Such a delivery is parked with the
// hook's error, as settling or dead, and is not delivered again. Its Delivered or Dead hook is
// called again after 1 s, then 2 s, and so on up to every 5 min, until it succeeds. Parked is
// not called again for the same attempt. After a crash, a repeated delivery also reaches the
// hooks again.
type Hooks = policy.Hooks

// Delivered is a delivery that succeeded: it embeds the *notification.Delivery, and has its
// Receipt.
type Delivered = policy.Delivered
