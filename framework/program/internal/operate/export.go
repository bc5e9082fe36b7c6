package operate

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/program/internal/archive"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
)

func newExport(p *command.Invocation) *cobra.Command {
	e := &export{looking: lookingFor(p)}
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write rows of the log and their receipts to a file, before retention deletes them",
		Long: `Write the rows of the log that occurred in a period as JSON lines, with the
receipts of their deliveries if outbox.receipts is on. It changes nothing.

It exports the rows that are committed when it starts, each once. A period that ended
an hour ago is complete, unless transactions stay open longer than that or the
application backdates notifications. Receipts are those that exist when the row is
read: a delivery that is not made yet has none.

The file gets its name when all of it is written, and an existing file is never
replaced. Files that end with .gz or .zst are compressed. With --output -, the default,
rows go to standard output as they are read, and only the exit code shows a failure.

The log is read page by page, in constant memory. If the log begins after --from,
retention may have deleted rows of the period, and the command prints a warning. It
reads from the primary, and refuses a standby.

Private values stay encrypted. Those of types with privacy.rules are encrypted in the file.`,
		Example: `  waybill export --from 2026-03-01 --to 2026-03-02 --output 2026-03-01.jsonl.gz
  waybill export --from 26h --to 2h --type 'order.*' --output orders.jsonl.zst
  waybill export --sink partner | jq .receipts`,
		Args: command.NoArguments,
		RunE: e.run,
	}
	e.Add(cmd)
	cmd.Flags().Var(&e.from, "from", "export rows that occurred at this time or later: a time, or an age such as 6h or 7d")
	cmd.Flags().Var(&e.to, "to", "export rows that occurred before this time")
	cmd.Flags().StringArrayVar(&e.request.Types, "type", nil, "export rows of this type, or of all types with a prefix (order.*); may be repeated")
	cmd.Flags().StringArrayVar(&e.request.Sinks, "sink", nil, "export rows for which this sink has a receipt, with only its receipts; may be repeated")
	cmd.Flags().StringVarP(&e.output, "output", "o", archive.Stdout, "file to write, or - for standard output")
	return cmd
}

type export struct {
	looking
	request  admin.ExportRequest
	from, to momentFlag
	output   string
}

// exportView is what --json prints.
type exportView struct {
	admin.Exporting
	Output string `json:"output"`
}

func (e *export) run(cmd *cobra.Command, _ []string) error {
	switch {
	case e.output == "":
		return command.WrongUsage(cmd, errors.New("--output is empty: name a file, or - for standard output"))
	case e.JSON && e.output == archive.Stdout:
		return command.WrongUsage(cmd, errors.New("--json and the rows would both go to standard output: name a file with --output"))
	}
	o, cleanup, err := e.open(cmd)
	if err != nil {
		return err
	}
	defer cleanup()
	e.request.From, e.request.To = e.from.Time, e.to.Time
	done, err := e.write(cmd, o)
	switch {
	case errors.Is(err, admin.ErrFilter):
		return command.WrongUsage(cmd, err)
	case err != nil && cmd.Context().Err() != nil:
		return cmd.Context().Err() // the driver's error may not say so
	case err != nil:
		return fmt.Errorf("export: %w", err)
	}
	e.report(done)
	if e.JSON {
		return command.PrintJSON(e.Stdout, exportView{done, e.output})
	}
	return nil
}

func (e *export) write(cmd *cobra.Command, o *operator) (admin.Exporting, error) {
	a, err := archive.Create(e.output, e.Raw)
	if err != nil {
		return admin.Exporting{}, err
	}
	write, err := e.encrypting(cmd, o, a.Write)
	if err != nil {
		a.Discard()
		return admin.Exporting{}, err
	}
	var show func(offset int64)
	end := func() {}
	begun := false
	done, err := o.Export(cmd.Context(), e.request, write, func(done admin.Exporting) {
		if !begun {
			begun = true
			show, end = e.progress(done.UpTo)
		}
		show(done.Offset)
	})
	end()
	if err != nil {
		a.Discard()
		return done, err
	}
	return done, a.Commit()
}

// encrypting returns write for rows whose values are encrypted that privacy.rules name, so that they can be erased.
func (e *export) encrypting(cmd *cobra.Command, o *operator, write func(*admin.Exported) error) (func(*admin.Exported) error, error) {
	source, err := e.One(cmd, e.Flags)
	if err != nil {
		return nil, err
	}
	c, err := config.LoadPrivacy(source, e.Options)
	if err != nil || len(c.Privacy.Rules) == 0 {
		return write, err
	}
	keys, err := privacy.New(o.store, c.PrivacyConfig())
	if err == nil {
		err = keys.Prepare(cmd.Context())
	}
	return func(row *admin.Exported) error {
		one := []notification.Envelope{row.Envelope}
		if err := keys.SealByRules(cmd.Context(), nil, one); err != nil {
			return err
		}
		row.Envelope = one[0]
		return write(row)
	}, err
}

// report prints what was written, and warnings to stderr, since the rows may be on stdout.
func (e *export) report(done admin.Exporting) {
	switch {
	case done.Gone && done.Oldest == nil:
		terminal.Println(e.Stderr, "warning: the log is empty: nothing was published yet, or retention has removed all rows")
	case done.Gone:
		terminal.Printf(e.Stderr, "warning: retention may have deleted rows of the period: the log begins at offset %d, of %s\n", done.Oldest.Offset, command.TimeText(done.Oldest.OccurredOn))
	}
	if !e.JSON && e.output != archive.Stdout {
		terminal.Printf(e.Stdout, "exported %s with %s to %s\n", command.CountText(done.Rows, "row", "rows"), command.CountText(done.Receipts, "receipt", "receipts"), e.output)
	}
}
