// Package sinks defines what a sink must do. Implement [Sink] to deliver notifications to a
// destination of your own, and make a [Kind] of it with [NewKind] to use it in waybill.yaml.
// Package sinktest checks an implementation.
//
// The life of a sink: a [Kind] builds it from its configuration. If it is an [Opener], Open
// succeeds once before the first delivery. Deliver is then called in parallel, up to the sink's
// parallelism threshold, but never for two deliveries of one key at once. If it is a [Closer],
// Close is called once, after the last Deliver has returned or was abandoned.
//
// A sink does not know about databases, cursors and retries. The class of the error that it
// returns decides what happens next: see [Class].
package sinks

import (
	"context"

	"github.com/waybill-go/waybill/framework/notification"
)

// Sink delivers notifications to a destination.
//
// Deliver returns a receipt and nil once the destination has accepted the delivery. The same
// delivery may come again if the forwarder crashes before the next checkpoint, so a sink passes
// on the envelope's ID, by which the destination can recognize it. An error without a class is
// transient.
//
// Deliver must be safe for concurrent use, and must not keep or change the delivery after it has
// returned. No database transaction is open while it runs.
//
// The context ends after the sink's timeout, or when the forwarder stops; Deliver must then
// return soon. If the forwarder ended the context, an error does not use up an attempt. A call
// that has not returned 2 s later is abandoned: its delivery is retried, its result is ignored,
// and it occupies a slot of the parallelism until it returns.
type Sink interface {
	Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error)
}

// Addresser is a sink whose deliveries go to several destinations, such as the hosts of
// customers. [Unavailable], [Throttled] and transient errors then apply to the delivery's
// destination: deliveries to it wait, parked and without using up attempts, and deliveries to
// other destinations continue. The destinations share the slots of the sink's parallelism
// evenly, unless the sink has the setting fairness.
type Addresser interface {
	// Destination names the destination of a delivery, such as a scheme, host and port; ""
	// means the sink as a whole. It is called for each delivery, concurrently with
	// deliveries. It must return at once and depend only on the delivery. The name is shown
	// in logs and in status, so it must not contain a secret.
	Destination(d *notification.Delivery) string
}

// Opener is a sink that prepares something before the first delivery, such as connections or
// templates. Open should not fail because the destination is down; deliveries then return
// [Unavailable]. While Open fails, the sink is unavailable, and later deliveries call Open again.
// Calls for one name in the configuration never overlap.
type Opener interface {
	Open(ctx context.Context) error
}

// Closer is a sink that must release resources. Close is called once, after the last call of
// Deliver. Only abandoned calls, whose contexts have ended, may still run: Close ends them if it
// can, by closing what they wait for, and returns when ctx ends even if they still run. A call
// that finds the sink closed must not return a permanent error.
type Closer interface {
	Close(ctx context.Context) error
}

// HealthChecker is a sink that can check whether its destination would accept a delivery now,
// without making one. CheckHealth may be called at any time, concurrently with deliveries.
type HealthChecker interface {
	CheckHealth(ctx context.Context) error
}

// Func makes a sink of a function that needs no configuration.
type Func func(ctx context.Context, d *notification.Delivery) (notification.Receipt, error)

// Deliver calls f.
func (f Func) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	return f(ctx, d)
}

// RevealsPrivate implements [Revealer].
func (Func) RevealsPrivate() bool { return true }

var _ Sink = Func(nil)
