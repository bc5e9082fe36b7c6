package program

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/dashboard"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/internal/endpoint"
	"github.com/waybill-go/waybill/framework/observe"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/otlp"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// observed loads the configuration, and makes the monitor and the dashboard. The monitor
// observes the forwarder only if its metrics are served or sent.
func (f *forward) observed() (*config.Config, error) {
	// Loading the whole configuration below reports the mistakes.
	address, _ := config.LoadAddress(f.source)
	databases, several, _ := config.LoadFleet(f.source)
	f.monitor = observe.New(observe.Config{Version: readBuild(f.Name).Version, Types: true, Databases: len(databases) > 0 || several.Query != "", Logger: f.Logger})
	if address != "" || f.push {
		f.Options.Observer = observe.Join(f.Options.Observer, f.monitor)
	}
	f.Options.Published = f.monitor.Published
	c, err := loadForwarding(f.source, f.Options)
	if err != nil {
		return nil, err
	}
	f.address, f.pprof = c.Observe.Address, c.Observe.Pprof
	if f.dashboard, err = dashboard.New(dashboard.Config{Observe: c.Observe, List: f.listed, Open: f.targetIn, Logger: f.Logger}); err != nil {
		return nil, &command.UsageError{Err: fmt.Errorf("observe.auth: %w", err)}
	}
	return c, nil
}

// show adds an engine with its current configuration to the dashboard, and its schedules' types
// to the metrics.
func (f *forward) show(e *engine) {
	for _, s := range e.config.Schedules {
		f.monitor.ExpectTypes(s.Type)
	}
	f.fleet.Store(nil)
	if e.fleet != nil {
		shown := &shownFleet{e, f.target(e)}
		f.fleet.Store(shown)
		e.hide = func() { f.fleet.CompareAndSwap(shown, nil) }
	} else {
		e.hide = f.dashboard.Show(f.target(e))
	}
}

// shownFleet is a fleet that the dashboard shows. The target has what all of its databases share.
type shownFleet struct {
	*engine
	target dashboard.Target
}

// listed returns the databases of a fleet; nil if there is no fleet.
func (f *forward) listed() []dashboard.Listed {
	e := f.fleet.Load()
	if e == nil {
		return nil
	}
	all := []dashboard.Listed{}
	for _, d := range e.fleet.Databases() {
		all = append(all, dashboard.Listed{Name: d.Database, State: string(d.State), Error: d.Error})
	}
	return all
}

// targetIn returns one database of a fleet, if this process has opened it.
func (f *forward) targetIn(name string) (dashboard.Target, bool) {
	e := f.fleet.Load()
	if e == nil {
		return dashboard.Target{}, false
	}
	for _, d := range e.fleet.Databases() {
		if s, ok := d.Store.(admin.Store); ok && d.Database == name {
			t := e.target
			t.Store, t.Database, t.Endpoints = s, name, endpointsOf(e.config, d.Store)
			t.Doctor = func(ctx context.Context, only ...string) []doctor.Finding {
				return f.findings(ctx, e.sourceIn(f.source, name), only...)
			}
			return t, true
		}
	}
	return dashboard.Target{}, false
}

// sourceIn returns the configuration's source for one database of a fleet.
func (e *engine) sourceIn(source config.Source, name string) config.Source {
	for _, d := range e.fleet.Listed() {
		if d.Name == name {
			source.Database = d.Address
		}
	}
	return source
}

func (f *forward) target(e *engine) dashboard.Target {
	text, err := e.config.Show()
	t := dashboard.TargetOf(e.config.ForwarderConfig(e.store))
	t.Forwarder, t.Endpoints = e.Forwarder, endpointsOf(e.config, e.store)
	t.Contracts, t.Channels = e.config.Contracts, e.config.Channels() // the file may add to both
	t.Doctor = func(ctx context.Context, only ...string) []doctor.Finding { return f.findings(ctx, f.source, only...) }
	t.Configuration = func() ([]byte, error) { return text, err }
	return t
}

// endpointsOf returns what manages the endpoints of customers in an outbox; nil if the configuration has none.
func endpointsOf(c *config.Config, of any) *webhooks.Endpoints {
	sink, _ := endpoint.SinkOf(c.ForwarderConfig(nil).Sinks)
	outbox, is := of.(webhooks.Store)
	if sink == nil || !is {
		return nil
	}
	all, _ := sink.Endpoints(outbox, "") // Load has checked the settings
	return all
}

// findings returns what waybill doctor would report.
func (f *forward) findings(ctx context.Context, source config.Source, only ...string) []doctor.Finding {
	found, err := examineOutbox(ctx, f.Invocation, source, "", doctor.Options{Only: only})
	if err != nil {
		return []doctor.Finding{{ID: "configuration", Status: doctor.Fail, Text: err.Error()}}
	}
	return found
}

// changeAccess applies a change of who may use the dashboard.
func (f *forward) changeAccess(o settings.Observe) {
	if err := f.dashboard.Change(o); err != nil { // unexpected: loading has checked it
		f.refuse(err)
	}
	if o.Address != f.address || o.Pprof != f.pprof {
		f.Logger.Warn("a change of observe.address or observe.pprof applies when the program is started again")
	}
}

// serve starts to serve the dashboard, metrics and probes if the configuration has an address, and
// to send metrics if the environment asks for it. Once ctx is done the program reports that it is
// not ready; it answers requests until end is called.
func (f *forward) serve(ctx context.Context, c *config.Config) (end func(), err error) {
	var ends []func()
	end = func() {
		for _, each := range slices.Backward(ends) {
			each()
		}
	}
	ends = append(ends, onDone(ctx, func() {
		f.monitor.Stop()
		notify(daemon.SdNotifyStopping)
	}))
	if c.Observe.Address == "" && !f.push {
		return end, nil
	}
	f.monitor.Expect(slices.Collect(maps.Keys(c.Sinks))...)
	var work sync.WaitGroup
	ends = append(ends, work.Wait)
	if c.Observe.Address != "" {
		unserve, err := f.monitor.Serve(c.Observe.Address, f.dashboard)
		if err != nil {
			end()
			return nil, fmt.Errorf("observe.address: %w", err)
		}
		ends = append(ends, unserve)
	}
	sampling, stop := context.WithCancel(context.WithoutCancel(ctx))
	work.Go(func() { f.monitor.Run(sampling) })
	ends = append(ends, stop)
	if f.push {
		finish, err := otlp.Push(ctx, f.monitor.Gatherer(), f.service, f.Logger)
		if err != nil {
			end()
			return nil, err
		}
		f.Logger.Info("sending metrics by OTLP")
		ends = append(ends, finish)
	}
	return end, nil
}

// watchdog notifies systemd twice in each watchdog interval while the program is alive.
func (f *forward) watchdog(ctx context.Context) (end func()) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil || interval <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // also while deliveries in flight end
	var work sync.WaitGroup
	work.Go(func() {
		ticks := time.NewTicker(interval / 2)
		defer ticks.Stop()
		for {
			if err := f.monitor.Live(); err == nil {
				notify(daemon.SdNotifyWatchdog)
			} else {
				f.Logger.Error("the program is stuck: systemd's watchdog is not fed", "error", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
		}
	})
	return func() { cancel(); work.Wait() }
}

// notify sends the program's state to systemd, if systemd started it. Errors do not matter.
func notify(lines ...string) {
	_, _ = daemon.SdNotify(false, strings.Join(lines, "\n"))
}
