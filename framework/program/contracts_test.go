package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/framework/waybilltest"
	"github.com/waybill-go/waybill/registry"
)

// The types of a shop, as they are published.
type (
	shopLine   struct{ SKU string }
	shopPlaced struct {
		ID    string      `json:"id"`
		State string      `json:"state" jsonschema:"enum=new,enum=paid"`
		Cents int64       `json:"cents"`
		Lines [2]shopLine `json:"lines"`
	}
	shopPlacedV1 struct {
		ID    string  `json:"id"`
		Euros float64 `json:"euros"`
	}
)

func shopKey[T any](T) string { return "k" }

// shopOptions are the options of the type as it is published, without an upcaster.
func shopOptions[T any](more ...registry.TypeOption) []registry.TypeOption {
	return append([]registry.TypeOption{registry.Version(2), registry.Key(shopKey[T])}, more...)
}

func shopUpcast[T any]() registry.TypeOption {
	return registry.Upcast(1, func(shopPlacedV1) (T, error) { var none T; return none, nil })
}

func typesWith[T any](t testing.TB, name string, options ...registry.TypeOption) *registry.Registry {
	t.Helper()
	types := registry.New()
	require.NoError(t, registry.Register[T](types, name, options...))
	return types
}

func shopTypes(t testing.TB) *registry.Registry {
	t.Helper()
	return typesWith[shopPlaced](t, "order.placed", shopOptions[shopPlaced](shopUpcast[shopPlaced]())...)
}

// like returns the types with another Go type of version 2.
func like[T any](t testing.TB) *registry.Registry {
	t.Helper()
	return typesWith[T](t, "order.placed", shopOptions[T](shopUpcast[T]())...)
}

// xml is a serializer whose payloads are not JSON.
type xml struct{}

func (xml) ContentType() string         { return "application/xml" }
func (xml) Marshal(any) ([]byte, error) { return []byte("<order/>"), nil }
func (xml) Unmarshal([]byte, any) error { return nil }

// recorder is a testing.TB that records what a helper reports.
type recorder struct {
	testing.TB
	reported []string
}

func (r *recorder) Helper()           {}
func (r *recorder) Error(args ...any) { r.reported = append(r.reported, fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, args ...any) {
	r.reported = append(r.reported, fmt.Sprintf(f, args...))
}
func (r *recorder) FailNow() { runtime.Goexit() }

// contractsReport returns what waybilltest.Contracts reports.
func contractsReport(t *testing.T, types *registry.Registry, folder string, compat ...contract.Compatibility) []string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		waybilltest.Contracts(r, types, folder, compat...)
	}()
	<-done
	return r.reported
}

// withTypes runs a command of a program that registers types.
func withTypes(t *testing.T, types *registry.Registry, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := Run(t.Context(), Call{append([]string{"types"}, args...), nil, &stdout, &stderr}, Types(types))
	return result{code, stdout.String(), stderr.String()}
}

const (
	orSet       = ", or set compat"
	orPublishV3 = "; publish v3 with an upcaster, or set compat"
)

