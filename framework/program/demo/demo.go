// Package demo is the command waybill demo, for programs that need only this command: they compile
// faster than with the whole command line.
package demo

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/program/internal/demo"
)

// Command returns the command. It writes the result to stdout and progress to stderr. Cancelling
// its context ends the demo early.
func Command(stdout, stderr io.Writer) *cobra.Command {
	var c demo.Config
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a small shop with an outbox, with nothing to install",
		Long: `Run a small shop with an outbox, and verify what arrives.

The shop places orders in real transactions; one in ten rolls back. A forwarder in the
same process delivers the notifications to Kafka, by email, and to an HTTP endpoint
that refuses a few attempts. At the end the demo compares what the receivers got with
what the shop committed: nothing may be missing, nothing may come from a rollback, and
the notifications of each customer must arrive in order. Otherwise the exit code is 1.

The database, the Kafka broker, the endpoint and the mail server run inside the process
and leave nothing behind.

With --observe a dashboard shows the shop while it trades. The shop then trades until
SIGINT, unless --for sets a time.

The first SIGINT closes the shop early: what it committed is still delivered and
verified. The second SIGINT ends everything at once, and leaves the temporary folder.
The demo reads no configuration.`,
		Example: `  waybill demo
  waybill demo --observe 127.0.0.1:8090`,
		Args: cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if c.Observe != "" && !cmd.Flags().Changed("for") {
				c.For = 0
			}
			return c.Validate()
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return demo.Run(cmd.Context(), c, stdout, stderr) },
	}
	cmd.Flags().DurationVar(&c.For, "for", demo.DefaultFor, "how long the shop places orders; 0 is until SIGINT")
	cmd.Flags().IntVar(&c.Rate, "rate", demo.DefaultRate, "orders per second; 0 is as many as possible")
	cmd.Flags().StringVar(&c.Observe, "observe", "", "`ADDRESS` to serve a dashboard at, such as 127.0.0.1:8090")
	cmd.Flags().BoolVar(&c.JSON, "json", false, "print the result as JSON")
	return cmd
}
