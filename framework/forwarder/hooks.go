package forwarder

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// inTx returns what is to run in the transaction of a checkpoint; nil if there is
// nothing. Each hook gets limit for its work.
func (h *Hooks) inTx(sink string, out *outcome, limit time.Duration) func(context.Context, *sql.Tx) error {
	var calls []func(context.Context, *sql.Tx) error
	if h.Delivered != nil && len(out.delivered) > 0 {
		calls = append(calls, func(ctx context.Context, tx *sql.Tx) error {
			return named("Hooks.Delivered", h.Delivered(ctx, tx, out.delivered))
		})
	}
	if h.Parked != nil || h.Dead != nil {
		parked, dead := parkedOf(sink, out.park)
		if h.Parked != nil && len(parked) > 0 {
			calls = append(calls, func(ctx context.Context, tx *sql.Tx) error { return named("Hooks.Parked", h.Parked(ctx, tx, parked)) })
		}
		if h.Dead != nil && len(dead) > 0 {
			calls = append(calls, func(ctx context.Context, tx *sql.Tx) error { return named("Hooks.Dead", h.Dead(ctx, tx, dead)) })
		}
	}
	if calls == nil {
		return nil
	}
	return func(ctx context.Context, tx *sql.Tx) error {
		for _, call := range calls {
			if err := runHook(ctx, limit, tx, call); err != nil {
				return err
			}
		}
		return nil
	}
}

func named(hook string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", hook, err)
	}
	return nil
}

// errHookPanic: a hook panicked.
var errHookPanic = errors.New("hook panicked")

// runHook runs a hook within a time that leaves the lease alive. A panic is an error
// of the hook.
func runHook(ctx context.Context, limit time.Duration, tx *sql.Tx, hook func(context.Context, *sql.Tx) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v\n%s", errHookPanic, p, debug.Stack())
		}
	}()
	return hook(ctx, tx)
}

// parkedOf tells what is dead from what is parked for some time.
func parkedOf(sink string, all []store.Parked) (parked, dead []Parked) {
	for i := range all {
		p := &all[i]
		d := Parked{
			Delivery: &notification.Delivery{Envelope: &p.Envelope, Sink: sink, Attempt: p.Attempt},
			State:    p.State, DueAt: p.DueAt, Error: p.LastError,
		}
		if p.State == store.StateDead {
			dead = append(dead, d)
		} else {
			parked = append(parked, d)
		}
	}
	return parked, dead
}