// breaking are changes of the types that break consumers, with the sentences that say so.
var breaking = map[string]struct {
	types func(t testing.TB) *registry.Registry
	texts []string
}{
	"a field is removed": {like[struct {
		ID    string      `json:"id"`
		State string      `json:"state" jsonschema:"enum=new,enum=paid"`
		Lines [2]shopLine `json:"lines"`
	}], []string{"field cents of order.placed v2 was removed: consumers of v2 read it" + orPublishV3}},

	"a field is renamed": {like[struct {
		ID    string      `json:"id"`
		State string      `json:"state" jsonschema:"enum=new,enum=paid"`
		Cents int64       `json:"amount"`
		Lines [2]shopLine `json:"lines"`
	}], []string{"field cents of order.placed v2 was removed: consumers of v2 read it" + orPublishV3}},

	"a field gets another type": {like[struct {
		ID    int         `json:"id"`
		State string      `json:"state" jsonschema:"enum=new,enum=paid"`
		Cents float64     `json:"cents"`
		Lines [2]shopLine `json:"lines"`
	}], []string{
		"field cents of order.placed v2 may now be number: consumers of v2 expect integer" + orPublishV3,
		"field id of order.placed v2 may now be integer: consumers of v2 expect string" + orPublishV3,
	}},

	"a field becomes nullable": {like[struct {
		ID    *string     `json:"id"`
		State string      `json:"state" jsonschema:"enum=new,enum=paid"`
		Cents int64       `json:"cents"`
		Lines [2]shopLine `json:"lines"`
	}], []string{"field id of order.placed v2 may now be null: consumers of v2 expect string" + orPublishV3}},

	"a field may be left out": {like[struct {
		ID    string      `json:"id"`
		State string      `json:"state" jsonschema:"enum=new,enum=paid"`
		Cents int64       `json:"cents,omitempty"`
		Lines [2]shopLine `json:"lines"`
	}], []string{"field cents of order.placed v2 may now be left out: consumers of v2 read it" + orPublishV3}},

	"an enumeration gets a value": {like[struct {
		ID    string      `json:"id"`
		State string      `json:"state" jsonschema:"enum=new,enum=paid,enum=void"`
		Cents int64       `json:"cents"`
		Lines [2]shopLine `json:"lines"`
	}], []string{"field state of order.placed v2 may now be void: consumers of v2 expect one of new and paid" + orPublishV3}},

	"a version is dropped": {func(t testing.TB) *registry.Registry {
		return typesWith[shopPlaced](t, "order.placed", shopOptions[shopPlaced](registry.Oldest(2))...)
	}, []string{"order.placed v1 can no longer be read: rows may still be stored; keep its upcaster, or remove order.placed.v1.json once none is left (waybill types --all)"}},

	"the published version is lowered": {func(t testing.TB) *registry.Registry {
		return typesWith[shopPlacedV1](t, "order.placed", registry.Key(shopKey[shopPlacedV1]))
	}, []string{
		"order.placed v1 is published again, instead of a newer version: consumers of the newer one no longer get it; publish that one" + orSet,
		"order.placed v2 was removed: consumers read it, and stored rows cannot be read; keep version 2",
	}},

	"the type is renamed": {func(t testing.TB) *registry.Registry {
		return typesWith[shopPlaced](t, "purchase.made", shopOptions[shopPlaced](shopUpcast[shopPlaced](), registry.Aliases("order.placed"))...)
	}, []string{
		"order.placed is now purchase.made: consumers look for order.placed; keep the name, publish both, or remove order.placed.v2.json once none of them is left",
	}},

	"the type is removed": {func(t testing.TB) *registry.Registry {
		return typesWith[shopLine](t, "line")
	}, []string{
		"order.placed v1 was removed: consumers look for it, and stored rows cannot be read; keep the type, or remove order.placed.v1.json once none is left (waybill types --all)",
		"order.placed v2 was removed: consumers look for it, and stored rows cannot be read; keep the type, or remove order.placed.v2.json once none is left (waybill types --all)",
	}},

	"the ordering key is dropped": {func(t testing.TB) *registry.Registry {
		return typesWith[shopPlaced](t, "order.placed", registry.Version(2), shopUpcast[shopPlaced]())
	}, []string{
		"order.placed v2 no longer has an ordering key: consumers rely on the order; add registry.Key" + orSet,
	}},

	"another serializer is used": {func(t testing.TB) *registry.Registry {
		return typesWith[shopPlaced](t, "order.placed", shopOptions[shopPlaced](shopUpcast[shopPlaced](), registry.Serializer(xml{}))...)
	}, []string{
		"order.placed v1 is now application/xml, not application/json: consumers cannot decode it; keep the serializer, publish v2 with an upcaster" + orSet,
		"order.placed v2 is now application/xml, not application/json: consumers cannot decode it; keep the serializer, publish v3 with an upcaster" + orSet,
	}},
}

