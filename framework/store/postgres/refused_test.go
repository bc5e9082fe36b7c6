package postgres_test

import (
	"strings"
	"testing"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"
)

// Programs in any language write rows, so the table itself refuses rows that cannot be delivered.
func TestTheLogRefusesRowsThatCannotBeDelivered(t *testing.T) {
	t.Parallel()
	text := func(n int) string { return "'" + strings.Repeat("x", n) + "'" }
	for name, config := range logs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			openStore(t, db, config)
			insert := func(column, value string) error {
				columns, values := `type, payload`, `'t', '{}'`
				if column == "type" {
					columns, values = `payload`, `'{}'`
				}
				_, err := db.ExecContext(t.Context(), `INSERT INTO outbox (`+columns+`, `+column+`) VALUES (`+values+`, `+value+`)`)
				return err
			}
			for _, refused := range [][2]string{
				{"type", "''"}, {"type", text(256)}, {"id", "''"}, {"id", text(256)}, {"key", text(1025)},
				{"key", "repeat('ü', 513)"}, // the limit is in bytes
				{"occurred_on", "'infinity'"}, {"occurred_on", "'-infinity'"},
				{"deliver_at", "'infinity'"}, {"deliver_at", "'-infinity'"},
				{"version", "0"}, {"version", "-1"}, {"metadata", "'[]'"}, {"metadata", "'null'"}, {"metadata", "'1'"},
			} {
				err := insert(refused[0], refused[1])
				require.NotNil(t, pq.As(err, "23514"), "%s %s: %v", refused[0], refused[1], err)
			}
			for _, column := range []string{"type", "id", "version", "key", "occurred_on", "metadata"} {
				require.NotNil(t, pq.As(insert(column, "NULL"), "23502"), column)
			}
			for _, taken := range [][2]string{
				{"type", text(255)}, {"id", text(255)}, {"key", text(1024)}, {"key", "''"},
				{"deliver_at", "NULL"}, {"deliver_at", "now()"}, {"metadata", `'{"a": "b"}'`},
			} {
				require.NoError(t, insert(taken[0], taken[1]), taken)
			}
		})
	}
}
