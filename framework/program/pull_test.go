package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/registry"
)

// rowsToPull writes rows of several types, one of which is not JSON.
func rowsToPull(t *testing.T, o outbox) {
	t.Helper()
	file := writeFile(t, fmt.Sprintf("database: %q\noutbox: {payload: bytea}\n", o.address))
	r := waybill(t, "migrate", "-c", file)
	require.Zero(t, r.code, r.stderr)
	_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (type, version, key, payload, occurred_on) VALUES
		('order.placed', 1, 'o-1', $1, '2026-03-01T00:00:00.000000Z'),
		('order.placed', 2, 'o-1', $2, '2026-03-01T00:00:01.000000Z'),
		('order.placed', 2, 'o-2', $3, '2026-03-01T00:00:02.000000Z'),
		('label', 1, '', $4, '2026-03-01T00:00:03.000000Z'),
		('odd/`+"\u202e"+`', 1, '', $1, '2026-03-01T00:00:04.000000Z')`,
		[]byte(`{"euros": 17.5}`), []byte(`{"order": "secret-1", "at": "2026-03-01T00:00:00Z", "note": null}`), []byte(`{"order": "secret-2", "at": "2026-03-01T00:00:00Z"}`), []byte("%PDF"))
	require.NoError(t, err)
}

const pulledPlaced = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "description": "Inferred from 2 of the payloads, not given by the publisher: others may have more fields, lack some, or have other kinds of values.",
  "x-waybill": {
    "type": "order.placed",
    "version": 2,
    "key": true,
    "inferred": 2
  },
  "type": "object",
  "properties": {
    "at": {
      "format": "date-time",
      "type": "string"
    },
    "note": {
      "type": "null"
    },
    "order": {
      "type": "string"
    }
  },
  "required": [
    "at",
    "order"
  ]
}
`

func TestPullWritesASchemaOfEachVersionThatTheLogHas(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		rowsToPull(t, o)
		folder := filepath.Join(t.TempDir(), "schemas")
		r := waybill(t, "types", "pull", folder, "--database", o.address)
		require.Equal(t, result{stdout: fmt.Sprintf(`wrote odd%%2F%%E2%%80%%AE.v1.json
wrote order.placed.v1.json
wrote order.placed.v2.json
left out 1 payload of label v1: not JSON
3 contracts in %s
`, folder)}, r)
		text, err := os.ReadFile(filepath.Join(folder, "order.placed.v2.json"))
		require.NoError(t, err)
		require.Equal(t, pulledPlaced, string(text))

		r = waybill(t, "types", "pull", folder, "--database", o.address, "--json")
		require.Zero(t, r.code, r.stderr)
		require.JSONEq(t, `{"contracts": 3, "written": [], "kept": [], "skipped": {"label v1": 1}}`, r.stdout)

		last := t.TempDir()
		r = waybill(t, "types", "pull", last, "--database", o.address, "--rows", "3")
		require.Zero(t, r.code, r.stderr)
		require.NoFileExists(t, filepath.Join(last, "order.placed.v1.json"))
		text, err = os.ReadFile(filepath.Join(last, "order.placed.v2.json"))
		require.NoError(t, err)
		require.Contains(t, string(text), `"inferred": 1`)
		r = waybill(t, "types", "pull", last, "--database", o.address, "--all")
		require.Zero(t, r.code, r.stderr)
		require.FileExists(t, filepath.Join(last, "order.placed.v1.json"))
		text, err = os.ReadFile(filepath.Join(last, "order.placed.v2.json"))
		require.NoError(t, err)
		require.Equal(t, pulledPlaced, string(text), "an inferred schema is replaced by one of more rows")
	})
}

func TestPullReadsAnExport(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	rowsToPull(t, o)
	for _, name := range []string{"x.jsonl", "x.jsonl.gz", "x.jsonl.zst"} {
		folder := t.TempDir()
		file := filepath.Join(folder, name)
		r := waybill(t, "export", "--database", o.address, "--output", file)
		require.Zero(t, r.code, r.stderr)
		r = waybill(t, "types", "pull", folder, "--from", file)
		require.Zero(t, r.code, r.stderr)
		require.Contains(t, r.stdout, "left out 1 payload of label v1: not JSON\n3 contracts")
		text, err := os.ReadFile(filepath.Join(folder, "order.placed.v2.json"))
		require.NoError(t, err)
		require.Equal(t, pulledPlaced, string(text))
	}
}

