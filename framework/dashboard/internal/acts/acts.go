// Package acts runs plans in the background, so that requests need not wait for them to end.
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

// Limit is how many plans may run at once.
const Limit = 4

// ErrBusy means that Limit plans are running.
var ErrBusy = fmt.Errorf("%d actions are running in this process: wait for one to end, or cancel one", Limit)

// Runner runs plans. It is safe for concurrent use.
type Runner struct {
	log  *slog.Logger
	stop context.CancelFunc
	ctx  context.Context
	work sync.WaitGroup

	mu      sync.Mutex
	count   int // of running plans, including those whose action is not recorded yet
	running map[string]*running
}

type running struct {
	act    store.Action
	cancel context.CancelFunc
}

// New returns a Runner. It logs plans that fail.
func New(log *slog.Logger) *Runner {
	r := &Runner{log: log, running: make(map[string]*running)}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

// Close interrupts running plans after their current batch and waits for them to end. Start then
// returns an error.
func (r *Runner) Close() {
	r.mu.Lock()
	r.stop() // under the lock, so that no plan starts after Wait
	r.mu.Unlock()
	r.work.Wait()
}

// Start runs a plan in the background, and returns its action as soon as the action is recorded.
// If ctx is done before that, the plan is interrupted; later, the plan runs independently of ctx.
// Start returns ErrBusy if Limit plans are running.
func (r *Runner) Start(ctx context.Context, p admin.Planned) (store.Action, error) {
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
			failed <- err // Start returns it
		} else if err != nil && !errors.Is(err, store.ErrActionCancelled) {
			r.log.Error("an action of the dashboard was interrupted", "action", action.ID, "name", action.Name, "done", action.Count, "planned", action.Planned, "error", err)
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

// Go runs a function in the background. Close cancels its context and waits for it to return.
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

// Cancel interrupts an action of this process after its current batch; false if there is none with
// this id. admin.Admin.Cancel cancels an action in any process, and records that.
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

// Running returns the running actions of this process, the newest first.
func (r *Runner) Running() (acts []store.Action) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, running := range r.running {
		acts = append(acts, running.act)
	}
	slices.SortFunc(acts, func(a, b store.Action) int { return b.At.Compare(a.At) })
	return acts
}
