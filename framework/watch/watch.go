// Package watch serves the dashboards, the metrics and the probes of one outbox: package waybill with it, and
// programs that make their forwarder themselves.
//
//	w := watch.New(logger)
//	w.Observe("127.0.0.1:8090")
//	w.Join(&config) // of the forwarder
//	err := w.Show(watch.Outbox{Config: config, Forwarder: f, Subject: doctor.Subject{DB: db, PostgreSQL: &outbox}})
//	end, err := w.Run(ctx)
//	defer end() // once f.Run has returned
package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"

	"github.com/waybill-go/waybill/framework/dashboard"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/observe"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// Outbox is an open outbox.
type Outbox struct {
	// Config is the forwarder's configuration, and Forwarder nil if there are no sinks.
	Config    forwarder.Config
	Forwarder *forwarder.Forwarder
	// Endpoints are nil without a sink for them.
	Endpoints *webhooks.Endpoints
	// Subject is what the doctor examines.
	Subject doctor.Subject
}

// Watch is what observes one outbox. Call Observe, Dashboard, Join and Count first, from one goroutine, then Show and Run
// once each.
type Watch struct {
	// Monitor has the metrics and the probes.
	Monitor *observe.Monitor

	logger     *slog.Logger
	config     *dashboard.Config // of Observe; nil without it
	served     *dashboard.Dashboard
	dashboards []*dashboard.Dashboard // of Dashboard
	release    []func()
}

// New returns a watch whose metrics count by type what is published.
func New(logger *slog.Logger) *Watch {
	version := ""
	if build, known := debug.ReadBuildInfo(); known {
		version = build.Main.Version
	}
	return &Watch{logger: logger, Monitor: observe.New(observe.Config{Version: version, Types: true, Logger: logger})}
}

// Observe makes Run serve a dashboard, the metrics and the probes at an address. The returned settings, which are never nil,
// may be changed until Show.
func (w *Watch) Observe(address string) (c *dashboard.Config, err error) {
	if w.config != nil {
		err = errors.New("observe: Observe is called twice: one address serves everything")
	}
	if address == "" {
		err = errors.Join(err, errors.New("observe: the address is empty: use a host and a port, such as 127.0.0.1:8090"))
	}
	w.config = new(dashboard.Config)
	w.config.Address = address
	return w.config, err
}

// Dashboard returns a dashboard for a server of the program. If the settings have mistakes, it refuses everything.
func (w *Watch) Dashboard(c dashboard.Config) (http.Handler, error) {
	c.Logger = cmp.Or(c.Logger, w.logger)
	var err error
	if c.Authorize == nil && len(c.Auth.Users)+len(c.Auth.Tokens)+len(c.Auth.Proxy.Networks) == 0 {
		err = errors.New("it would be open to everyone: set Authorize, or Auth.Users, Auth.Tokens or Auth.Proxy")
	}
	d, mistakes := dashboard.New(c)
	if err := errors.Join(err, mistakes); err != nil {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "the dashboard has mistakes", http.StatusForbidden)
		}), fmt.Errorf("the dashboard at %q: %w", c.Prefix, err)
	}
	w.dashboards = append(w.dashboards, d)
	return d, nil
}

// Join makes a forwarder report to the monitor.
func (w *Watch) Join(c *forwarder.Config) { c.Observer = observe.Join(c.Observer, w.Monitor) }

// Count makes a publisher report to the monitor.
func (w *Watch) Count(c *outbox.Config) {
	also := c.Published
	c.Published = func(all []notification.Envelope) {
		w.Monitor.Published(all)
		if also != nil {
			also(all)
		}
	}
}

// Show makes the dashboards and the monitor show an outbox.
func (w *Watch) Show(o Outbox) error {
	shown := w.dashboards
	if w.config != nil {
		c := *w.config
		c.Logger = cmp.Or(c.Logger, w.logger)
		var err error
		if w.served, err = dashboard.New(c); err != nil {
			return fmt.Errorf("observe: %w", err)
		}
		shown = append([]*dashboard.Dashboard{w.served}, shown...)
	}
	if o.Forwarder != nil {
		o.Subject.Forwarder = &o.Config
	}
	t := dashboard.TargetOf(o.Config)
	t.Forwarder, t.Endpoints = o.Forwarder, o.Endpoints
	t.Doctor = func(ctx context.Context, only ...string) []doctor.Finding {
		return doctor.Run(ctx, o.Subject, doctor.Options{Only: only})
	}
	for _, d := range shown {
		w.release = append(w.release, d.Close, d.Show(t))
	}
	if o.Forwarder != nil {
		sampler, _ := o.Config.Store.(store.Sampler)
		w.release = append(w.release, w.Monitor.Watch(observe.Target{Forwarder: o.Forwarder, Store: sampler, DB: o.Subject.DB}))
	}
	return nil
}

// Run serves and samples until end is called, which is when the forwarder has ended. Once ctx is done, the probes say that
// the program is not ready.
func (w *Watch) Run(ctx context.Context) (end func(), err error) {
	unserve := func() {}
	if w.config != nil {
		if unserve, err = w.Monitor.Serve(w.config.Address, w.served); err != nil {
			w.hide()
			return nil, fmt.Errorf("observe: %w", err)
		}
	}
	context.AfterFunc(ctx, w.Monitor.Stop)
	sampling, stop := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	work.Go(func() { w.Monitor.Run(sampling) })
	return func() {
		w.hide()
		unserve()
		stop()
		work.Wait()
	}, nil
}

// hide ends what Show has begun.
func (w *Watch) hide() {
	for _, release := range w.release {
		release()
	}
}
