// Package acts runs plans in the background, for requests that do not wait for their end.
package acts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

// Limit is how many plans run at once.
const Limit = 4

// ErrBusy: as many plans run as may.
var ErrBusy = fmt.Errorf("%d actions are under way here: wait for one to end, or cancel one", Limit)

// Plan is one of package admin.
type Plan interface {
	Total() int64
	Run(ctx context.Context, progress admin.Progress) (store.Action, error)
}

// Act is an action that runs in this process.
type Act = store.Action

// Runner runs plans. It is safe for concurrent use.
type Runner struct {
	log  *slog.Logger
	stop context.CancelFunc
	ctx  context.Context
	work sync.WaitGroup

	mu      sync.Mutex
	count   int // of plans that run, also before their action is recorded
	running map[string]*running
}

type running struct {
	act    Act
	cancel context.CancelFunc
}

// New returns a Runner, which logs plans that fail.
func New(log *slog.Logger) *Runner {
	r := &Runner{log: log, running: make(map[string]*running)}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

// Close interrupts what runs, between two of its batches, and waits for that. Start returns
// an error from then on.
func (r *Runner) Close() {
	r.mu.Lock()
	r.stop() // under the lock, so that no plan is added to those that are waited for
	r.mu.Unlock()
	r.work.Wait()
}

// Start begins to run a plan and returns its action once that is recorded. The plan runs on
// when ctx is done. ErrBusy if Limit plans run.
func (r *Runner) Start(ctx context.Context, p Plan) (store.Action, error) {
	run := &running{}
	var runs context.Context
	runs, run.cancel = context.WithCancel(r.ctx)
	if err := r.enter(); err != nil {
		run.cancel()
		return store.Action{}, err
	}
	recorded, failed := make(chan store.Action, 1), make(chan error, 1)
	go func() {
		defer r.work.Done()
		defer run.cancel()
		action, err := p.Run(runs, func(a store.Action) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if run.act = a; r.running[a.ID] == nil {
				r.running[a.ID] = run
				recorded <- a
			}
		})
		begun := r.leave(run)
		if !begun {
			failed <- err // which Start returns
		} else if err != nil && !errors.Is(err, store.ErrActionCancelled) {
			r.log.Error("an action of the dashboard ended before its time", "action", action.ID, "name", action.Name, "done", action.Count, "planned", action.Planned, "error", err)
		}
	}()
	select {
	case a := <-recorded:
		return a, nil
	case err := <-failed:
		return store.Action{}, err
	case <-ctx.Done():
		run.cancel()
		return store.Action{}, ctx.Err()
	}
}

// Go runs something else in the background, whose context ends with Close.
func (r *Runner) Go(run func(ctx context.Context)) { r.work.Go(func() { run(r.ctx) }) }

func (r *Runner) enter() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if r.count == Limit {
		return ErrBusy
	}
	r.count++
	r.work.Add(1)
	return nil
}

// leave ends a run, and reports whether its action was recorded.
func (r *Runner) leave(run *running) (begun bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count--
	if begun = r.running[run.act.ID] == run; begun {
		delete(r.running, run.act.ID)
	}
	return begun
}

// Cancel interrupts an action between two of its batches. It reports false if no such action
// runs in this process. See admin.Admin.Cancel, which cancels it in any process and records
// that.
func (r *Runner) Cancel(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	running := r.running[id]
	if running == nil {
		return false
	}
	running.cancel()
	return true
}

// Running lists the actions that run in this process, the newest first.
func (r *Runner) Running() (acts []Act) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, running := range r.running {
		acts = append(acts, running.act)
	}
	slices.SortFunc(acts, func(a, b Act) int { return b.At.Compare(a.At) })
	return acts
}
