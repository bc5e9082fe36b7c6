package tables

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

// foreign is a dialect with other expressions than PostgreSQL and SQLite.
type foreign struct {
	Dialect
}

func (foreign) Quote() string          { return "`" }
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

// numbered is a dialect whose placeholders have numbers.
type numbered struct{ foreign }

func (numbered) Placeholder(n int) string { return "$" + string(rune('0'+n)) }

func TestExpressionsAreWrittenInTheDialect(t *testing.T) {
	t.Parallel()
	where := SQL(`"key" = ?`, "k")
	where.and(`("offset", id) IN ?`, list(7, "a"))
	e := SQL(`SELECT {selected}, ? FROM {parked} p JOIN {log} WHERE ? AND due_at < {now} LIMIT ? {whole log parked}`, "first", where, 10)

	query, args := NewRunner(box, foreign{}).Render(e)
	require.Equal(t, "SELECT `offset`, `key`, ? FROM box_parked p JOIN box WHERE `key` = ? AND (`offset`, id) IN (?, ?) AND due_at < UTC_TIMESTAMP(6) LIMIT ? OFFSET whole(box, box_parked)", query)
	require.Equal(t, []any{"first", "k", 7, "a", 10}, args)

	query, _ = NewRunner(box, numbered{}).Render(e)
	require.Equal(t, "SELECT `offset`, `key`, $1 FROM box_parked p JOIN box WHERE `key` = $2 AND (`offset`, id) IN ($3, $4) AND due_at < UTC_TIMESTAMP(6) LIMIT $5 OFFSET whole(box, box_parked)", query)
}

func TestDeadDeliveriesWaitBehindEarlierOnesOfTheirKey(t *testing.T) {
	t.Parallel()
	at := func(offset int64, key string, dead, behind bool) chosen {
		c := chosen{key: key, dead: dead, behind: behind}
		c.Offset = offset
		return c
	}
	due, wait := inOrder([]chosen{
		at(1, "a", true, false), at(2, "a", true, false), at(3, "", true, false), at(4, "", true, false),
		at(5, "b", true, true), at(6, "c", false, true), at(7, "c", true, false),
	})
	offsets := func(refs []store.Ref) (offsets []int64) {
		for _, r := range refs {
			offsets = append(offsets, r.Offset)
		}
		return offsets
	}
	require.Equal(t, []int64{1, 3, 4, 6}, offsets(due))
	require.Equal(t, []int64{2, 5, 7}, offsets(wait))
}
