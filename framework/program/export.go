package program

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/program/internal/archive"
)

func newExport(p *invocation) *cobra.Command {
	e := &export{looking: looking{invocation: p}}
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write rows of the log and their receipts to a file, before retention takes them",
		Long: `Write the rows of the log that occurred in a period, with the receipts of their
deliveries where outbox.receipts is on, as lines of JSON or as Parquet. It changes nothing.

It exports what is committed when it begins, each row once. A period that ended an hour ago
is complete, unless transactions stay open for longer, or an application dates notifications
back. Receipts are those that are there when the row is read: of what is not delivered yet
there is none.

A file appears under its name once all of it is written, and replaces none. Names that end
with .gz or .zst are compressed; .parquet is Parquet. With --output -, the default, the rows
go to standard output as they are read, and a failure shows in the exit code alone.

The log is read page by page, in constant memory. Where it begins after --from, retention
may have taken rows of the period, and a warning says so. It reads from the primary: a
standby is refused.`,
		Example: `  waybill export --from 2026-03-01 --to 2026-03-02 --output 2026-03-01.jsonl.gz
  waybill export --from 26h --to 2h --type 'order.*' --output orders.parquet
  waybill export --sink partner | jq .receipts`,
		Args: noArguments,
		RunE: e.run,
	}
	e.add(cmd)
	cmd.Flags().Var(&e.from, "from", "rows that occurred then or later: a time, or how long ago it is, such as 6h or 7d")
	cmd.Flags().Var(&e.to, "to", "rows that occurred before then")
	cmd.Flags().StringArrayVar(&e.request.Types, "type", nil, "rows of this type, or of types with a beginning (order.*); several times for several")
	cmd.Flags().StringArrayVar(&e.request.Sinks, "sink", nil, "rows that this sink has a receipt of, with its receipts alone; several times for several")
	cmd.Flags().StringVar(&e.format, "format", "", "jsonl or parquet (default: by the name of the file, otherwise jsonl)")
	cmd.Flags().StringVarP(&e.output, "output", "o", archive.Stdout, "the file to write, or - for standard output")
	return cmd
}

type export struct {
	looking
	request        admin.ExportRequest
	from, to       momentFlag
	format, output string
}

// exportView is what --json prints.
type exportView struct {
	admin.Exporting
	Output string         `json:"output"`
	Format archive.Format `json:"format"`
}

func (e *export) run(cmd *cobra.Command, _ []string) error {
	format, err := archive.FormatFor(e.format, e.output)
	switch {
	case err != nil:
		return wrongUsage(cmd, err)
	case e.output == "":
		return wrongUsage(cmd, errors.New("--output is empty: name a file, or - for standard output"))
	case e.json && e.output == archive.Stdout:
		return wrongUsage(cmd, errors.New("--json and the rows would both go to standard output: name a file with --output"))
	}
	o, cleanup, err := e.open(cmd)
	if err != nil {
		return err
	}
	defer cleanup()
	e.request.From, e.request.To = e.from.Time, e.to.Time
	done, err := e.write(cmd, o, format)
	switch {
	case errors.Is(err, admin.ErrFilter):
		return wrongUsage(cmd, err)
	case err != nil && cmd.Context().Err() != nil:
		return cmd.Context().Err() // whatever the driver made of it
	case err != nil:
		return fmt.Errorf("export: %w", err)
	}
	e.report(done, format)
	if e.json {
		return printJSON(e.stdout, exportView{done, e.output, format})
	}
	return nil
}

func (e *export) write(cmd *cobra.Command, o *operator, format archive.Format) (admin.Exporting, error) {
	a, err := archive.Create(e.output, format, e.stdout)
	if err != nil {
		return admin.Exporting{}, err
	}
	var show func(offset int64)
	end := func() {}
	begun := false
	done, err := o.Export(cmd.Context(), e.request, a.Write, func(done admin.Exporting) {
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

// report says on stderr what was written, since the rows may be on stdout.
func (e *export) report(done admin.Exporting, format archive.Format) {
	switch {
	case done.Gone && done.Oldest == nil:
		fmt.Fprintln(e.stderr, "warning: the log is empty: retention has removed all that was in it")
	case done.Gone:
		fmt.Fprintf(e.stderr, "warning: retention may have removed rows of the period: the log begins at offset %d, of %s\n", done.Oldest.Offset, timeText(done.Oldest.OccurredOn))
	}
	if !e.json && e.output != archive.Stdout {
		fmt.Fprintf(e.stdout, "exported %s with %s to %s (%s)\n", countText(done.Rows, "row", "rows"), countText(done.Receipts, "receipt", "receipts"), e.output, format)
	}
}
