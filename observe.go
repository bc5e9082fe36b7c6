package waybill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/observe"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
)

// Aliases for who may use a dashboard, for programs with one import.
type (
	DashboardConfig = dashboard.Config
	User            = dashboard.User
	Login           = settings.Login
	Token           = settings.Token
)

// The roles of a [User]; see [dashboard.Viewer] and [dashboard.Operator].
const (
	Viewer   = dashboard.Viewer
	Operator = dashboard.Operator
)

// watch observes an outbox. It is an interface so that a program which is not observed does not contain the
// code of it.
type watch interface {
	join(*Config)
	count(*outbox.Config)
	show(*Outbox, *opened) error
	run(context.Context) (end func(), err error)
}

// watched is what Observe, Dashboard and Monitor declare.
type watched struct {
	monitor    *observe.Monitor
	config     *DashboardConfig // of Observe; nil without it
	served     *dashboard.Dashboard
	dashboards []*dashboard.Dashboard // of Dashboard
	release    []func()
}

// Observe makes Run serve the dashboard at an address, a host and a port, with metrics for Prometheus at
// /metrics and the probes /livez, /healthz and /readyz. The returned settings say who may use the dashboard,
// and may be changed until Open:
//
//	o.Observe("127.0.0.1:8090").Auth.Users = map[string]waybill.Login{"ada": {Password: hash, Role: waybill.Operator}}
//
// Without users, tokens, a proxy and Authorize, only a loopback address serves the dashboard, and every visitor
// is an operator; at other addresses there are only metrics and probes, which need no authentication. If Run
// cannot listen at the address, it returns the error. Leave Prefix empty. The metrics count what is published
// by type, and log with the Logger that Config has at the call.
func (o *Outbox) Observe(address string) *DashboardConfig {
	w := o.watched()
	if w.config != nil {
		o.note(errors.New("observe: Observe is called twice: one address serves everything"))
	}
	if address == "" {
		o.note(errors.New("observe: the address is empty: use a host and a port, such as 127.0.0.1:8090"))
	}
	w.config = new(DashboardConfig)
	w.config.Address = address
	return w.config
}

// Dashboard returns the dashboard as a handler for a server of the program, which serves it below c.Prefix.
// Either c.Authorize or c.Auth is required, and says who may use it: Open reports if both are missing, and the
// handler refuses everything. Until Open it answers 503, and again once Run has returned. Serve metrics and
// probes with [Outbox.Monitor].
func (o *Outbox) Dashboard(c DashboardConfig) http.Handler {
	w := o.watched()
	c.Logger = cmp.Or(c.Logger, o.Config.Logger)
	var err error
	if c.Authorize == nil && len(c.Auth.Users)+len(c.Auth.Tokens)+len(c.Auth.Proxy.Networks) == 0 {
		err = errors.New("it would be open to everyone: set Authorize, or Auth.Users, Auth.Tokens or Auth.Proxy")
	}
	d, mistakes := dashboard.New(c)
	if err := errors.Join(err, mistakes); err != nil {
		o.note(fmt.Errorf("the dashboard at %q: %w", c.Prefix, err))
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "the dashboard has mistakes", http.StatusForbidden)
		})
	}
	w.dashboards = append(w.dashboards, d)
	return d
}

// Monitor returns the metrics and the probes as a handler for a server of the program, and as a collector for
// a registry of the program; see [observe.Monitor]. Run samples the database for them. Like Observe and
// Dashboard it is a declaration, to be made before Open.
func (o *Outbox) Monitor() *observe.Monitor { return o.watched().monitor }

func (o *Outbox) watched() *watched {
	o.declare()
	if w, is := o.watch.(*watched); is {
		return w
	}
	version := ""
	if build, known := debug.ReadBuildInfo(); known {
		version = build.Main.Version
	}
	w := &watched{monitor: observe.New(observe.Config{Version: version, Types: true, Logger: o.Config.Logger})}
	o.watch = w
	return w
}

func (w *watched) join(c *Config) { c.Observer = observe.Join(c.Observer, w.monitor) }

func (w *watched) count(c *outbox.Config) {
	also := c.Published
	c.Published = func(all []Envelope) {
		w.monitor.Published(all)
		if also != nil {
			also(all)
		}
	}
}

// show makes the dashboards and the monitor show an open outbox.
func (w *watched) show(o *Outbox, made *opened) error {
	shown := w.dashboards
	if w.config != nil {
		c := *w.config
		c.Logger = cmp.Or(c.Logger, o.Config.Logger)
		var err error
		if w.served, err = dashboard.New(c); err != nil {
			return fmt.Errorf("observe: %w", err)
		}
		shown = append([]*dashboard.Dashboard{w.served}, shown...)
	}
	c := o.forwarding(made)
	t := dashboard.TargetOf(c)
	t.Forwarder, t.Endpoints = made.forwarder, made.endpoints
	t.Doctor = func(ctx context.Context, only ...string) []doctor.Finding {
		s := o.subject
		if made.forwarder != nil {
			s.Forwarder = &c
		}
		for _, schedule := range o.schedules {
			s.Schedules = append(s.Schedules, schedule.Name)
		}
		return doctor.Run(ctx, s, doctor.Options{Only: only})
	}
	for _, d := range shown {
		w.release = append(w.release, d.Close, d.Show(t))
	}
	if made.forwarder != nil {
		sampler, _ := made.store.(store.Sampler)
		w.release = append(w.release, w.monitor.Watch(observe.Target{Forwarder: made.forwarder, Store: sampler, DB: o.db}))
	}
	return nil
}

// run serves and samples. end is called when everything else has ended.
func (w *watched) run(ctx context.Context) (end func(), err error) {
	unserve := func() {}
	if w.config != nil {
		if unserve, err = w.monitor.Serve(w.config.Address, w.served); err != nil {
			w.hide()
			return nil, fmt.Errorf("observe: %w", err)
		}
	}
	context.AfterFunc(ctx, w.monitor.Stop)
	sampling, stop := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	work.Go(func() { w.monitor.Run(sampling) })
	return func() {
		w.hide()
		unserve()
		stop()
		work.Wait()
	}, nil
}

// hide ends what show has begun.
func (w *watched) hide() {
	for _, release := range w.release {
		release()
	}
}

// Store returns the store of the open outbox, for packages that work on one; nil before Open. Together with
// [admin.New] it shows and changes what the command line does. It must not be used after the database was closed.
func (o *Outbox) Store() Store {
	return o.made().store
}

// Admin returns what shows and changes the outbox on behalf of a person or a program, whose name is recorded
// with each action; nil before Open. Its methods do what the command line and the dashboard do: Status, Why,
// Requeue and so on, each in transactions of its own connections; see [admin.Admin].
func (o *Outbox) Admin(who string) *admin.Admin {
	if made := o.opened.Load(); made != nil {
		return admin.New(made.store, who)
	}
	return nil
}

// Routing returns which sinks get which types, for Status, Why and others of [Outbox.Admin]; the zero value
// before Open.
func (o *Outbox) Routing() admin.Routing {
	if made := o.opened.Load(); made != nil {
		return dashboard.TargetOf(o.forwarding(made)).Routing
	}
	return admin.Routing{}
}
