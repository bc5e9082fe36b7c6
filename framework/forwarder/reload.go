package forwarder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/waybill-go/waybill/framework/forwarder/internal/coordinate"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/route"
)

// Reload takes over other sinks and routes while Run runs. A sink that is what it was, the
// same Sink with the same rules, goes on and is only adjusted; see [Forwarder.Adjust]. For
// each other one the forwarder gives its lanes back, lets what is in flight end within the
// shutdown timeout, and goes on with what is new; for one that is not given any more it
// stops. Others are not touched. Hooks and middleware are the same only if they are the
// very values that were given before.
//
// Sinks that are new are opened first. If one does not open, or the configuration makes
// no sense, that is the error, and nothing has changed. Reload returns when nothing that was
// replaced is under way any more, and it is closed; it does not wait for the database. The
// Stats of what was replaced begin again at 0. One Reload waits for another.
func (f *Forwarder) Reload(ctx context.Context, to map[string]Sink, routes route.Routes) error {
	f.changing.Lock()
	defer f.changing.Unlock()
	c := f.config
	c.Sinks, c.Routes = to, routes
	c = c.WithDefaults()
	table, err := c.compile()
	if err != nil {
		return err
	}
	before, next := f.working(), f.work(c.Sinks, table)
	kept := make(map[string]policy.Settings)
	var replaced []string // and added, and removed
	for name, w := range next {
		if old := before[name]; old != nil && old.likewise(w) {
			kept[name], next[name] = w.settings(), old
		} else {
			replaced = append(replaced, name)
		}
	}
	for name := range before {
		if next[name] == nil {
			replaced = append(replaced, name)
		}
	}
	for _, name := range replaced {
		if w := next[name]; w != nil {
			if err := w.caller.Open(ctx); err != nil {
				return errors.Join(fmt.Errorf("sink %s: %w", name, err), f.closeUnused(ctx, before))
			}
		}
	}
	outboxes, runs := f.swap(next, slices.Collect(maps.Keys(c.Sinks)), table)
	if !runs {
		return errors.Join(ErrNotRunning, f.closeUnused(ctx, before))
	}
	f.running.takeOver(c)
	f.share(func(*fleet) {})
	for name, settings := range kept {
		next[name].dispatcher.Adjust(settings)
	}
	var changes sync.WaitGroup
	for _, name := range replaced {
		changes.Go(func() {
			change(outboxes, name, next[name])
			if old := before[name]; old != nil {
				old.dispatcher.Stop()
				f.running.ended(old.dispatcher.Stats())
			}
		})
	}
	changes.Wait()
	if err := f.closeUnused(ctx, next); err != nil {
		f.config.Logger.Warn("a sink that was replaced did not close well", "error", err)
	}
	return nil
}

// swap makes sinks those of the forwarder, and returns the outboxes whose coordinators have to know; false
// if Run does not run.
func (f *Forwarder) swap(next map[string]*working, configured []string, routes *route.Table) (outboxes []*outbox, runs bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stop == nil {
		return nil, false
	}
	f.sinks, f.configured, f.routes = next, configured, routes
	return slices.Clone(f.outboxes), true
}

// change has a sink worked on otherwise in all outboxes, or no longer if w is nil, and returns once nothing
// of what was is under way.
func change(outboxes []*outbox, name string, w *working) {
	var all sync.WaitGroup
	for _, o := range outboxes {
		all.Go(func() {
			var sink *coordinate.Sink
			if w != nil {
				sink = new(o.sink(w))
			}
			o.coordinator.Change(name, sink)
		})
	}
	all.Wait()
}

// closeUnused closes what is open and none of some sinks.
func (f *Forwarder) closeUnused(ctx context.Context, used map[string]*working) error {
	f.mu.Lock()
	var unused []opened
	f.opened = slices.DeleteFunc(f.opened, func(o opened) bool {
		for _, w := range used {
			if isSame(w.Sink.Sink, o.sink) {
				return false
			}
		}
		unused = append(unused, o)
		return true
	})
	f.mu.Unlock()
	return f.close(ctx, unused)
}
