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
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/otlp"
	"github.com/waybill-go/waybill/framework/schedule"
	"github.com/waybill-go/waybill/framework/store"
	processsink "github.com/waybill-go/waybill/sinks/process"
)

func newForward(p *command.Invocation) *cobra.Command {
	f := &forward{Invocation: p}
	cmd := &cobra.Command{
		Use:   "forward",
		Short: "Forward notifications from the outbox to the sinks",
		Long: `Forward notifications from the outbox to the sinks that their routes name, until
SIGINT or SIGTERM. Then no new delivery begins, those in flight may take up to
forwarder.shutdown_timeout to end, and the leases are released. A second signal ends
the program at once; deliveries that no checkpoint covers yet are then repeated.

It also publishes the notifications of the configuration's schedules. If several
processes run them, one of them makes each tick. Any number of forwarders may run on
one outbox, and they share the work.

It starts even if the database cannot be reached, and waits for it. A wrong password,
an unknown database or an outbox without its tables ends it with an error. A sink that
cannot be opened at the start is unavailable, and each later delivery tries to open it.

On SIGHUP it reads the configuration and the files of its values again. Changes of
sinks, routes and schedules apply while it runs: new sinks open first, changed sinks
finish their deliveries in flight, and the others are not interrupted. For any other
change, such as the database, the forwarder stops gracefully and another one takes its
place in the same process. A configuration with mistakes, or with a sink that cannot be
opened, is reported and not applied.

With observe.address it serves the dashboard, metrics and probes over HTTP, also while
it waits for the database; observe.auth sets who may use the dashboard. The standard
variables of OpenTelemetry, such as OTEL_EXPORTER_OTLP_ENDPOINT, turn tracing on, with
a span for each delivery, and send metrics to a collector: see docs/tracing.md.

If the reader of its log or its output goes away, it goes on without: only sinks that
write to the output wait.

Under systemd it reports that it is ready once the configuration is correct and the
address is bound, reports reloads and stops, and feeds the watchdog while its loops run.`,
		Example: `  waybill forward
  waybill forward -c waybill.yaml --log-format json
  waybill forward --sink partner,events`,
		Args: command.NoArguments,
		RunE: f.run,
	}
	f.flags.Add(cmd)
	cmd.Flags().StringSliceVar(&f.sinks, "sink", nil, "forward only to this sink, and handle what has no route; may be repeated (default: all sinks)")
	cmd.Flags().BoolVar(&f.listen, "listen", true, "let PostgreSQL's NOTIFY wake the forwarder; overrides forwarder.listen")
	return cmd
}

type forward struct {
	*command.Invocation
	flags  command.SourceFlags
	sinks  []string
	listen bool
	source config.Source

	monitor   *observe.Monitor
	service   otlp.Service // the identity of this program in spans and metrics
	push      bool         // whether to send metrics by OTLP
	dashboard *dashboard.Dashboard
	fleet     atomic.Pointer[shownFleet] // the fleet of the dashboard; nil if there is one database
	// address and pprof are observe's at the start of the program.
	address string
	pprof   bool
}

// engine is a forwarder and a scheduler, with the configuration that both were made from.
type engine struct {
	*forwarder.Forwarder
	fleet     *fleet.Fleet                // nil if there is one database
	scheduler *schedule.Scheduler         // nil with a fleet
	judge     func(context.Context) error // judges what to alert of until ctx is done; nil without alerts
	config    *config.Config
	store     database.Store
	target    observe.Target
	// hide removes the engine from the dashboard.
	hide func()
}

// Run forwards, makes ticks and judges what to alert of until ctx is done.
func (e *engine) Run(ctx context.Context) error {
	all, ctx := errgroup.WithContext(ctx)
	if e.fleet != nil {
		all.Go(func() error { return e.fleet.Run(ctx) })
	} else {
		all.Go(func() error { return e.Forwarder.Run(ctx) })
		all.Go(func() error { return e.scheduler.Run(ctx) })
	}
	if e.judge != nil {
		all.Go(func() error { return e.judge(ctx) })
	}
	return all.Wait()
}

