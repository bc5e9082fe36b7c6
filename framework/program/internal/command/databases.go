package command

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/config/database"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/forwarder/fleet"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/route"
)

// Named is a database that a command works on.
type Named struct {
	Name    string // "" if there is only one
	Source  config.Source
	Mistake string // of its entry in fleet.query
}

// Check returns the mistake.
func (n Named) Check() error {
	if n.Mistake == "" {
		return nil
	}
	return InDatabase(n.Name, errors.New(n.Mistake))
}

// all is the value of --in for all databases.
const all = "*"

// AddIn adds the flag that chooses one of several databases.
func (f *SourceFlags) AddIn(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.In, "in", "", "name of one of several databases, names with commas, or '*' for all")
}

// Databases returns the databases that a command works on. If there are several, these are the ones that --in names;
// without --in, all of them if the command only reads.
func (p *Invocation) Databases(cmd *cobra.Command, f SourceFlags, looks bool) ([]Named, error) {
	source := p.Source(f)
	if f.Database != "" {
		if f.In != "" {
			return nil, WrongUsage(cmd, errors.New("--in and --database both choose a database: leave one of them out"))
		}
		return []Named{{Source: source}}, nil
	}
	listed, control, err := listDatabases(cmd.Context(), source)
	if err != nil {
		return nil, err
	}
	if listed == nil {
		if f.In != "" {
			return nil, WrongUsage(cmd, fmt.Errorf("--in is %s, but the configuration has only one database: leave --in out", f.In))
		}
		return []Named{{Source: source}}, nil
	}
	var found []Named
	for _, d := range listed {
		its := source
		its.Database = d.Address
		found = append(found, Named{d.Name, its, d.Mistake})
	}
	switch {
	case f.In == all && !looks && control.Control.Dialect() != "":
		return append(found, controlOf(source, control)), nil
	case f.In == all, f.In == "" && looks:
		return found, nil
	case f.In == "":
		return nil, WrongUsage(cmd, fmt.Errorf("there are several databases: choose one with --in: %s", namesOf(found)))
	}
	var chosen []Named
	for name := range strings.SplitSeq(f.In, ",") {
		at := slices.IndexFunc(found, func(n Named) bool { return n.Name == name })
		switch {
		case at >= 0:
			chosen = append(chosen, found[at])
		case name == config.ControlName && control.Control.Dialect() != "":
			chosen = append(chosen, controlOf(source, control))
		default:
			return nil, WrongUsage(cmd, fmt.Errorf("--in names the unknown database %q; the configuration has %s", name, namesOf(found)))
		}
	}
	return chosen, nil
}

// controlOf returns the control database, whose tables have their own prefix.
func controlOf(source config.Source, f config.Fleet) Named {
	source.Database = f.Control.Address()
	source.Environ = append(slices.Clone(source.Environ), "WAYBILL_OUTBOX_PREFIX="+f.ControlTables().Outbox.Prefix)
	return Named{Name: config.ControlName, Source: source}
}

// listedNames is how many names an error lists at most.
const listedNames = 20