func TestTheGateNamesEachChangeThatBreaksConsumers(t *testing.T) {
	t.Parallel()
	for change, is := range breaking {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			require.Zero(t, withTypes(t, shopTypes(t), "export", folder).code)
			before := filesOf(t, folder)
			require.Equal(t, is.texts, contractsReport(t, is.types(t), folder))
			r := withTypes(t, is.types(t), "check", folder)
			require.Equal(t, exitFailed, r.code)
			require.Equal(t, strings.Join(is.texts, "\n")+"\n", untilNote(r.stdout))
			require.Equal(t, before, filesOf(t, folder), "nothing is written")
			require.Empty(t, breaksOf(t, withTypes(t, is.types(t), "check", folder, "--compat", "none", "--json")))
			var texts []string
			for _, b := range breaksOf(t, withTypes(t, is.types(t), "check", folder, "--json")) {
				texts = append(texts, b.Text)
			}
			require.Equal(t, is.texts, texts)
		})
	}
}

// untilNote returns the sentences before those of what is new or has changed.
func untilNote(stdout string) string {
	var breaks strings.Builder
	for line := range strings.Lines(stdout) {
		if !strings.Contains(line, ": write it with ") {
			breaks.WriteString(line)
		}
	}
	return breaks.String()
}

func breaksOf(t *testing.T, r result) []contract.Break {
	t.Helper()
	var found struct{ Breaks []contract.Break }
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &found), r.stdout)
	require.Equal(t, len(found.Breaks) > 0, r.code == exitFailed)
	return found.Breaks
}

func filesOf(t *testing.T, folder string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		require.NoError(t, err)
		files[entry.Name()] = string(text)
	}
	return files
}

func TestTheGateLetsCompatibleChangesPassOnceTheyAreWritten(t *testing.T) {
	t.Parallel()
	type more struct {
		shopPlaced
		Note string `json:"note"`
	}
	folder := t.TempDir()
	require.Zero(t, withTypes(t, shopTypes(t), "export", folder).code)
	require.Empty(t, contractsReport(t, shopTypes(t), folder))

	r := withTypes(t, like[more](t), "check", folder)
	require.Equal(t, result{stdout: "order.placed v2 has changed, and breaks nothing: write it with waybill types export " + folder +
		"\nnothing breaks the contracts in " + folder + " (compat forward)\n" +
		"note for encoding and on_invalid, which check stored rows as well: field note of order.placed v2 is new and required: stored rows of v2 lack it" + orPublishV3 + "\n"}, r)
	r = withTypes(t, like[more](t), "check", folder, "--compat", "full")
	require.Equal(t, exitFailed, r.code)
	require.Equal(t, []string{"field note of order.placed v2 is new and required: stored rows of v2 lack it" + orPublishV3}, contractsReport(t, like[more](t), folder, contract.Full))

	require.Equal(t, []string{filepath.Join(folder, "order.placed.v2.json") + " is new or has changed, and breaks nothing: review and commit it"}, contractsReport(t, like[more](t), folder))
	require.Empty(t, contractsReport(t, like[more](t), folder), "it was written")
	require.Contains(t, contractsReport(t, shopTypes(t), folder)[0], "field note of order.placed v2 was removed")
	require.Contains(t, contractsReport(t, shopTypes(t), folder, "sideways")[0], `compat is "sideways": use contract.Forward, Backward, Full or None`)
}

func TestTheGateBeginsWithAFolderThatDoesNotExist(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "a", "schemas")
	require.Len(t, contractsReport(t, shopTypes(t), folder), 2)
	require.Empty(t, contractsReport(t, shopTypes(t), folder))
	require.Empty(t, breaksOf(t, withTypes(t, shopTypes(t), "check", folder, "--json")))
}

