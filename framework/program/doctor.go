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
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

func newDoctor(p *command.Invocation) *cobra.Command {
	d := &examine{Looking: command.Looking{Invocation: p}}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the database and the configuration for problems",
		Long: `Check the database and the configuration: the log and its cursors, transactions that
hold the log back, server settings, connections, indexes, retention, lanes and
forwarders, parked deliveries, schedules, sinks and privileges. Each check shows ok,
warn, fail or skip, what it found, and how to fix it. docs/doctor.md has a section for
each check.

The exit code is 1 if a check failed, with --strict also if one warned. A check for
which the database role lacks a privilege is skipped, and shows the GRANT that it needs.

No check changes a row or reads all of a large table, and each ends within --timeout.
One check sends a NOTIFY to the forwarders, and sinks are checked as by waybill config
check. A configuration with mistakes or missing secrets is a failed check, and the
other checks still run.`,
		Example: `  waybill doctor -c waybill.yaml
  waybill doctor --only lanes,lag,dead --strict --json
  waybill doctor --duty forwarder --skip sinks`,
		Args: command.NoArguments,
		RunE: d.run,
	}
	d.Add(cmd)
	cmd.Flags().StringSliceVar(&d.Only, "only", nil, "run only the checks with these `IDS`: "+strings.Join(doctor.IDs(), ", "))
	cmd.Flags().StringSliceVar(&d.Skip, "skip", nil, "skip the checks with these `IDS`")
	cmd.Flags().BoolVar(&d.strict, "strict", false, "exit with 1 if a check warns, too")
	cmd.Flags().DurationVar(&d.Timeout, "timeout", doctor.DefaultTimeout, "how long a check may take")
	cmd.Flags().DurationVar(&d.HeldAfter, "held-after", doctor.DefaultHeldAfter, "how long a transaction may hold the log back")
	cmd.Flags().StringVar(&d.duty, "duty", "", "`DUTY` of the database role, to check its privileges for: "+strings.Join(dutyNames(), ", ")+" (default: forwarder, and a missing privilege does not fail the check)")
	return cmd
}

func dutyNames() (names []string) {
	for _, d := range postgres.Duties() {
		names = append(names, string(d))
	}
	return names
}

type examine struct {
	command.Looking
	doctor.Options
	strict bool
	duty   string
}

func (d *examine) run(cmd *cobra.Command, _ []string) error {
	if err := d.check(); err != nil {
		return command.WrongUsage(cmd, err)
	}
	var bad error
	err := d.Each(cmd, func(source config.Source) (command.Look, error) {
		findings, err := examineOutbox(cmd.Context(), d.Invocation, source, postgres.Duty(d.duty), d.Options)
		if err == nil {
			err = cmd.Context().Err()
		}
		bad = errors.Join(bad, d.verdict(findings))
		return command.Look{View: findings, Print: func(w io.Writer) { printFindings(w, findings) }}, err
	})
	return errors.Join(err, bad)
}

// check checks the flags.
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

// examineOutbox runs the checks. If the configuration has mistakes but names the database, the
// mistakes are a finding and not an error.
func examineOutbox(ctx context.Context, p *command.Invocation, source config.Source, duty postgres.Duty, checks doctor.Options) ([]doctor.Finding, error) {
	s := doctor.Subject{Duty: duty}
	tables, err := config.LoadTables(source)
	if err != nil {
		return nil, err
	}
	tables.Listen = tables.Database.Dialect() == config.PostgreSQL
	if source.File != "" {
		c, err := config.Load(source, p.Options)
		if err == nil {
			s.Forwarder, s.Alerts, tables = new(c.ForwarderConfig(nil)), c.Alerts.WithDefaults(), c.Tables()
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
	s.DB, s.Address = db.DB(), tables.Database.DSN()
	s.PostgreSQL, s.SQLite, s.MySQL = db.Outbox()
	findings := doctor.Run(ctx, s, checks)
	for i := range findings {
		findings[i].Text, findings[i].Fix = p.Named(findings[i].Text), p.Named(findings[i].Fix)
	}
	return findings, nil
}

// verdict returns an error that names the checks that failed, with --strict also those that
// warned.
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
	return fmt.Errorf("checks with problems: %s", strings.Join(bad, ", "))
}

func printFindings(w io.Writer, findings []doctor.Finding) {
	t := command.NewTable(w, "check", "status", "finding")
	for _, f := range foldSkipped(findings) {
		t.AppendRow(table.Row{f.ID, f.Status, f.Text})
	}
	t.Render()
	for _, f := range findings {
		if f.Status == doctor.OK || f.Status == doctor.Skip && f.Fix == "" {
			continue
		}
		terminal.Printf(w, "\n%s: %s\n", f.ID, f.Why)
		if f.Fix != "" {
			for line := range strings.Lines(strings.TrimSpace(f.Fix)) {
				terminal.Printf(w, "    %s\n", strings.TrimSuffix(line, "\n"))
			}
		}
		terminal.Printf(w, "    %s\n", f.Link)
	}
}

// foldSkipped makes one line of neighbouring checks that were skipped for the same reason.
func foldSkipped(findings []doctor.Finding) (folded []doctor.Finding) {
	for len(findings) > 0 {
		first, n := findings[0], 1
		for first.Status == doctor.Skip && n < len(findings) && findings[n].Status == doctor.Skip && findings[n].Text == first.Text {
			n++
		}
		if findings = findings[n:]; n > 1 {
			first.ID = fmt.Sprintf("%s and %d more", first.ID, n-1)
		}
		folded = append(folded, first)
	}
	return folded
}
