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

// Reload replaces sinks and routes while Run runs. A sink that stays the same continues
// without interruption and is only adjusted; see [Forwarder.Adjust]. It stays the same if it is
// the same Sink value, with the same routes and identical hooks and middleware. For
// each other sink, the forwarder releases its lanes, lets deliveries in flight end within the
// shutdown timeout, and continues with the new one. Sinks that are missing from the map stop.
//
// Reload opens new sinks first. If one does not open, or the configuration is not valid, it
// returns that error and changes nothing. It returns when the replaced sinks have stopped and
// are closed; it does not wait for the database. The Stats of replaced sinks begin again at 0.
// Concurrent calls run one after the other.
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
	before, next := f.activeSinks(), f.newSinks(c.Sinks, table)
	kept := make(map[string]policy.Settings)
	var replaced []string // names of replaced, added and removed sinks
	for name, a := range next {
		if old := before[name]; old != nil && old.differsOnlyInSettings(a) {
			kept[name], next[name] = a.settings(), old
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
		if a := next[name]; a != nil {
			if err := a.caller.Open(ctx); err != nil {
				return errors.Join(fmt.Errorf("sink %s: %w", name, err), f.closeUnused(ctx, before))
			}
		}
	}
	outboxes, runs := f.swap(next, slices.Collect(maps.Keys(c.Sinks)), table)
	if !runs {
		return errors.Join(ErrNotRunning, f.closeUnused(ctx, before))
	}
	f.reporter.configure(c)
	f.share(func(*rateShare) {})
	for name, settings := range kept {
		next[name].dispatcher.Adjust(settings)
	}
	var changes sync.WaitGroup
	for _, name := range replaced {
		changes.Go(func() {
			change(outboxes, name, next[name])
			if old := before[name]; old != nil {
				old.dispatcher.Stop()
				f.reporter.ended(old.dispatcher)
			}
		})
	}
	changes.Wait()
	if err := f.closeUnused(ctx, next); err != nil {
		f.config.Logger.Warn("closing a replaced sink failed", "error", err)
	}
	return nil
}

// swap replaces the forwarder's sinks and returns the outboxes whose coordinators must change
// them; false if Run is not running.
func (f *Forwarder) swap(next map[string]*activeSink, configured []string, routes *route.Table) (outboxes []*outbox, runs bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stop == nil {
		return nil, false
	}
	f.sinks, f.configured, f.routes = next, configured, routes
	return slices.Clone(f.outboxes), true
}

// change replaces a sink in all outboxes, or stops it if a is nil, and returns when the work
// with the old one has ended.
func change(outboxes []*outbox, name string, a *activeSink) {
	var all sync.WaitGroup
	for _, o := range outboxes {
		all.Go(func() {
			var sink *coordinate.Sink
			if a != nil {
				sink = new(o.sink(a))
			}
			o.coordinator.Change(name, sink)
		})
	}
	all.Wait()
}

// closeUnused closes the open sinks that are not in used.
func (f *Forwarder) closeUnused(ctx context.Context, used map[string]*activeSink) error {
	f.mu.Lock()
	var unused []opened
	f.opened = slices.DeleteFunc(f.opened, func(o opened) bool {
		for _, a := range used {
			if isSame(a.Sink.Sink, o.sink) {
				return false
			}
		}
		unused = append(unused, o)
		return true
	})
	f.mu.Unlock()
	return f.close(ctx, unused)
}
