package program

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/program/internal/archive"
)

// exportable writes two rows of 1 March, one of 2 March, and a receipt.
func exportable(t *testing.T, o outbox) {
	t.Helper()
	o.migrate(t)
	_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (id, type, key, payload, occurred_on) VALUES
		('a', 'order.placed', 'o-1', '{"order": 1}', '2026-03-01T00:00:00.000000Z'),
		('b', 'order.paid', 'o-1', '{"order": 1}', '2026-03-01T23:59:59.999000Z'),
		('c', 'order.placed', 'o-2', '{"order": 2}', '2026-03-02T00:00:00.000000Z')`)
	require.NoError(t, err)
	_, err = o.db.ExecContext(t.Context(), `INSERT INTO outbox_receipts (sink, "offset", id, receipt, attempt, delivered_at)
		VALUES ('partner', 1, 'a', 'http 202', 1, '2026-03-01T00:00:01.000000Z')`)
	require.NoError(t, err)
}

func TestExportWritesAPeriod(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		exportable(t, o)
		folder := t.TempDir()
		day := []string{"export", "--database", o.address, "--from", "2026-03-01", "--to", "2026-03-02", "--output"}
		r := waybill(t, append(day, "-")...)
		require.Zero(t, r.code, r.stderr)
		require.Empty(t, r.stderr)
		lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
		require.Len(t, lines, 2)
		var first archive.Line
		require.NoError(t, json.Unmarshal([]byte(lines[0]), &first))
		require.Equal(t, "a", first.ID)
		require.Equal(t, "http 202", first.Receipts[0].Receipt)

		file := filepath.Join(folder, "day.jsonl")
		r = waybill(t, append(day, file)...)
		require.Equal(t, result{stdout: fmt.Sprintf("exported 2 rows with 1 receipt to %s\n", file)}, r)
		again := waybill(t, append(day, file)...)
		require.Equal(t, exitFailed, again.code)
		require.Contains(t, again.stderr, "does not replace files")

		file = filepath.Join(folder, "partner.jsonl.gz")
		r = waybill(t, append(day, file, "--sink", "partner", "--type", "order.*", "--json")...)
		require.Zero(t, r.code, r.stderr)
		require.JSONEq(t, fmt.Sprintf(`{"rows": 1, "receipts": 1, "up_to": 3, "gone": false, "oldest": {"offset": 1, "occurred_on": "2026-03-01T00:00:00Z"},
			"output": %q}`, file), r.stdout)

		_, err := o.db.ExecContext(t.Context(), `DELETE FROM outbox WHERE id IN ('a', 'b')`)
		require.NoError(t, err)
		r = waybill(t, append(day, "-")...)
		require.Zero(t, r.code)
		require.Empty(t, r.stdout)
		require.Contains(t, r.stderr, "warning: retention may have deleted rows of the period: the log begins at offset 3, of 2026-03-02 00:00:00Z")
	})
}

func TestExportRefusesInvalidArguments(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	exportable(t, o)
	folder := t.TempDir()
	file := filepath.Join(folder, "x")
	for want, args := range map[string][]string{
		"both go to standard output": {"--json"},
		"unknown sink":               {"--sink", "mial", "--output", file},
		"--output is empty":          {"--output", ""},
		"no such file or directory":  {"--output", filepath.Join(folder, "none", "x")},
		"use a time like":            {"--from", "yesterday"},
	} {
		r := waybill(t, append([]string{"export", "--database", o.address}, args...)...)
		require.NotZero(t, r.code, want)
		require.Contains(t, r.stderr, want)
		require.Empty(t, r.stdout)
	}
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, entries, "nothing is left")
}
