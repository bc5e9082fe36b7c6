package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
)

// Operation is something that people do to an outbox. The command line, the pages and the API
// have the same ones, from the tables in this file.
type Operation struct {
	// Name is the verb, such as requeue, and Done its participle, such as requeued.
	Name, Done string
	// Unchanged is what to say of a thing to which nothing was done, such as "was paused already".
	Unchanged string
	// About explains it to a person who is asked to confirm it.
	About string
	// Danger says that it cannot be undone, or stops deliveries.
	Danger bool

	plan func(ctx context.Context, a *Admin, t Task) (Planned, error)
	act  func(ctx context.Context, a *Admin, names []string) (changed []string, err error)
}

// Planned is what all plans have: see Plan, ReplayPlan and PurgePlan.
type Planned interface {
	Total() int64
	Expect(n int64) error
	Run(ctx context.Context, progress Progress) (store.Action, error)
}

var (
	_ Planned = (*Plan)(nil)
	_ Planned = (*ReplayPlan)(nil)
)

// Task is what to plan: an operation and what it is about.
type Task struct {
	// Operation is the name of one of OnDeliveries.
	Operation string
	// Filter selects parked deliveries; a replay has Replay instead, a purge Purge, and an erasure Erase.
	Filter Filter
	Replay ReplayRequest
	Purge  PurgeRequest
	Erase  EraseRequest
	// Routes are those of the configuration. Without them, nothing can be rerouted.
	Routes *route.Table
}

// EraseRequest is a person, as the application names them, and what finds their keys; see Admin.Erase.
type EraseRequest struct {
	Subject string
	Keys    *privacy.Keyring
}

// OnDeliveries are the operations on many deliveries: each is planned, and then run.
var OnDeliveries = []Operation{
	{
		Name: "requeue", Done: "requeued",
		About: "These deliveries are tried again at once, with all their attempts. If several of one key are dead, they are delivered in order.",
		plan:  func(ctx context.Context, a *Admin, t Task) (Planned, error) { return a.Requeue(ctx, t.Filter) },
	},
	{
		Name: "discard", Done: "discarded", Danger: true,
		About: "These deliveries are deleted and never made. This cannot be undone.",
		plan:  func(ctx context.Context, a *Admin, t Task) (Planned, error) { return a.Discard(ctx, t.Filter) },
	},
	{
		Name: "skip", Done: "skipped", Danger: true,
		About: "The first dead delivery of each key is deleted and never made, so that the deliveries that it blocks continue. This cannot be undone.",
		plan:  func(ctx context.Context, a *Admin, t Task) (Planned, error) { return a.Skip(ctx, t.Filter) },
	},
	{
		Name: "reroute", Done: "rerouted",
		plan: func(ctx context.Context, a *Admin, t Task) (Planned, error) {
			return a.Reroute(ctx, t.Filter, t.Routes)
		},
	},
	{
		Name: replayAction, Done: "replayed",
		plan: func(ctx context.Context, a *Admin, t Task) (Planned, error) { return a.Replay(ctx, t.Replay) },
	},
	{
		Name: purgeAction, Done: "purged", Danger: true,
		plan: func(ctx context.Context, a *Admin, t Task) (Planned, error) { return a.Purge(ctx, t.Purge) },
	},
	{
		Name: eraseAction, Done: "erased", Danger: true,
		plan: func(ctx context.Context, a *Admin, t Task) (Planned, error) {
			p, err := a.Erase(ctx, t.Erase.Keys, t.Erase.Subject)
			if err != nil {
				return nil, err
			}
			return p, nil
		},
	},
}

// OnSinks are the operations on sinks by their names.
var OnSinks = []Operation{
	{
		Name: "pause", Done: "paused", Unchanged: "was paused already", Danger: true,
		About: "This stops deliveries to the sink until you resume it. Until then the log keeps new notifications for it.",
		act:   func(ctx context.Context, a *Admin, sinks []string) ([]string, error) { return a.Pause(ctx, sinks...) },
	},
	{
		Name: "resume", Done: "resumed", Unchanged: "was not paused",
		About: "Deliveries to the sink continue where they stopped.",
		act:   func(ctx context.Context, a *Admin, sinks []string) ([]string, error) { return a.Resume(ctx, sinks...) },
	},
}

// OnSchedules are the operations on schedules by their names. Each fails with
// store.ErrUnknownSchedule if there is no such schedule.
var OnSchedules = []Operation{
	{
		Name: "run", Done: "requested a tick of", Unchanged: "has a requested tick already",
		About: "A process that runs the schedule makes an extra tick within five seconds, even if the schedule is paused.",
		act: onSchedule("run schedule", func(ctx context.Context, s Store, action, name string) (bool, error) {
			return s.RequestTick(ctx, action, name)
		}),
	},
	{
		Name: "pause", Done: "paused", Unchanged: "was paused already",
		About: "The schedule makes no ticks until you resume it, and does not catch up on them later.",
		act: onSchedule("pause schedule", func(ctx context.Context, s Store, action, name string) (bool, error) {
			return s.PauseSchedule(ctx, action, name, true)
		}),
	},
	{
		Name: "resume", Done: "resumed", Unchanged: "was not paused",
		About: "The schedule continues with its next tick.",
		act: onSchedule("resume schedule", func(ctx context.Context, s Store, action, name string) (bool, error) {
			return s.PauseSchedule(ctx, action, name, false)
		}),
	},
	{
		Name: "forget", Done: "forgot", Danger: true,
		About: "The outbox deletes the state of this schedule. Do this for a schedule that is no longer in any configuration: if a process still runs it, it starts again from now.",
		act: onSchedule("forget schedule", func(ctx context.Context, s Store, action, name string) (bool, error) {
			return true, s.ForgetSchedule(ctx, action, name)
		}),
	},
}

// Named returns the operation of a name in one of the tables; false if there is none.
func Named(table []Operation, name string) (Operation, bool) {
	i := slices.IndexFunc(table, func(o Operation) bool { return o.Name == name })
	if i < 0 {
		return Operation{}, false
	}
	return table[i], true
}

// Names returns the names of a table's operations, as in "run, pause or resume".
func Names(table []Operation) string {
	names := make([]string, len(table))
	for i, o := range table {
		names[i] = o.Name
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// Plan counts what a task would change, and changes nothing. It fails with ErrFilter if there is
// no such operation.
func (a *Admin) Plan(ctx context.Context, t Task) (Planned, error) {
	o, known := Named(OnDeliveries, t.Operation)
	if !known {
		return nil, fmt.Errorf("%w: unknown action %q: use %s", ErrFilter, t.Operation, Names(OnDeliveries))
	}
	return o.plan(ctx, a, t)
}

// Do does an operation of OnSinks or OnSchedules, and returns the names to which something was
// done.
func (a *Admin) Do(ctx context.Context, o Operation, names ...string) (changed []string, err error) {
	return o.act(ctx, a, names)
}
