package program

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/config/database"
	"github.com/waybill-go/waybill/framework/dashboard"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/forwarder/fleet"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/observe"
	"github.com/waybill-go/waybill/framework/program/internal/otlp"
	"github.com/waybill-go/waybill/framework/schedule"
	processsink "github.com/waybill-go/waybill/sinks/process"
)

func newForward(p *invocation) *cobra.Command {
	f := &forward{invocation: p}
	cmd := &cobra.Command{
		Use:   "forward",
		Short: "Forward notifications from the outbox to the sinks",
		Long: `Forward notifications from the outbox to the sinks that their routes name, until
SIGINT or SIGTERM: then deliveries in flight may end within
forwarder.shutdown_timeout, and the leases are given back. A second signal ends
the program at once; what was delivered but not yet written to a checkpoint is repeated.

It also publishes what the configuration's schedules say; of all processes that run them
one makes each tick.

On SIGHUP it reads the configuration again, and the files that hold its values. Sinks,
routes and schedules change while it runs: what is new is opened first, the sinks that changed let
what is in flight end, and the others go on. For anything else, such as the database,
the forwarder stops gracefully and another one takes its place in the same process. A
configuration with mistakes, or with a sink that does not open, is reported and not
applied.

A sink that does not open at the start is unavailable, and is opened with a later
delivery.

It may start before the database: while that cannot be reached it waits. A wrong
password, an unknown database or an outbox that is not migrated is an error at
once. Any number of forwarders may run on one outbox.

The standard variables of OpenTelemetry, such as OTEL_EXPORTER_OTLP_ENDPOINT, switch
tracing on: each delivery is a span then. docs/tracing.md has more.

With observe.address it serves the dashboard, metrics and probes over HTTP, also while it
waits for the database; observe.auth says who may use the dashboard. OTEL_METRICS_EXPORTER=otlp, or the
endpoint, has it send the metrics to a collector of OpenTelemetry too. Under systemd it tells that it is ready once the configuration is right and that
address is taken, when it reloads and stops, and feeds the watchdog for as long as its
loops turn.`,
		Example: `  waybill forward -c waybill.yaml --log-format json`,
		Args:    noArguments,
		RunE:    f.run,
	}
	f.flags.add(cmd)
	cmd.Flags().StringSliceVar(&f.sinks, "sink", nil, "work only on this sink, and on what has no route; several with commas, or the flag again. Others are left to other forwarders")
	cmd.Flags().BoolVar(&f.listen, "listen", true, "be woken by PostgreSQL's NOTIFY, in place of the configuration's forwarder.listen")
	return cmd
}

type forward struct {
	*invocation
	flags  sourceFlags
	sinks  []string
	listen bool
	source config.Source

	monitor   *observe.Monitor
	service   otlp.Service // which sends spans and metrics
	push      bool         // metrics, by OTLP
	dashboard *dashboard.Dashboard
	several   *dashboard.Several         // in place of dashboard, where there is a fleet
	fleet     atomic.Pointer[shownFleet] // that is shown; nil: there is one database
	// address, types and pprof are observe's as the program began with.
	address string
	types   bool
	pprof   bool
}

// engine is a forwarder, the schedules beside it, and the configuration that both came from.
type engine struct {
	*forwarder.Forwarder
	fleet     *fleet.Fleet        // nil: there is one database
	scheduler *schedule.Scheduler // nil beside a fleet
	config    *config.Config
	store     database.Store
	target    observe.Target
	// hide ends that the dashboard shows the engine.
	hide func()
}

// Run forwards and makes ticks until ctx is done.
func (e *engine) Run(ctx context.Context) error {
	if e.fleet != nil {
		return e.fleet.Run(ctx)
	}
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return e.Forwarder.Run(ctx) })
	both.Go(func() error { return e.scheduler.Run(ctx) })
	return both.Wait()
}

func (f *forward) run(cmd *cobra.Command, _ []string) error {
	var err error
	if f.source, err = f.fileSource(cmd, f.flags); err != nil {
		return err
	}
	f.source.Sinks = f.sinks
	if cmd.Flags().Changed("listen") {
		f.source.Listen = &f.listen
	}
	ctx := cmd.Context()
	f.service = otlp.NewService(f.name, readBuild(f.name).Version)
	f.logSDK()
	var spans bool
	if spans, f.push, err = otlp.Wanted(f.environ, f.logger); err != nil {
		return &usageError{err}
	}
	if spans {
		untrace, err := f.traced(ctx)
		if err != nil {
			return err
		}
		defer untrace()
	}
	c, err := f.observed()
	if err != nil {
		return err
	}
	unserve, err := f.serve(ctx, c)
	if err != nil {
		return err
	}
	defer unserve()
	if os.Getpid() == 1 { // in a container, without an init
		go processsink.ReapOrphans(ctx)
	}
	defer f.sayWhenStopping(ctx)()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	notify(daemon.SdNotifyReady, "STATUS=waiting for the database")
	defer f.watchdog(ctx)()
	start := newEngine
	if c.HasFleet() {
		start = newFleet
	}
	e, cleanup, err := start(ctx, c, f.options)
	if err != nil && ctx.Err() != nil {
		return nil // stopped while it waited for the database
	}
	for err == nil {
		var next *engine
		var cleanupNext func()
		next, cleanupNext, err = f.runUntilReplaced(ctx, e, hangups)
		if next == nil {
			f.several.Close()
			f.dashboard.Close() // while there is a database for what it interrupts
		}
		cleanup()
		if next == nil {
			break
		}
		e, cleanup = next, cleanupNext
	}
	return err
}

