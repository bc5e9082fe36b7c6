// Package columns makes the tables that commands print.
package columns

import (
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// New is a table without lines, which other programs can cut as well. The first so
// many columns hold words, on the left; the others hold figures, on the right.
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