func (f *forward) run(cmd *cobra.Command, _ []string) error {
	var err error
	if f.source, err = f.FileSource(cmd, f.flags); err != nil {
		return err
	}
	defer outliveReaders()()
	hangups := make(chan os.Signal, 1) // one that comes while the configuration is read is not lost
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	f.source.Sinks = f.sinks
	if cmd.Flags().Changed("listen") {
		f.source.Listen = &f.listen
	}
	ctx := cmd.Context()
	f.service = otlp.NewService(f.Name, readBuild(f.Name).Version)
	f.logSDK()
	var spans bool
	if spans, f.push, err = otlp.Wanted(f.Environ, f.Logger); err != nil {
		return &command.UsageError{Err: err}
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
	if os.Getpid() == 1 { // in a container without an init process
		go processsink.ReapOrphans(ctx)
	}
	defer onDone(ctx, func() { f.Logger.Info("stopping; a second signal ends the program at once") })()

	notify(daemon.SdNotifyReady, "STATUS=waiting for the database")
	defer f.watchdog(ctx)()
	start := newEngine
	if c.HasFleet() {
		start = newFleet
	}
	e, cleanup, err := start(ctx, c, f.Options)
	if err != nil && ctx.Err() != nil {
		return nil // stopped while waiting for the database
	}
	for err == nil && e != nil {
		var next *engine
		var cleanupNext func()
		next, cleanupNext, err = f.runUntilReplaced(ctx, e, hangups)
		if isReplaced(err) {
			cleanup()
			e, cleanup, err = f.reopen(ctx, err)
			continue
		}
		if next == nil {
			f.dashboard.Close() // first, since actions that it interrupts write to the database
		}
		cleanup()
		if next == nil {
			break
		}
		e, cleanup = next, cleanupNext
	}
	return err
}

// isReplaced reports whether a forwarder ended since its database file was replaced by another one that can
// be opened.
func isReplaced(err error) bool {
	return errors.Is(err, store.ErrReplaced) && !errors.Is(err, store.ErrMixed)
}

// reopen makes an engine for the file that is now at the path of the database. It waits for it until ctx is done.
func (f *forward) reopen(ctx context.Context, cause error) (*engine, func(), error) {
	f.Logger.Error("the forwarder has stopped, and begins again with the file that is there", "error", cause)
	trouble := pace.NewTrouble(f.Logger, "opening the database", time.Second)
	for {
		c, err := loadForwarding(f.source, f.Options)
		if err != nil {
			return nil, nil, err
		}
		e, cleanup, err := newEngine(ctx, c, f.Options)
		if err == nil {
			trouble.Over()
			return e, cleanup, nil
		}
		if !pace.Sleep(ctx, trouble.Met(err)) {
			return nil, nil, nil
		}
	}
}

// onDone calls f when ctx is done. If ctx is done, end returns after that call, also if the program ends
// so fast that the call has not begun. Otherwise end prevents the call.
func onDone(ctx context.Context, f func()) (end func()) {
	called := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(called)
		f()
	})
	return func() {
		switch {
		case !stop():
			<-called
		case ctx.Err() != nil:
			f()
		}
	}
}

// replacement is an engine that takes over from the running one.
type replacement struct {
	*engine
	cleanup func()
}

// runUntilReplaced runs an engine until ctx is done, or until the configuration changes in a
// way that a running engine cannot apply: then it returns the engine to run next.
func (f *forward) runUntilReplaced(ctx context.Context, e *engine, hangups <-chan os.Signal) (next *engine, cleanup func(), err error) {
	running, stop := context.WithCancel(ctx)
	defer stop()
	defer f.monitor.Watch(e.target)()
	f.show(e)
	defer func() { e.hide() }() // not e.hide directly: a reload sets another one
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

// openTimeout limits how long a reload may take to connect to another database.
const openTimeout = 10 * time.Second

// startPause is the pause between two attempts to reload a forwarder that is about to run.
const startPause = 20 * time.Millisecond

// reload reads the configuration again. The running engine applies changes of sinks, routes,
// schedules and the dashboard's access; for any other change reload returns a new engine.
func (f *forward) reload(ctx context.Context, e *engine) (r replacement) {
	notify(daemon.SdNotifyReloading, daemon.SdNotifyMonotonicUsec())
	defer notify(daemon.SdNotifyReady)
	c, changes, err := e.config.Reload(ctx, e.Forwarder)
	for errors.Is(err, forwarder.ErrNotRunning) && pace.Sleep(ctx, startPause) {
		c, changes, err = e.config.Reload(ctx, e.Forwarder)
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
		f.Logger.Info("the configuration is unchanged")
	case changes.More:
		bounded, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		if c, err = loadForwarding(f.source, f.Options); err == nil {
			start := newReplacement
			if c.HasFleet() {
				start = newFleet
			}
			r.engine, r.cleanup, err = start(bounded, c, f.Options)
		}
		if err != nil {
			f.refuse(err)
			return replacement{}
		}
		f.changeAccess(c.Observe)
		f.Logger.Info("the configuration has changed: a new forwarder takes over")
	default:
		e.config = c
		if changes.Schedules {
			if err := e.scheduler.Reload(c.Timetable()...); err != nil { // unexpected: loading has checked them
				f.refuse(err)
			}
		}
		if changes.Observe {
			f.changeAccess(c.Observe)
		}
		f.show(e)
		f.Logger.Info("applied the changed configuration", "sinks", strings.Join(changes.Sinks, ", "), "routes", changes.Routes, "databases", changes.Databases, "schedules", changes.Schedules, "observe", changes.Observe)
	}
	return r
}

// follow makes a fleet list its databases again.
func (e *engine) follow(c *config.Config, changes config.Changes) {
	if changes.Databases {
		e.fleet.Follow(config.FleetOf(c.Databases))
	} else {
		e.fleet.Refresh()
	}
}

// refuse reports why a configuration is not applied.
func (f *forward) refuse(err error) {
	f.monitor.Reloaded(false)
	f.Print(err)
	f.Logger.Error("the configuration was not applied: the forwarder continues with the previous one")
}