func namesOf(databases []Named) string {
	var names []string
	for _, d := range databases {
		names = append(names, d.Name)
	}
	if more := len(names) - listedNames; more > 0 {
		names = append(names[:listedNames], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// listDatabases lists the databases of a fleet; nil if there is one database.
func listDatabases(ctx context.Context, source config.Source) ([]fleet.Database, config.Fleet, error) {
	given, f, err := config.LoadFleet(source)
	switch {
	case err != nil:
		return nil, f, err
	case len(given) > 0:
		return config.FleetOf(given), f, nil
	case f.Query == "":
		return nil, f, nil
	}
	d, cleanup, err := database.Open(f.ControlTables())
	if err != nil {
		return nil, f, err
	}
	defer cleanup()
	listed, err := Listing{d.DB(), f.Query}.List(ctx)
	if err == nil {
		listed, err = fleet.Accept(listed)
	}
	return listed, f, err
}

// One returns the only database that a command works on.
func (p *Invocation) One(cmd *cobra.Command, f SourceFlags) (config.Source, error) {
	found, err := p.Databases(cmd, f, false)
	if err != nil {
		return config.Source{}, err
	}
	if len(found) > 1 {
		return config.Source{}, WrongUsage(cmd, fmt.Errorf("this command works on one database: choose one with --in: %s", namesOf(found)))
	}
	return found[0].Source, found[0].Check()
}

// Look is what a command has found or done in one database.
type Look struct {
	View  any // for --json
	Print func(w io.Writer)
	// Missing is why there is nothing to show. It is an error only if no database has something.
	Missing error
}

// Show prints what was found in the only database.
func (l *Looking) Show(found Look) error {
	if l.JSON {
		if err := PrintJSON(l.Stdout, found.View); err != nil {
			return err
		}
	} else if found.Print != nil {
		found.Print(l.Stdout)
	}
	return found.Missing
}

// Each calls lookIn for each database, and prints the results. If one database fails, the others are still shown.
func (l *Looking) Each(cmd *cobra.Command, lookIn func(source config.Source) (Look, error)) error {
	databases, err := l.Databases(cmd, l.Flags, true)
	if err != nil {
		return err
	}
	if len(databases) == 1 && databases[0].Name == "" {
		found, err := lookIn(databases[0].Source)
		if err != nil {
			return err
		}
		return l.Show(found)
	}
	views := make(map[string]any, len(databases))
	var failed []error
	var missing error
	has := false
	for _, d := range databases {
		if err := d.Check(); err != nil {
			failed = append(failed, err)
			views[d.Name] = map[string]string{"error": d.Mistake}
			continue
		}
		found, err := lookIn(d.Source)
		switch {
		case err != nil:
			failed = append(failed, fmt.Errorf("database %s: %w", d.Name, err))
			views[d.Name] = map[string]string{"error": err.Error()}
			continue
		case found.Missing != nil:
			missing = cmp.Or(missing, found.Missing)
			continue
		}
		views[d.Name], has = found.View, true
		if !l.JSON && found.Print != nil {
			terminal.Printf(l.Stdout, "database %s\n\n", d.Name)
			found.Print(l.Stdout)
			terminal.Println(l.Stdout)
		}
	}
	if has {
		missing = nil
	}
	if l.JSON {
		err = PrintJSON(l.Stdout, map[string]any{"databases": views})
	}
	return errors.Join(append(failed, missing, err)...)
}

// Listing lists databases by a query of the control database.
type Listing struct {
	DB   *sql.DB
	Text string
}

// List implements fleet.Lister.
func (l Listing) List(ctx context.Context) (listed []fleet.Database, err error) {
	rows, err := l.DB.QueryContext(ctx, l.Text)
	if err != nil {
		return nil, fmt.Errorf("fleet.query: %w", err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, fmt.Errorf("fleet.query: %w", err)
	}
	if len(columns) != 2 {
		return nil, fmt.Errorf("fleet.query: it returns the columns %s: it must return a name and an address", strings.Join(columns, ", "))
	}
	for rows.Next() {
		var name, address sql.NullString
		if err := rows.Scan(&name, &address); err != nil {
			return nil, fmt.Errorf("fleet.query: %w", err)
		}
		listed = append(listed, config.FleetDatabase(name.String, address.String))
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("fleet.query: %w", err)
	}
	return listed, nil
}

// Looking is shared by commands that read the outbox.
type Looking struct {
	*Invocation
	Flags SourceFlags
	JSON  bool
}

// Add adds the flags.
func (l *Looking) Add(cmd *cobra.Command) {
	l.Flags.Add(cmd)
	l.Flags.AddIn(cmd)
	cmd.Flags().BoolVar(&l.JSON, "json", false, "print the result as JSON")
}

// InDatabase adds the name of the database to an error, if there are several databases.
func InDatabase(name string, err error) error {
	if name == "" || err == nil {
		return err
	}
	return fmt.Errorf("database %s: %w", name, err)
}

// RoutingOf returns a configuration's routing; routes may be nil.
func RoutingOf(c *config.Config, routes *route.Table) admin.Routing {
	if routes == nil {
		return admin.Routing{}
	}
	return admin.Routing{Routes: routes, MaxAttempts: c.MaxAttempts, Collect: c.Collect, Unrouted: string(cmp.Or(c.Forwarder.Unrouted, forwarder.UnroutedPark))}
}
