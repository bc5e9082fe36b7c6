package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/config/database"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

func newDoctor(p *invocation) *cobra.Command {
	d := &examine{looking: looking{invocation: p}}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the database and the configuration for what will go wrong",
		Long: `Make checks of the database and the configuration, one after the other: of the log and its
cursors, of transactions that hold the log, settings of the server, connections, indexes,
retention, lanes and forwarders, parked deliveries, schedules, sinks and privileges. Each
shows ok, warn, fail or skip, what was found, and what mends it. docs/doctor.md has a
section for each check.

The exit code is 1 if a check failed, with --strict also if one warns. A check that the role
of the database may not make is skipped, and shows the GRANT that it needs.

No check changes a row or reads all of a large table, and each ends within --timeout. One
sends a NOTIFY to the forwarders, and sinks are asked as by waybill config check. Where a
configuration has mistakes, or its secrets are not at hand, that is a failed check, and the
others are made all the same.`,
		Example: `  waybill doctor -c waybill.yaml
  waybill doctor --only lanes,lag,dead --strict --json
  waybill doctor --duty forwarder --skip sinks`,
		Args: noArguments,
		RunE: d.run,
	}
	d.add(cmd)
	cmd.Flags().StringSliceVar(&d.Only, "only", nil, "make only the checks with these `IDS`: "+strings.Join(doctor.IDs(), ", "))
	cmd.Flags().StringSliceVar(&d.Skip, "skip", nil, "leave out the checks with these `IDS`")
	cmd.Flags().BoolVar(&d.strict, "strict", false, "exit with 1 also if a check warns")
	cmd.Flags().DurationVar(&d.Timeout, "timeout", doctor.DefaultTimeout, "how long a check may take")
	cmd.Flags().DurationVar(&d.HeldAfter, "held-after", doctor.DefaultHeldAfter, "how long a transaction may hold the log")
	cmd.Flags().StringVar(&d.duty, "duty", "", "`DUTY` of the database's role, whose privileges it must have: "+strings.Join(dutyNames(), ", ")+" (default: those of a forwarder, where a missing one is no failure)")
	return cmd
}

func dutyNames() (names []string) {
	for _, d := range postgres.Duties() {
		names = append(names, string(d))
	}
	return names
}

type examine struct {
	looking
	doctor.Options
	strict bool
	duty   string
}

func (d *examine) run(cmd *cobra.Command, _ []string) error {
	if err := d.check(); err != nil {
		return wrongUsage(cmd, err)
	}
	var bad error
	err := d.each(cmd, func(source config.Source) (look, error) {
		findings, err := examineOutbox(cmd.Context(), source, d.options, postgres.Duty(d.duty), d.Options)
		if err == nil {
			err = cmd.Context().Err()
		}
		bad = errors.Join(bad, d.verdict(findings))
		return look{view: findings, print: func(w io.Writer) { printFindings(w, findings) }}, err
	})
	return errors.Join(err, bad)
}

// check is about the flags.
func (d *examine) check() error {
	switch {
	case d.Timeout <= 0:
		return fmt.Errorf("--timeout is %s: use more than 0", d.Timeout)
	case d.HeldAfter <= 0:
		return fmt.Errorf("--held-after is %s: use more than 0", d.HeldAfter)
	case d.duty != "" && !slices.Contains(dutyNames(), d.duty):
		return fmt.Errorf("--duty is %q: use %s", d.duty, strings.Join(dutyNames(), ", "))
	}
	return d.Validate()
}

// examineOutbox makes the checks. A configuration with mistakes is only a finding as long as the
// database is known.
func examineOutbox(ctx context.Context, source config.Source, options config.Options, duty postgres.Duty, checks doctor.Options) ([]doctor.Finding, error) {
	s := doctor.Subject{Duty: duty}
	tables, err := config.LoadTables(source)
	if err != nil {
		return nil, err
	}
	tables.Listen = tables.Database.Dialect() == config.PostgreSQL
	if source.File != "" {
		c, err := config.Load(source, options)
		if err == nil {
			s.Forwarder, tables = new(c.ForwarderConfig(nil)), c.Tables()
			for _, at := range c.Timetable() {
				s.Schedules = append(s.Schedules, at.Name)
			}
		}
		s.Mistakes = err
	}
	db, cleanup, err := database.Open(tables)
	if err != nil {
		return nil, err
	}
	defer cleanup()
	s.DB = db.DB()
	s.PostgreSQL, s.SQLite, s.MySQL = db.Outbox()
	return doctor.Run(ctx, s, checks), nil
}

// verdict is the error of the whole.
func (d *examine) verdict(findings []doctor.Finding) error {
	var bad []string
	for _, f := range findings {
		if f.Status == doctor.Fail || d.strict && f.Status == doctor.Warn {
			bad = append(bad, f.ID)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return fmt.Errorf("not well: %s", strings.Join(bad, ", "))
}

func printFindings(w io.Writer, findings []doctor.Finding) {
	t := newTable(w, "check", "status", "finding")
	for _, f := range findings {
		t.AppendRow(table.Row{f.ID, f.Status, f.Text})
	}
	t.Render()
	for _, f := range findings {
		if f.Status == doctor.OK || f.Status == doctor.Skip && f.Fix == "" {
			continue
		}
		fmt.Fprintf(w, "\n%s: %s\n", f.ID, f.Why)
		if f.Fix != "" {
			fmt.Fprintf(w, "    %s\n", strings.ReplaceAll(strings.TrimSpace(f.Fix), "\n", "\n    "))
		}
		fmt.Fprintf(w, "    %s\n", f.Link)
	}
}
