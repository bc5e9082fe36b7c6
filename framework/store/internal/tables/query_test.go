package tables

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// foreign is a dialect with other expressions than PostgreSQL and SQLite.
type foreign struct {
	Dialect
}

func (foreign) Quote() string          { return "`" }
func (foreign) Limit() string          { return "FIRST" }
func (foreign) Now() string            { return "UTC_TIMESTAMP(6)" }
func (foreign) Selected() string       { return `"offset", "key"` }
func (foreign) Placeholder(int) string { return "?" }

func (foreign) Whole(tables []string) string {
	return "OFFSET whole(" + strings.Join(tables, ", ") + ")"
}

// box puts the names of tables in brackets.
func box(name string) string {
	if name == "" {
		return "box"
	}
	return "box_" + name
}

// counted is a dialect whose placeholders have numbers.
type counted struct{ foreign }

func (counted) Placeholder(n int) string { return "$" + string(rune('0'+n)) }

func TestExpressionsAreWrittenInTheDialect(t *testing.T) {
	t.Parallel()
	where := SQL(`"key" = ?`, "k")
	where.And(`("offset", id) IN ?`, list(7, "a"))
	e := SQL(`SELECT {selected}, ? FROM {parked} p JOIN {log} WHERE ? AND due_at < {now} {limit} ? {whole log parked}`, "first", where, 10)

	query, args := NewRunner(nil, box, foreign{}, nil).Render(e)
	require.Equal(t, "SELECT `offset`, `key`, ? FROM box_parked p JOIN box WHERE `key` = ? AND (`offset`, id) IN (?, ?) AND due_at < UTC_TIMESTAMP(6) FIRST ? OFFSET whole(box, box_parked)", query)
	require.Equal(t, []any{"first", "k", 7, "a", 10}, args)

	query, _ = NewRunner(nil, box, counted{}, nil).Render(e)
	require.Equal(t, "SELECT `offset`, `key`, $1 FROM box_parked p JOIN box WHERE `key` = $2 AND (`offset`, id) IN ($3, $4) AND due_at < UTC_TIMESTAMP(6) FIRST $5 OFFSET whole(box, box_parked)", query)
}
