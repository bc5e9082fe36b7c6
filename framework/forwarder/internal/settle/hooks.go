package settle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder/internal/dispatch"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/store"
)

// hookError is a hook's error, which rolled back a checkpoint.
type hookError struct {
	hook string
	err  error
}

func (e *hookError) Error() string { return fmt.Sprintf("%s: %v", e.hook, e.err) }
func (e *hookError) Unwrap() error { return e.err }

// errHookPanic: a hook panicked.
var errHookPanic = errors.New("hook panicked")

type hookCall struct {
	name string
	run  func(ctx context.Context, tx *sql.Tx) error
}

// runHooks returns a function that runs the hooks in the transaction of a checkpoint, for the
// settlements that are not held back; nil if there is nothing to run. Each hook may take limit.
func runHooks(h policy.Hooks, settled []dispatch.Settlement, limit time.Duration) func(context.Context, *sql.Tx) error {
	var delivered []policy.Delivered
	var parked, dead []event.Parked
	if h.Any() {
		delivered, parked, dead = sorted(settled)
	}
	var calls []hookCall
	if h.Delivered != nil && len(delivered) > 0 {
		calls = append(calls, hookCall{"Hooks.Delivered", func(ctx context.Context, tx *sql.Tx) error { return h.Delivered(ctx, tx, delivered) }})
	}
	if h.Parked != nil && len(parked) > 0 {
		calls = append(calls, hookCall{"Hooks.Parked", func(ctx context.Context, tx *sql.Tx) error { return h.Parked(ctx, tx, parked) }})
	}
	if h.Dead != nil && len(dead) > 0 {
		calls = append(calls, hookCall{"Hooks.Dead", func(ctx context.Context, tx *sql.Tx) error { return h.Dead(ctx, tx, dead) }})
	}
	if calls == nil {
		return nil
	}
	return func(ctx context.Context, tx *sql.Tx) error {
		for _, call := range calls {
			if err := runHook(ctx, limit, tx, call); err != nil {
				return &hookError{call.name, err}
			}
		}
		return nil
	}
}

// runHook runs a hook with a time limit, so that the lease survives. It turns a panic into an
// error.
func runHook(ctx context.Context, limit time.Duration, tx *sql.Tx, call hookCall) (err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v\n%s", errHookPanic, p, debug.Stack())
		}
	}()
	return call.run(ctx, tx)
}

// sorted groups settlements by their outcome.
func sorted(settled []dispatch.Settlement) (delivered []policy.Delivered, parked, dead []event.Parked) {
	for s := range each(settled) {
		switch {
		case s.HeldBack || s.IsMember():
		case s.Delivered:
			delivered = append(delivered, policy.Delivered{Delivery: s.Delivery(), Receipt: s.Receipt})
		case s.Parked == nil:
		case s.Parked.State == store.StateDead:
			dead = append(dead, parkedOf(s))
		default:
			parked = append(parked, parkedOf(s))
		}
	}
	return delivered, parked, dead
}

func parkedOf(s *dispatch.Settlement) event.Parked {
	d := *s.Delivery()
	d.Attempt = s.Parked.Attempt
	return event.Parked{Delivery: &d, State: s.Parked.State, DueAt: s.Parked.DueAt, Error: s.Parked.LastError, Attempts: s.Parked.Attempts, Reason: s.Dead}
}