func TestAFolderMayHaveTheFilesOfATypeThatHasAnotherNameNow(t *testing.T) {
	t.Parallel()
	renamed := breaking["the type is renamed"]
	folder := t.TempDir()
	require.Zero(t, withTypes(t, shopTypes(t), "export", folder).code)
	require.Len(t, contractsReport(t, renamed.types(t), folder, contract.None), 2, "it writes the files of the new name")
	require.Empty(t, contractsReport(t, renamed.types(t), folder, contract.None))
	r := withTypes(t, renamed.types(t), "check", folder)
	require.Equal(t, strings.Join(renamed.texts, "\n")+"\n", untilNote(r.stdout), "until the old files are removed")
	for _, version := range []string{"v1", "v2"} {
		require.NoError(t, os.Remove(filepath.Join(folder, "order.placed."+version+".json")))
	}
	require.Empty(t, contractsReport(t, renamed.types(t), folder))
	require.Zero(t, withTypes(t, renamed.types(t), "check", folder).code)
}

func TestExportWritesTheSameFilesEachTime(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "schemas")
	r := withTypes(t, shopTypes(t), "export", folder)
	require.Equal(t, result{stdout: "wrote order.placed.v1.json\nwrote order.placed.v2.json\n2 contracts in " + folder + "\n"}, r)
	files := filesOf(t, folder)
	for range 5 {
		require.Equal(t, result{stdout: "2 contracts in " + folder + "\n"}, withTypes(t, shopTypes(t), "export", folder))
		require.Equal(t, files, filesOf(t, folder))
		other := t.TempDir()
		r = withTypes(t, shopTypes(t), "export", other, "--json")
		require.JSONEq(t, `{"contracts": 2, "written": ["order.placed.v1.json", "order.placed.v2.json"]}`, r.stdout)
		require.Equal(t, files, filesOf(t, other))
	}
	require.JSONEq(t, `{"contracts": 2, "written": []}`, withTypes(t, shopTypes(t), "export", folder, "--json").stdout)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "notes.txt"), nil, 0o600))
	require.Equal(t, result{stdout: "nothing breaks the contracts in " + folder + " (compat forward)\n"}, withTypes(t, shopTypes(t), "check", folder), "other files are left alone")
}

func TestExportAndCheckTakeTheSchemasOfTheConfiguration(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	schema := filepath.Join(folder, "x.json")
	require.NoError(t, os.WriteFile(schema, []byte(`{"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}`), 0o600))
	file := writeFile(t, fmt.Sprintf("types: {parcel.sent: {schema: %q}}", schema))
	r := waybill(t, "types", "export", filepath.Join(folder, "schemas"), "-c", file)
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "wrote parcel.sent.v1.json\n")
	require.NoError(t, os.WriteFile(schema, []byte(`{"type": "object"}`), 0o600))
	r = waybill(t, "types", "check", filepath.Join(folder, "schemas"), "-c", file)
	require.Equal(t, exitFailed, r.code)
	require.Equal(t, "field id of parcel.sent v1 was removed: consumers of v1 read it; publish v2 with an upcaster, or set compat\n", r.stdout)
	require.Equal(t, "waybill: 1 break of the contracts in "+filepath.Join(folder, "schemas")+"\n", r.stderr)

	r = waybill(t, "types", "export", filepath.Join(folder, "schemas"), "-c", file)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stdout, "field id of parcel.sent v1 was removed")
	require.Equal(t, "waybill: 1 break of the contracts in "+filepath.Join(folder, "schemas")+": nothing was written; --compat none writes it\n", r.stderr)
	r = waybill(t, "types", "export", filepath.Join(folder, "schemas"), "-c", file, "--compat", "none")
	require.Zero(t, r.code, r.stderr)
	require.Zero(t, waybill(t, "types", "check", filepath.Join(folder, "schemas"), "-c", file).code)
}

func TestExportAndCheckRefuseWrongUsage(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"name the folder to write to":         {"export"},
		"name the folder with the contracts":  {"check"},
		`unexpected argument "b"`:             {"export", "a", "b"},
		`--compat is "sideways": use forward`: {"check", "a", "--compat", "sideways"},
		"unknown flag: --database":            {"export", "a", "--database", "sqlite:x"},
		`--compat is "never": use forward`:    {"export", "a", "--compat", "never"},
	} {
		r := withTypes(t, shopTypes(t), args...)
		require.Equal(t, exitUsage, r.code, want)
		require.Contains(t, r.stderr, want)
		require.NoDirExists(t, "a")
	}
}

