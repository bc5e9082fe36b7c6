package main

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/cmd/waybill/internal/config"
	"github.com/waybill-go/waybill/framework/forwarder"
)

func newForward(p *program) *cobra.Command {
	f := &forward{program: p}
	cmd := &cobra.Command{
		Use:   "forward",
		Short: "Forward notifications from the outbox to the sinks",
		Long: `Forward notifications from the outbox to the sinks that their routes name, until
SIGINT or SIGTERM: then deliveries in flight may end within
forwarder.shutdown_timeout, and the leases are given back. A second signal ends
the program at once; what was delivered but not yet written to a checkpoint is repeated.

On SIGHUP it reads the configuration again, and the files that hold its values. A
sink's parallelism, retry, timeout, rate, breaker and fairness change while it runs;
for anything else the forwarder stops gracefully and another one takes its
place in the same process. A configuration with mistakes is reported and not
applied.

It may start before the database: while that cannot be reached it waits. A wrong
password, an unknown database or an outbox that is not migrated is an error at
once. Any number of forwarders may run on one outbox.`,
		Example: `  waybill forward -c waybill.yaml --log-format json`,
		Args:    noArguments,
		RunE:    f.run,
	}
	f.flags.add(cmd)
	return cmd
}

type forward struct {
	*program
	flags  sourceFlags
	source config.Source
}

// engine is a forwarder and the configuration that it came from.
type engine struct {
	*forwarder.Forwarder
	config *config.Config
}

func (f *forward) run(cmd *cobra.Command, _ []string) error {
	var err error
	if f.source, err = f.fileSource(cmd, f.flags); err != nil {
		return err
	}
	ctx := cmd.Context()
	defer context.AfterFunc(ctx, func() {
		f.logger.Info("stopping; a second signal ends the program at once")
	})()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	e, cleanup, err := newEngine(ctx, f.source, f.logger)
	if err != nil && ctx.Err() != nil {
		return nil // stopped while it waited for the database
	}
	for err == nil {
		var next *engine
		var cleanupNext func()
		next, cleanupNext, err = f.runUntilReplaced(ctx, e, hangups)
		cleanup()
		if next == nil {
			break
		}
		e, cleanup = next, cleanupNext
	}
	return err
}

// runUntilReplaced runs a forwarder until ctx is done, or until the configuration is
// another one that it cannot take over: then it returns the forwarder that can,
// which runs next.
func (f *forward) runUntilReplaced(ctx context.Context, e *engine, hangups <-chan os.Signal) (next *engine, cleanup func(), err error) {
	ended := make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	defer stop()
	go func() { ended <- e.Run(running) }()
	for next == nil {
		select {
		case err := <-ended:
			return nil, nil, err
		case <-hangups:
			next, cleanup = f.reload(ctx, e)
		}
	}
	stop()
	if err := <-ended; err != nil {
		cleanup()
		return nil, nil, err
	}
	return next, cleanup, nil
}

// reload reads the configuration again. A forwarder takes over what it can; for the
// rest reload returns another one.
func (f *forward) reload(ctx context.Context, e *engine) (next *engine, cleanup func()) {
	kinds, err := provideKinds()
	if err != nil {
		f.refuse(err)
		return nil, nil
	}
	c, err := config.Load(f.source, kinds, f.logger)
	if err != nil {
		f.refuse(err)
		return nil, nil
	}
	changes := e.config.ChangesTo(c)
	switch {
	case changes.None():
		f.logger.Info("the configuration is as it was")
		return nil, nil
	case changes.More:
		next, cleanup, err = newEngine(ctx, f.source, f.logger)
		if err != nil {
			f.refuse(err)
			return nil, nil
		}
		f.logger.Info("the configuration has changed: another forwarder takes over")
		return next, cleanup
	}
	for _, sink := range changes.Adjusted {
		if err := c.Adjust(e.Forwarder, sink); err != nil {
			f.refuse(err)
			return nil, nil
		}
	}
	e.config = c
	f.logger.Info("the configuration has changed and is taken over", "sinks", strings.Join(changes.Adjusted, ", "))
	return nil, nil
}

// refuse says why a configuration is not taken over.
func (f *forward) refuse(err error) {
	f.print(err)
	f.logger.Error("the configuration is not taken over: the forwarder goes on as it was")
}
