// Package sinks is the contract between the engine and a destination.
//
// A sink's life: a [Kind] builds it from its configuration; if it is an
// [Opener], Open succeeds once before the first delivery; Deliver runs in parallel,
// up to the sink's parallelism threshold, never twice at once for one key; if
// it is a [Closer], Close runs once, after the last Deliver returned or was abandoned.
//
// A sink knows nothing of databases, cursors or retries. It says what happened
// by the class of the error that it returns: see [Class].
package sinks

import (
	"context"

	"github.com/waybill-go/waybill/framework/notification"
)

// Sink hands deliveries to one destination.
//
// Deliver returns a receipt and nil once the destination has taken the
// delivery; from then on it is never handed to the sink again, except after a
// crash before the next checkpoint. So a delivery can come twice: the sink
// passes the envelope's ID on, so that the destination can tell.
//
// Deliver must be safe for parallel calls. The context ends when the sink's
// timeout passes or the engine gives up on stopping; Deliver then returns soon,
// and an error after that counts as no attempt where the engine ended it. A call that
// is not back 2 s later is abandoned: its delivery is tried again beside it, it keeps its
// slot of the parallelism until it returns, and what it returns then counts nothing.
// An error without a class is transient. The delivery must not be kept or
// changed after Deliver returned. No database transaction is open meanwhile.
type Sink interface {
	Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error)
}

// Addresser is a sink whose deliveries go to several destinations, such as the hosts of
// customers. What [Unavailable], [Throttled] and transient errors say is then about the
// delivery's destination: its deliveries wait, parked and with no attempt spent, and those
// to others go on. Slots are shared evenly between destinations, and one has no more than
// are left free by all, unless fairness says otherwise.
type Addresser interface {
	// Destination names where a delivery goes, such as a scheme, host and port; "" where
	// that says nothing, and the sink as a whole is meant. It is asked for each delivery,
	// in parallel with deliveries, must return at once, and depends on nothing but the
	// delivery. The name stands in logs and in status, so it holds no secret.
	Destination(d *notification.Delivery) string
}

// Opener is a sink that prepares something before the first delivery, such as
// connections or templates. It must not fail only because the destination is
// down at the moment: that is what [Unavailable] is for. While Open fails the sink is
// unavailable, and Open is called again with later deliveries: never twice at a time for
// one name of the configuration.
type Opener interface {
	Open(ctx context.Context) error
}

// Closer is a sink that holds something. Close is called once, when no Deliver will come.
// None is running either, but for calls that the engine has abandoned, whose contexts have
// ended: Close ends those where it can, by closing what they wait for, and returns when ctx
// ends even if they stay. An error of a call that meets a closed sink is not permanent.
type Closer interface {
	Close(ctx context.Context) error
}

// HealthChecker is a sink that can tell whether its destination would take a
// delivery now, without making one. It may be called at any time, in parallel
// with deliveries.
type HealthChecker interface {
	CheckHealth(ctx context.Context) error
}

// Func is a function as a sink, for a handler that needs no configuration.
type Func func(ctx context.Context, d *notification.Delivery) (notification.Receipt, error)

// Deliver calls f.
func (f Func) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	return f(ctx, d)
}

var _ Sink = Func(nil)
