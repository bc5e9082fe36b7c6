package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/store"
)

// Schedules returns the schedules of the outbox, by name.
func (a *Admin) Schedules(ctx context.Context) ([]store.Schedule, error) {
	return a.store.Schedules(ctx)
}

// PauseSchedule lets the ticks of a schedule pass without a notification until ResumeSchedule,
// and reports whether that changes anything. An unknown schedule fails with
// store.ErrUnknownSchedule.
func (a *Admin) PauseSchedule(ctx context.Context, name string) (changed bool, err error) {
	err = a.onSchedule(ctx, "pause schedule", name, func(action string) error {
		changed, err = a.store.PauseSchedule(ctx, action, name, true)
		return err
	})
	return changed, err
}

// ResumeSchedule ends PauseSchedule. Ticks that passed meanwhile are not made up for.
func (a *Admin) ResumeSchedule(ctx context.Context, name string) (changed bool, err error) {
	err = a.onSchedule(ctx, "resume schedule", name, func(action string) error {
		changed, err = a.store.PauseSchedule(ctx, action, name, false)
		return err
	})
	return changed, err
}

// RunSchedule requests an extra tick now, even if the schedule is paused: a process that runs
// the schedule makes it within five seconds. It reports whether that changes anything: while a
// request is pending, further ones add nothing.
func (a *Admin) RunSchedule(ctx context.Context, name string) (changed bool, err error) {
	err = a.onSchedule(ctx, "run schedule", name, func(action string) error {
		changed, err = a.store.RequestTick(ctx, action, name)
		return err
	})
	return changed, err
}

// ForgetSchedule deletes the stored state of a schedule that no process runs any more. If a
// process still runs it, it appears again at once, as a new schedule.
func (a *Admin) ForgetSchedule(ctx context.Context, name string) error {
	return a.onSchedule(ctx, "forget schedule", name, func(action string) error {
		return a.store.ForgetSchedule(ctx, action, name)
	})
}

// onSchedule records an action on an existing schedule.
func (a *Admin) onSchedule(ctx context.Context, what, name string, do func(action string) error) error {
	all, err := a.store.Schedules(ctx)
	if err != nil {
		return err
	}
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.Name
	}
	if !slices.Contains(names, name) {
		return fmt.Errorf("%s: %w %q: the outbox has %s", what, store.ErrUnknownSchedule, name, cmp.Or(strings.Join(names, ", "), "none yet"))
	}
	action, err := a.begin(ctx, what, map[string]string{"schedule": name}, 0)
	if err != nil {
		return err
	}
	if err := do(action.ID); err != nil {
		return err
	}
	return a.end(ctx, &action)
}
