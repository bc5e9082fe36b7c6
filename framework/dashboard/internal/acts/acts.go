// Package acts runs plans in the background, for requests that do not wait for their end.
package acts

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

// Plan is one of package admin.
type Plan interface {
	Total() int64
	Run(ctx context.Context, progress admin.Progress) (store.Action, error)
}

// Act is a plan that runs.
type Act struct {
	store.Action
	Planned int64
}

// Runner runs plans. It is safe for concurrent use.
type Runner struct {
	log  *slog.Logger
	stop context.CancelFunc
	ctx  context.Context
	work sync.WaitGroup

	mu      sync.Mutex
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

// Close interrupts what runs, between two of its batches, and waits for that.
func (r *Runner) Close() {
	r.stop()
	r.work.Wait()
}

// Start begins to run a plan and returns its action once that is recorded. The plan runs on
// when ctx is done.
func (r *Runner) Start(ctx context.Context, p Plan) (store.Action, error) {
	running := &running{act: Act{Planned: p.Total()}}
	var runs context.Context
	runs, running.cancel = context.WithCancel(r.ctx)
	recorded, failed := make(chan store.Action, 1), make(chan error, 1)
	r.work.Go(func() {
		defer running.cancel()
		action, err := p.Run(runs, func(a store.Action) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if running.act.Action = a; r.running[a.ID] == nil {
				r.running[a.ID] = running
				recorded <- a
			}
		})
		r.mu.Lock()
		delete(r.running, action.ID)
		r.mu.Unlock()
		if err != nil {
			failed <- err
			r.log.Error("an action of the dashboard ended before its time", "action", action.ID, "name", action.Name, "done", action.Count, "planned", p.Total(), "error", err)
		}
	})
	select {
	case a := <-recorded:
		return a, nil
	case err := <-failed:
		return store.Action{}, err
	case <-ctx.Done():
		running.cancel()
		return store.Action{}, ctx.Err()
	}
}

// Go runs something else in the background, whose context ends with Close.
func (r *Runner) Go(run func(ctx context.Context)) { r.work.Go(func() { run(r.ctx) }) }

// Cancel interrupts an action between two of its batches. It reports false if no such action
// runs in this process.
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
