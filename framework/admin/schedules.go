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
	all, err := a.store.Schedules(ctx)
	return slices.DeleteFunc(all, store.Schedule.IsOwn), err
}

// onSchedule returns what acts on existing schedules and records an action for each.
func onSchedule(what string, do func(ctx context.Context, s Store, action, name string) (bool, error)) func(context.Context, *Admin, []string) ([]string, error) {
	return func(ctx context.Context, a *Admin, schedules []string) (changed []string, err error) {
		all, err := a.Schedules(ctx)
		if err != nil {
			return nil, err
		}
		names := make([]string, len(all))
		for i, s := range all {
			names[i] = s.Name
		}
		for _, name := range schedules {
			if !slices.Contains(names, name) {
				return changed, fmt.Errorf("%s: %w %q: the outbox has %s", what, store.ErrUnknownSchedule, name, cmp.Or(strings.Join(names, ", "), "none yet"))
			}
			action, err := a.begin(ctx, what, map[string]string{"schedule": name}, 0)
			if err != nil {
				return changed, err
			}
			did, err := do(ctx, a.store, action.ID, name)
			if err != nil {
				return changed, err
			}
			if did {
				changed = append(changed, name)
			}
			if err := a.end(ctx, &action); err != nil {
				return changed, err
			}
		}
		return changed, nil
	}
}
