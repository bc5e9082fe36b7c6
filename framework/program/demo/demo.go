// Package demo is the command waybill demo, for programs that have it alone: they are compiled
// faster than the whole command line.
package demo

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/program/internal/demo"
)

// Command writes the result to stdout, and what happens meanwhile to stderr. Its context ends
// the demo early.
func Command(stdout, stderr io.Writer) *cobra.Command {
	var c demo.Config
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch notifications travel, with nothing to install",
		Long: `Run a small shop with an outbox, and count what arrives.

The shop places orders in real transactions; one in ten rolls back. A forwarder in
the same process delivers the notifications to Kafka, to an HTTP endpoint, which
refuses a few attempts, and by email. In the end the receivers are asked what they
got. It is compared with what the shop committed: nothing may be missing, nothing
may have come from a rollback, and each customer's notifications must have kept their
order. If they did not, the exit code is 1.

The database, a broker, an endpoint and a mail server are inside the process and
leave nothing behind. Of these, some can be your own:

  --database   a PostgreSQL, MySQL or MariaDB. All tables that begin with waybill_demo and that the
               demo knows are dropped before and after; no others are touched.
  --kafka      a Kafka. The demo creates a topic waybill-demo-… and deletes it.
  --smtp       a mail server, such as a Mailpit. The mails are addressed to
               example.com. Its receipts are counted, not what became of the mails.

With --observe a dashboard shows the shop while it trades, which it does until SIGINT
then, unless --for says for how long.

The first SIGINT closes the shop early: what it committed is delivered and judged
all the same. The second ends everything at once, and the temporary folder stays.
No configuration is read.`,
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
	cmd.Flags().DurationVar(&c.For, "for", demo.DefaultFor, "how long orders are placed; 0 is until SIGINT")
	cmd.Flags().IntVar(&c.Rate, "rate", demo.DefaultRate, "orders per second; 0 is as many as possible")
	cmd.Flags().DurationVar(&c.Drain, "drain", demo.DefaultDrain, "how long deliveries may take once the shop is closed")
	cmd.Flags().StringVar(&c.Database, "database", "", "address of a PostgreSQL, MySQL or MariaDB, in place of a SQLite database in a temporary folder")
	cmd.Flags().StringSliceVar(&c.Kafka, "kafka", nil, "brokers as host:port, in place of one in the process")
	cmd.Flags().StringVar(&c.SMTP, "smtp", "", "URL of a mail server, in place of one in the process")
	cmd.Flags().StringVar(&c.Observe, "observe", "", "`ADDRESS` of this machine at which a dashboard shows the shop, such as 127.0.0.1:8090")
	cmd.Flags().BoolVar(&c.JSON, "json", false, "print the result as JSON")
	return cmd
}