func TestPullNamesTheRowOfAFileThatIsNoExport(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"{\"type\": \"a\", \"version\": 1, \"payload\": {}}\n{\"type\": ": "row 2: unexpected EOF",
		`{"type": "a*", "version": 1}`:                                    "row 1: invalid notification: type name",
		`{"type": "a", "version": 0}`:                                     "row 1: the version is 0",
		`{"type": 17}`:                                                    "row 1: json: ",
	} {
		folder := t.TempDir()
		file := filepath.Join(folder, "x.jsonl")
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		r := waybill(t, "types", "pull", filepath.Join(folder, "schemas"), "--from", file)
		require.Equal(t, exitFailed, r.code, content)
		require.Contains(t, r.stderr, file+": "+want)
		require.NoDirExists(t, filepath.Join(folder, "schemas"))
	}
	r := waybill(t, "types", "pull", t.TempDir(), "--from", writeFile(t, "")+".gz")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "no such file or directory")
}

func TestPullPrefersTheSchemasOfTheProgramAndTheConfigurationAndKeepsThosePublished(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	rowsToPull(t, o)
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	label := write("given.json", `{"description": "A label.", "type": "string"}`)
	config := write("waybill.yaml", fmt.Sprintf("types: {label: {schema: %q}}", label))
	published := write("order.placed.v1.json", `{"description": "By the publisher.", "x-waybill": {"type": "order.placed", "version": 1}}`)
	types := registry.New()
	require.NoError(t, registry.Register[typedPaid](types, "order.placed", registry.Version(2), registry.Oldest(2), registry.Describe(registry.Description{Text: "By the program."})))
	var stdout, stderr bytes.Buffer
	code := Run(t.Context(), Call{[]string{"types", "pull", folder, "--database", o.address, "-c", config, "--json"}, nil, &stdout, &stderr}, Types(types))
	require.Zero(t, code, stderr.String())
	require.JSONEq(t, `{"contracts": 4, "written": ["label.v1.json", "odd%2F%E2%80%AE.v1.json", "order.placed.v2.json"], "kept": ["order.placed.v1.json"], "skipped": {}}`, stdout.String())
	for path, want := range map[string]string{
		filepath.Join(folder, "label.v1.json"): "A label.", filepath.Join(folder, "order.placed.v2.json"): "By the program.", published: "By the publisher.",
	} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Contains(t, string(text), want)
		require.True(t, json.Valid(text))
	}
	require.NoError(t, os.WriteFile(published, []byte("notes of a person"), 0o600))
	r := waybill(t, "types", "pull", folder, "--database", o.address)
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "kept order.placed.v1.json, whose schema was not inferred: remove the file to replace it\n")
}

func TestPullRefusesInvalidArguments(t *testing.T) {
	t.Parallel()
	for _, wrong := range []struct {
		want string
		args []string
	}{
		{"name the folder to write to", nil},
		{`unexpected argument "b"`, []string{"a", "b"}},
		{"--rows is 0: use at least 1, or --all", []string{"a", "--rows", "0"}},
		{"use one of them", []string{"a", "--rows", "1", "--all"}},
		{"use one of them", []string{"a", "--rows", "1", "--from", "x"}},
		{"use one of them", []string{"a", "--all", "--from", "x"}},
		{"use one of them", []string{"a", "--database", "sqlite:x", "--from", "x"}},
	} {
		r := waybill(t, append([]string{"types", "pull"}, wrong.args...)...)
		require.Equal(t, exitUsage, r.code, wrong.args)
		require.Contains(t, r.stderr, wrong.want)
	}
	r := waybill(t, "types", "pull", "a")
	require.Contains(t, r.stderr, "database is missing: ")
	require.NoDirExists(t, "a")
}

func TestPullOfAnEmptyLogWritesNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		folder := filepath.Join(t.TempDir(), "schemas")
		r := waybill(t, "types", "pull", folder, "--database", o.address)
		require.Equal(t, result{stdout: "0 contracts in " + folder + "\n"}, r)
		require.NoDirExists(t, folder)
	})
}
