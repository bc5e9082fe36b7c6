package program

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/config/database"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/store/postgres/capture"
)

// captureFlags is the part of migrate that installs triggers, which publish what is written to
// tables.
type captureFlags struct {
	capture.Capture
	on     []string
	remove string
	list   bool
}

func (c *captureFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&c.Table, "capture", "", "install triggers that publish what is written to this `TABLE`; PostgreSQL only")
	flags.StringVar(&c.Key, "key", "", "`COLUMN` of the captured table that becomes the notifications' key")
	flags.StringSliceVar(&c.Columns, "columns", nil, "`COLUMNS` of the captured table to put into the notifications")
	flags.StringVar(&c.Type, "type", "", "`TYPE` of the captured table's notifications, before .inserted, .updated and .deleted (default: the table's name)")
	flags.StringSliceVar(&c.on, "on", []string{"insert", "update", "delete"}, "`STATEMENTS` to capture")
	flags.StringVar(&c.remove, "uncapture", "", "remove the capture of this `TABLE`")
	flags.BoolVar(&c.list, "captures", false, "list the captured tables and change nothing")
}

// asked reports whether the flags ask for a capture task, and returns an error if they
// contradict each other.
func (c *captureFlags) asked(cmd *cobra.Command) (bool, error) {
	flags := cmd.Flags()
	var tasks []string
	for _, name := range []string{"capture", "uncapture", "captures", "print-grants", "partition-rows"} {
		if flags.Changed(name) {
			tasks = append(tasks, "--"+name)
		}
	}
	asked := flags.Changed("capture") || flags.Changed("uncapture") || flags.Changed("captures")
	for _, name := range []string{"key", "columns", "type", "on"} {
		if flags.Changed(name) && !flags.Changed("capture") {
			return false, fmt.Errorf("--%s belongs to --capture", name)
		}
	}
	switch {
	case asked && len(tasks) > 1:
		return false, fmt.Errorf("%s are separate tasks: use one of them", strings.Join(tasks, " and "))
	case asked && flags.Changed("print") && !flags.Changed("capture"):
		return false, fmt.Errorf("%s prints no SQL: leave out --print", tasks[0])
	}
	return asked, nil
}

func (m *migrate) runCapture(ctx context.Context, source config.Source) error {
	c := m.capture
	for _, on := range c.on {
		c.On = append(c.On, capture.Change(on))
	}
	tables, err := config.LoadTables(source)
	if err != nil {
		return err
	}
	outbox, err := database.PostgreSQL(tables)
	if err != nil {
		return err
	}
	d, cleanup, err := database.Open(tables)
	if err != nil {
		return err
	}
	defer cleanup()
	db := d.DB()
	switch {
	case m.print:
		text, err := capture.SQL(ctx, db, outbox, c.Capture)
		if err != nil {
			return err
		}
		_, err = io.WriteString(m.Raw, text)
		return err
	case c.remove != "":
		if err = capture.Remove(ctx, db, outbox, c.remove); err == nil && !m.json {
			terminal.Println(m.Stdout, c.remove, "is no longer captured")
		}
	case !c.list:
		err = capture.Add(ctx, db, outbox, c.Capture)
	}
	if err != nil {
		return err
	}
	captures, err := capture.List(ctx, db, outbox)
	if err != nil {
		return err
	}
	return m.printCaptures(captures)
}

// captureLine is a captured table in the output of --json.
type captureLine struct {
	Table   string           `json:"table"`
	Key     string           `json:"key"`
	Columns []string         `json:"columns"`
	Type    string           `json:"type"`
	On      []capture.Change `json:"on"`
}

func (m *migrate) printCaptures(captures []capture.Capture) error {
	if m.json {
		lines := make([]captureLine, len(captures))
		for i, c := range captures {
			lines[i] = captureLine(c)
		}
		return command.PrintJSON(m.Stdout, lines)
	}
	if len(captures) == 0 {
		terminal.Println(m.Stdout, "no table is captured")
		return nil
	}
	t := command.NewTable(m.Stdout, "table", "type", "on", "key", "columns")
	for _, c := range captures {
		on := make([]string, len(c.On))
		for i, change := range c.On {
			on[i] = string(change)
		}
		t.AppendRow(table.Row{c.Table, c.Type, strings.Join(on, ", "), c.Key, strings.Join(c.Columns, ", ")})
	}
	t.Render()
	return nil
}
