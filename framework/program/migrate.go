package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/config/database"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

func newMigrate(p *command.Invocation) *cobra.Command {
	m := &migrate{Invocation: p}
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create or upgrade the outbox's tables",
		Long: `Create the outbox's tables in the database, or upgrade them to this version, and print
the migrations that were applied. A second run changes nothing. --print prints the SQL
for an empty database instead, and changes nothing.

On PostgreSQL, --partition-rows creates a new log with partitions of that many offsets.
Retention then drops whole partitions, which leaves nothing to vacuum, and forwarders
create the next ones. An existing log is not changed.

--print-grants prints the least privileges of a database role that publishes, consumes,
forwards, schedules or operates. The owner of the tables runs the statements: that is
the role that migrates, and it needs CREATE on the schema.

--capture installs triggers that publish every change of a table of the application, as
TYPE.inserted, TYPE.updated and TYPE.deleted, with the named columns before and after.
Run again, it replaces the capture. Only the owner of the table can do this, once the
outbox's tables exist. --uncapture removes the triggers, --captures lists the captured
tables, and --capture with --print prints the SQL and changes nothing.

If there are several databases, --in names those to migrate: '*' is all of them, and
control is the database of fleet.control.

` + command.NeedsDatabaseOnly,
		Example: `  waybill migrate --database postgres://app@localhost/app
  waybill migrate --partition-rows 1000000
  waybill migrate -c waybill.yaml --print | psql --single-transaction app
  waybill migrate -c waybill.yaml --print-grants shop --for publisher | psql app
  waybill migrate -c waybill.yaml --capture orders --key id --columns id,product,amount`,
		Args: command.NoArguments,
		RunE: m.run,
	}
	m.flags.Add(cmd)
	m.flags.AddIn(cmd)
	cmd.Flags().Int64Var(&m.partitionRows, "partition-rows", 0, "offsets in each partition of a new log; PostgreSQL only (default: no partitions)")
	cmd.Flags().BoolVar(&m.print, "print", false, "print the SQL for an empty database, or for --capture, and change nothing")
	cmd.Flags().StringVar(&m.role, "print-grants", "", "print the GRANT statements for this `ROLE` and change nothing; not on SQLite")
	cmd.Flags().StringVar(&m.duty, "for", string(postgres.Forwarder), "duty of the role of --print-grants: publisher, consumer, forwarder, scheduler or operator")
	m.capture.add(cmd)
	cmd.Flags().BoolVar(&m.json, "json", false, "print the result as JSON")
	return cmd
}

type migrate struct {
	*command.Invocation
	flags       command.SourceFlags
	print, json bool
	role, duty  string

	partitionRows int64
	capture       captureFlags
}

func (m *migrate) run(cmd *cobra.Command, _ []string) error {
	task, err := m.task(cmd)
	if err != nil {
		return command.WrongUsage(cmd, err)
	}
	databases, err := m.Databases(cmd, m.flags, false)
	switch {
	case err != nil:
		return err
	case len(databases) > 1 && (task != nil || m.json):
		return command.WrongUsage(cmd, errors.New("this works on one database: choose one with --in"))
	case task != nil:
		return task(cmd.Context(), databases[0].Source)
	}
	var failed []error
	for _, d := range databases {
		if err := m.migrate(cmd.Context(), d); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// task returns what the flags ask to do with one database instead of migrating it; nil for nothing. It
// fails if they contradict each other.
func (m *migrate) task(cmd *cobra.Command) (func(context.Context, config.Source) error, error) {
	capturing, err := m.capture.asked(cmd)
	if err == nil {
		err = m.mistake(cmd)
	}
	switch {
	case err != nil:
		return nil, err
	case m.role != "":
		return m.printGrants, nil
	case capturing:
		return m.runCapture, nil
	case m.print:
		return m.printSQL, nil
	}
	return nil, nil
}

// mistake returns what is wrong with the flags.
func (m *migrate) mistake(cmd *cobra.Command) error {
	switch {
	case m.partitionRows < 0:
		return fmt.Errorf("--partition-rows is %d: use at least 1", m.partitionRows)
	case cmd.Flags().Changed("for") && m.role == "":
		return errors.New("--for belongs to --print-grants")
	case m.role != "" && (m.print || m.json):
		return errors.New("--print-grants already prints SQL: leave out --print and --json")
	case m.role != "" && !slices.Contains(postgres.Duties(), postgres.Duty(m.duty)):
		return fmt.Errorf("--for is %q: use publisher, consumer, forwarder, scheduler or operator", m.duty)
	case m.print && m.json:
		return errors.New("--print prints SQL and --json prints JSON: leave one of them out")
	}
	return nil
}

// migrate makes or upgrades the tables of one database.
func (m *migrate) migrate(ctx context.Context, in command.Named) error {
	if err := in.Check(); err != nil {
		return err
	}
	if in.Name != "" && !m.json {
		terminal.Printf(m.Stdout, "database %s: ", in.Name)
	}
	d, cleanup, err := newMigration(in.Source)
	if err != nil {
		return command.InDatabase(in.Name, err)
	}
	defer cleanup()
	applied, err := d.Migrate(ctx, m.partitionRows)
	if in.Name != "" && len(applied) > 0 && !m.json {
		terminal.Println(m.Stdout)
	}
	if printErr := m.printApplied(applied, err == nil); err == nil {
		err = printErr
	}
	return command.InDatabase(in.Name, err)
}

func (m *migrate) printSQL(_ context.Context, source config.Source) error {
	return m.printText(source, func(t config.Tables) (string, error) { return database.MigrationSQL(t, m.partitionRows) })
}

func (m *migrate) printGrants(_ context.Context, source config.Source) error {
	return m.printText(source, func(t config.Tables) (string, error) { return database.Grants(t, m.role, m.duty) })
}

// printText prints a text about the tables.
func (m *migrate) printText(source config.Source, of func(config.Tables) (string, error)) error {
	tables, err := config.LoadTables(source)
	if err != nil {
		return err
	}
	text, err := of(tables)
	if err != nil {
		return err
	}
	_, err = io.WriteString(m.Raw, text)
	return err
}

// printApplied prints the migrations that were applied, also if a later one failed.
func (m *migrate) printApplied(applied []string, done bool) error {
	if m.json {
		return command.PrintJSON(m.Stdout, struct {
			Applied []string `json:"applied"`
		}{append([]string{}, applied...)})
	}
	for _, name := range applied {
		terminal.Println(m.Stdout, "applied", name)
	}
	if done && len(applied) == 0 {
		terminal.Println(m.Stdout, "the outbox is up to date")
	}
	return nil
}
