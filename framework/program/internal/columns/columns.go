// Package columns formats the tables that commands print.
package columns

import (
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
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
	var figures []table.ColumnConfig
	for i := words; i < len(header); i++ {
		figures = append(figures, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(figures)
	return t
}
