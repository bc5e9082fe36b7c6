// Package columns formats the tables that commands print.
package columns

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/waybill-go/waybill/framework/program/internal/terminal"
)

// New returns a table without lines, so that tools such as cut can read it. The first words columns are
// aligned to the left, and the others, which have figures, to the right.
func New(w io.Writer, words int, header ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleDefault)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.SuppressTrailingSpaces()
	t.AppendHeader(header)
	columns := make([]table.ColumnConfig, len(header))
	for i := range columns {
		columns[i] = table.ColumnConfig{Number: i + 1, Transformer: func(value any) string { return terminal.Escape(fmt.Sprint(value)) }}
		if i >= words {
			columns[i].Align, columns[i].AlignHeader = text.AlignRight, text.AlignRight
		}
	}
	t.SetColumnConfigs(columns)
	return t
}