func TestExportAndCheckNeedTypes(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	require.Zero(t, withTypes(t, shopTypes(t), "export", folder).code)
	for _, command := range []string{"export", "check"} {
		for _, r := range []result{waybill(t, "types", command, folder), withTypes(t, registry.New(), command, folder)} {
			require.Equal(t, exitFailed, r.code)
			require.Equal(t, "waybill: there are no types: register them in a program of your own, or name their schemas under types in waybill.yaml\n", r.stderr)
		}
	}
}

func TestCheckNamesWhatIsWrongWithAFolder(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "schemas")
	r := withTypes(t, shopTypes(t), "check", missing)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, missing+": no such file or directory")

	folder := t.TempDir()
	r = withTypes(t, shopTypes(t), "check", folder)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, folder+": no usable schema: the folder has no contract, such as order.placed.v1.json: write them with waybill types export")

	require.Zero(t, withTypes(t, shopTypes(t), "export", folder).code)
	for name, text := range map[string]string{
		"a.v1.json": `{`, "b.v1.json": `[]`, "c.v1.json": `{"type": 17}`, "d.v1.json": `{"x-waybill": {"type": "e"}}`,
		"f.v1.json": `{"$ref": "https://example.com/schema.json"}`, "g.v1.json": "", "h.v99999999999999999999.json": `{}`, "i j.v1.json": `{}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	r = withTypes(t, shopTypes(t), "check", folder)
	require.Equal(t, exitFailed, r.code)
	require.Empty(t, r.stdout)
	for _, name := range []string{"a.v1", "b.v1", "c.v1", "d.v1", "f.v1", "g.v1", "h.v99999999999999999999", "i j.v1"} {
		require.Contains(t, r.stderr, filepath.Join(folder, name+".json: "))
	}
	require.NotContains(t, r.stderr, "file://")
	require.NotEmpty(t, contractsReport(t, shopTypes(t), folder))
}

func TestNoControlCharacterOfAContractReachesTheTerminal(t *testing.T) {
	t.Parallel()
	const bad = "\u202eevil\u009b31m"
	types := typesWith[shopLine](t, "order\u202e.placed", registry.Describe(registry.Description{Title: "\x1b[2J" + bad, Text: bad, Owner: bad}))
	folder := t.TempDir()
	clean := func(r result) {
		t.Helper()
		require.NotContains(t, r.stdout+r.stderr, "\x1b")
		require.NotContains(t, r.stdout+r.stderr, "\u202e")
		require.NotContains(t, r.stdout+r.stderr, "\u009b")
	}
	r := withTypes(t, types, "export", folder)
	require.Zero(t, r.code, r.stderr)
	clean(r)
	for _, args := range [][]string{{}, {"--json"}} {
		r = withTypes(t, shopTypes(t), append([]string{"check", folder}, args...)...)
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.stdout, "was removed")
		clean(r)
	}
	odd := filepath.Join(t.TempDir(), "sche\u202emas")
	clean(withTypes(t, types, "check", odd))
	clean(withTypes(t, types, "export", odd))
	require.NoError(t, os.WriteFile(filepath.Join(odd, "a\x1b[2J.v1.json"), []byte("\x1b[2J"), 0o600))
	clean(withTypes(t, types, "check", odd))
}

func TestExportFailsIfItCannotWrite(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	r := withTypes(t, shopTypes(t), "export", file)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, file+": not a directory")

	folder := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, "order.placed.v1.json"), 0o700))
	r = withTypes(t, shopTypes(t), "export", folder)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "order.placed.v1.json: is a directory")

	if os.Getuid() == 0 {
		t.Skip("root may write everywhere")
	}
	folder = t.TempDir()
	require.NoError(t, os.Chmod(folder, 0o500))
	r = withTypes(t, shopTypes(t), "export", folder)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "permission denied")
}