// sayWhenStopping logs that ctx is done. end waits for that, since nothing may be logged later.
func (f *forward) sayWhenStopping(ctx context.Context) (end func()) {
	said := make(chan struct{})
	forget := context.AfterFunc(ctx, func() {
		defer close(said)
		f.logger.Info("stopping; a second signal ends the program at once")
	})
	return func() {
		if !forget() {
			<-said
		}
	}
}

// replacement is a forwarder that is to run in another one's place.
type replacement struct {
	*engine
	cleanup func()
}

// runUntilReplaced runs a forwarder until ctx is done, or until the configuration is
// another one that it cannot take over: then it returns the forwarder that can,
// which runs next.
func (f *forward) runUntilReplaced(ctx context.Context, e *engine, hangups <-chan os.Signal) (next *engine, cleanup func(), err error) {
	running, stop := context.WithCancel(ctx)
	defer stop()
	defer f.monitor.Watch(e.target)()
	f.show(e)
	defer func() { e.hide() }() // the last one: a reload shows it again
	notify("STATUS=forwarding")
	ended := make(chan error, 1)
	go func() { ended <- e.Run(running) }()
	replaced := make(chan replacement)
	go func() {
		defer close(replaced)
		for {
			select {
			case <-running.Done():
				return
			case <-hangups:
			}
			if r := f.reload(running, e); r.engine != nil {
				replaced <- r
				return
			}
		}
	}()
	select {
	case err = <-ended:
		stop()
		if r := <-replaced; r.engine != nil {
			r.cleanup()
		}
		return nil, nil, err
	case r := <-replaced:
		stop()
		if err := <-ended; err != nil || r.engine == nil {
			if r.engine != nil {
				r.cleanup()
			}
			return nil, nil, err
		}
		return r.engine, r.cleanup, nil
	}
}

// openTimeout bounds how long a reload connects to another database.
const openTimeout = 10 * time.Second

// startPause is how often a forwarder that is about to run is asked to reload.
const startPause = 20 * time.Millisecond

// reload reads the configuration again. A forwarder takes over sinks and routes; for
// the rest reload returns another one.
func (f *forward) reload(ctx context.Context, e *engine) (r replacement) {
	notify(daemon.SdNotifyReloading, daemon.SdNotifyMonotonicUsec())
	defer notify(daemon.SdNotifyReady)
	c, changes, err := e.config.Reload(ctx, e.Forwarder)
	for errors.Is(err, forwarder.ErrNotRunning) && pace.Sleep(ctx, startPause) {
		c, changes, err = e.config.Reload(ctx, e.Forwarder) // it is about to begin
	}
	f.monitor.Reloaded(err == nil)
	if err == nil && !changes.More && e.fleet != nil {
		e.follow(c, changes)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		f.refuse(err)
	case changes.None():
		f.logger.Info("the configuration is as it was")
	case changes.More:
		bounded, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		if c, err = loadForwarding(f.source, f.options); err == nil {
			start := newReplacement
			if c.HasFleet() {
				start = newFleet
			}
			r.engine, r.cleanup, err = start(bounded, c, f.options)
		}
		if err != nil {
			f.refuse(err)
			return replacement{}
		}
		f.readmit(c.Observe)
		f.logger.Info("the configuration has changed: another forwarder takes over")
	default:
		e.config = c
		if changes.Schedules {
			if err := e.scheduler.Reload(c.Timetable()...); err != nil { // they were checked
				f.refuse(err)
			}
		}
		if changes.Observe {
			f.readmit(c.Observe)
		}
		f.show(e)
		f.logger.Info("the configuration has changed and is taken over", "sinks", strings.Join(changes.Sinks, ", "), "routes", changes.Routes, "databases", changes.Databases, "schedules", changes.Schedules, "observe", changes.Observe)
	}
	return r
}

// follow has a fleet ask for its databases again.
func (e *engine) follow(c *config.Config, changes config.Changes) {
	if changes.Databases {
		e.fleet.Follow(config.FleetOf(c.Databases))
	} else {
		e.fleet.Refresh()
	}
}

// refuse says why a configuration is not taken over.
func (f *forward) refuse(err error) {
	f.monitor.Reloaded(false)
	f.print(err)
	f.logger.Error("the configuration is not taken over: the forwarder goes on as it was")
}
