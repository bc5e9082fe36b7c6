package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/config/database"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

func newMigrate(p *invocation) *cobra.Command {
	m := &migrate{invocation: p}
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

` + needsDatabaseOnly,
		Example: `  waybill migrate --database postgres://app@localhost/app
  waybill migrate --partition-rows 1000000
  waybill migrate -c waybill.yaml --print | psql --single-transaction app
  waybill migrate -c waybill.yaml --print-grants shop --for publisher | psql app
  waybill migrate -c waybill.yaml --capture orders --key id --columns id,product,amount`,
		Args: noArguments,
		RunE: m.run,
	}
	m.flags.add(cmd)
	m.flags.addIn(cmd)
	cmd.Flags().Int64Var(&m.partitionRows, "partition-rows", 0, "offsets in each partition of a new log; PostgreSQL only (default: no partitions)")
	cmd.Flags().BoolVar(&m.print, "print", false, "print the SQL for an empty database, or for --capture, and change nothing")
	cmd.Flags().StringVar(&m.role, "print-grants", "", "print the GRANT statements for this `ROLE` and change nothing; not on SQLite")
	cmd.Flags().StringVar(&m.duty, "for", string(postgres.Forwarder), "duty of the role of --print-grants: publisher, consumer, forwarder, scheduler or operator")
	m.capture.add(cmd)
	cmd.Flags().BoolVar(&m.json, "json", false, "print the result as JSON")
	return cmd
}

type migrate struct {
	*invocation
	flags       sourceFlags
	print, json bool
	role, duty  string

	partitionRows int64
	capture       captureFlags
}

func (m *migrate) run(cmd *cobra.Command, _ []string) error {
	capturing, err := m.capture.asked(cmd)
	switch {
	case err != nil:
		return wrongUsage(cmd, err)
	case m.partitionRows < 0:
		return wrongUsage(cmd, fmt.Errorf("--partition-rows is %d: use at least 1", m.partitionRows))
	case cmd.Flags().Changed("for") && m.role == "":
		return wrongUsage(cmd, errors.New("--for belongs to --print-grants"))
	case m.role != "" && (m.print || m.json):
		return wrongUsage(cmd, errors.New("--print-grants already prints SQL: leave out --print and --json"))
	case m.role != "" && !slices.Contains(postgres.Duties(), postgres.Duty(m.duty)):
		return wrongUsage(cmd, fmt.Errorf("--for is %q: use publisher, consumer, forwarder, scheduler or operator", m.duty))
	case m.print && m.json:
		return wrongUsage(cmd, errors.New("--print prints SQL and --json prints JSON: leave one of them out"))
	}
	databases, err := m.databases(cmd, m.flags, false)
	if err != nil {
		return err
	}
	single := capturing || m.print || m.role != "" || m.json
	source := databases[0].source
	switch {
	case len(databases) > 1 && single:
		return wrongUsage(cmd, errors.New("this works on one database: choose one with --in"))
	case m.role != "":
		return m.printGrants(source)
	case capturing:
		return m.runCapture(cmd, source)
	case m.print:
		return m.printSQL(source)
	}
	var failed []error
	for _, d := range databases {
		if err := m.migrate(cmd.Context(), d); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// migrate makes or upgrades the tables of one database.
func (m *migrate) migrate(ctx context.Context, in named) error {
	if err := in.check(); err != nil {
		return err
	}
	if in.name != "" && !m.json {
		terminal.Printf(m.stdout, "database %s: ", in.name)
	}
	d, cleanup, err := newMigration(in.source)
	if err != nil {
		return inDatabase(in.name, err)
	}
	defer cleanup()
	applied, err := d.Migrate(ctx, m.partitionRows)
	if in.name != "" && len(applied) > 0 && !m.json {
		terminal.Println(m.stdout)
	}
	if printErr := m.printApplied(applied, err == nil); err == nil {
		err = printErr
	}
	return inDatabase(in.name, err)
}

// inDatabase adds the name of the database to an error, if there are several databases.
func inDatabase(name string, err error) error {
	if name == "" || err == nil {
		return err
	}
	return fmt.Errorf("database %s: %w", name, err)
}

func (m *migrate) printSQL(source config.Source) error {
	tables, err := config.LoadTables(source)
	if err != nil {
		return err
	}
	text, err := database.MigrationSQL(tables, m.partitionRows)
	if err != nil {
		return err
	}
	_, err = io.WriteString(m.raw, text)
	return err
}

func (m *migrate) printGrants(source config.Source) error {
	tables, err := config.LoadTables(source)
	if err != nil {
		return err
	}
	text, err := database.Grants(tables, m.role, m.duty)
	if err != nil {
		return err
	}
	_, err = io.WriteString(m.raw, text)
	return err
}

// printApplied prints the migrations that were applied, also if a later one failed.
func (m *migrate) printApplied(applied []string, done bool) error {
	if m.json {
		return printJSON(m.stdout, struct {
			Applied []string `json:"applied"`
		}{append([]string{}, applied...)})
	}
	for _, name := range applied {
		terminal.Println(m.stdout, "applied", name)
	}
	if done && len(applied) == 0 {
		terminal.Println(m.stdout, "the outbox is up to date")
	}
	return nil
}

// printJSON writes a result as JSON for people and programs.
func printJSON(w io.Writer, result any) error {
	text, err := admin.JSON(result)
	if err != nil {
		return err
	}
	_, err = terminal.JSON(w).Write(text)
	return err
}
