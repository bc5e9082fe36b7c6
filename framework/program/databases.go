package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/config/database"
	"github.com/waybill-go/waybill/framework/forwarder/fleet"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
)

// named is a database that a command works on.
type named struct {
	name    string // "" if there is only one
	source  config.Source
	mistake string // of its entry in fleet.query
}

// check returns the mistake.
func (n named) check() error {
	if n.mistake == "" {
		return nil
	}
	return inDatabase(n.name, errors.New(n.mistake))
}

// all is the value of --in for all databases.
const all = "*"

func (f *sourceFlags) addIn(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.in, "in", "", "name of one of several databases, names with commas, or '*' for all")
}

// databases returns the databases that a command works on. If there are several, these are the ones that --in names;
// without --in, all of them if the command only reads.
func (p *invocation) databases(cmd *cobra.Command, f sourceFlags, looks bool) ([]named, error) {
	source := p.source(f)
	if f.database != "" {
		if f.in != "" {
			return nil, wrongUsage(cmd, errors.New("--in and --database both choose a database: leave one of them out"))
		}
		return []named{{source: source}}, nil
	}
	listed, control, err := listDatabases(cmd.Context(), source)
	if err != nil {
		return nil, err
	}
	if listed == nil {
		if f.in != "" {
			return nil, wrongUsage(cmd, fmt.Errorf("--in is %s, but the configuration has only one database: leave --in out", f.in))
		}
		return []named{{source: source}}, nil
	}
	var found []named
	for _, d := range listed {
		its := source
		its.Database = d.Address
		found = append(found, named{d.Name, its, d.Mistake})
	}
	switch {
	case f.in == all && !looks && control.Control.Dialect() != "":
		return append(found, controlOf(source, control)), nil
	case f.in == all, f.in == "" && looks:
		return found, nil
	case f.in == "":
		return nil, wrongUsage(cmd, fmt.Errorf("there are several databases: choose one with --in: %s", namesOf(found)))
	}
	var chosen []named
	for name := range strings.SplitSeq(f.in, ",") {
		at := slices.IndexFunc(found, func(n named) bool { return n.name == name })
		switch {
		case at >= 0:
			chosen = append(chosen, found[at])
		case name == config.ControlName && control.Control.Dialect() != "":
			chosen = append(chosen, controlOf(source, control))
		default:
			return nil, wrongUsage(cmd, fmt.Errorf("--in names the unknown database %q; the configuration has %s", name, namesOf(found)))
		}
	}
	return chosen, nil
}

// controlOf returns the control database, whose tables have their own prefix.
func controlOf(source config.Source, f config.Fleet) named {
	source.Database = f.Control.Address()
	source.Environ = append(slices.Clone(source.Environ), "WAYBILL_OUTBOX_PREFIX="+f.ControlTables().Outbox.Prefix)
	return named{name: config.ControlName, source: source}
}

// listedNames is how many names an error lists at most.
const listedNames = 20

func namesOf(databases []named) string {
	var names []string
	for _, d := range databases {
		names = append(names, d.name)
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
	listed, err := listing{d.DB(), f.Query}.List(ctx)
	if err == nil {
		listed, err = fleet.Accept(listed)
	}
	return listed, f, err
}

// one returns the only database that a command works on.
func (p *invocation) one(cmd *cobra.Command, f sourceFlags) (config.Source, error) {
	found, err := p.databases(cmd, f, false)
	if err != nil {
		return config.Source{}, err
	}
	if len(found) > 1 {
		return config.Source{}, wrongUsage(cmd, fmt.Errorf("this command works on one database: choose one with --in: %s", namesOf(found)))
	}
	return found[0].source, found[0].check()
}

// look is what a command has found in one database.
type look struct {
	view  any // for --json
	print func(w io.Writer)
	// missing is why there is nothing to show. It is an error only if no database has something.
	missing error
}

// each calls lookIn for each database, and prints the results. If one database fails, the others are still shown.
func (l *looking) each(cmd *cobra.Command, lookIn func(source config.Source) (look, error)) error {
	databases, err := l.databases(cmd, l.flags, true)
	if err != nil {
		return err
	}
	if len(databases) == 1 && databases[0].name == "" {
		found, err := lookIn(databases[0].source)
		if err != nil {
			return err
		}
		if l.json {
			if err := printJSON(l.stdout, found.view); err != nil {
				return err
			}
		} else if found.print != nil {
			found.print(l.stdout)
		}
		return found.missing
	}
	views := make(map[string]any, len(databases))
	var failed []error
	var missing error
	has := false
	for _, d := range databases {
		if err := d.check(); err != nil {
			failed = append(failed, err)
			views[d.name] = map[string]string{"error": d.mistake}
			continue
		}
		found, err := lookIn(d.source)
		switch {
		case err != nil:
			failed = append(failed, fmt.Errorf("database %s: %w", d.name, err))
			views[d.name] = map[string]string{"error": err.Error()}
			continue
		case found.missing != nil:
			missing = cmp.Or(missing, found.missing)
			continue
		}
		views[d.name], has = found.view, true
		if !l.json && found.print != nil {
			terminal.Printf(l.stdout, "database %s\n\n", d.name)
			found.print(l.stdout)
			terminal.Println(l.stdout)
		}
	}
	if has {
		missing = nil
	}
	if l.json {
		err = printJSON(l.stdout, map[string]any{"databases": views})
	}
	return errors.Join(append(failed, missing, err)...)
}

// inEach is each with an operator.
func (l *looking) inEach(cmd *cobra.Command, lookIn func(o *operator) (look, error)) error {
	return l.each(cmd, func(source config.Source) (look, error) {
		o, cleanup, err := newOperator(cmd.Context(), source, l.options, "")
		if err != nil {
			return look{}, err
		}
		defer cleanup()
		return lookIn(o)
	})
}
