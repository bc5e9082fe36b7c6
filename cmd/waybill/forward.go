package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/cmd/waybill/internal/config"
)

func newForward(p *program) *cobra.Command {
	f := &forward{program: p}
	cmd := &cobra.Command{
		Use:   "forward",
		Short: "Forward notifications from the outbox to the sinks",
		Long: `Forward notifications from the outbox to the sinks that their routes name, until
SIGINT or SIGTERM: then deliveries in flight may end within
forwarder.shutdown_timeout, and the leases are given back. A second signal ends
the program at once; what was delivered but not written down is repeated.

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
	flags sourceFlags
}

func (f *forward) run(cmd *cobra.Command, _ []string) error {
	source := f.source(f.flags)
	if source.File == "" {
		return wrongUsage(cmd, errors.New("there is no "+config.DefaultFile+" here: name a configuration with -c"))
	}
	ctx := cmd.Context()
	defer context.AfterFunc(ctx, func() {
		f.logger.Info("stopping; a second signal ends the program at once")
	})()
	engine, cleanup, err := newForwarder(ctx, source, f.logger)
	if err != nil && ctx.Err() != nil {
		return nil // stopped while it waited for the database
	}
	if err != nil {
		return err
	}
	defer cleanup()
	return engine.Run(ctx)
}
