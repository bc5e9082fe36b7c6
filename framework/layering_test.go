package framework_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/waybill-go/waybill"

// layer is a row of the layering table. A package belongs to the row with the most specific pattern that
// matches it or a folder above it, so its own subpackages share its row and may import each other.
type layer struct {
	pattern string // path below the module; "*" is one name
	// imports are the rows that it may import. All of them are above it in the table, so that imports go
	// one way.
	imports []string
}

// anything marks a composition root, which may import everything.
var anything = []string{"all packages"}

// engine is the folder of the forwarder's own packages. Their imports go one way: coordinate, session, feed
// and settle, dispatch, then packages that import no other. quota and prune stand apart.
const engine = "framework/forwarder/internal/"

// engineImports returns what the engine's larger packages import: some of its smaller ones, and the
// packages below the forwarder.
func engineImports(own ...string) []string {
	imports := []string{"framework/event", "framework/internal/failpoint", "framework/internal/pace", "framework/notification", "framework/privacy", "framework/tracing", "framework/store", "framework/route", "framework/settings", "registry", "sinks"}
	for _, name := range own {
		imports = append(imports, engine+name)
	}
	return imports
}

var layers = []layer{
	{"framework/notification", nil},
	{"framework/internal/pace", nil},
	{"framework/internal/duration", nil},
	{"framework/internal/zones", nil},
	{"framework/internal/failpoint", nil},
	{"framework/internal/testserver", nil},
	{"framework/internal/mutants", nil},
	{"framework/internal/look", nil},
	{"benchmarks/durations", nil},
	{"benchmarks/result", nil},
	{"benchmarks/plot", []string{"benchmarks/result"}},
	{"serializer", nil},
	{"serializer/*", []string{"serializer"}},
	{"registry", []string{"framework/notification", "serializer"}},
	{"sinks/internal/redact", nil},
	{"sinks", []string{"framework/notification", "registry", "sinks/internal/redact"}},
	{"framework/contract", []string{"framework/notification", "registry", "serializer", "sinks"}},
	{"framework/tracing", []string{"framework/notification", "sinks"}},
	{"framework/store", []string{"framework/notification"}},
	{"framework/store/internal/migration", []string{"framework/internal/pace", "framework/store"}},
	{"framework/store/internal/tables", []string{"framework/internal/failpoint", "framework/store", "framework/notification"}},
	{"framework/store/internal/tables/acts", []string{"framework/internal/failpoint", "framework/store", "framework/store/internal/tables", "framework/notification"}},
	{"framework/store/internal/tables/looks", []string{"framework/store", "framework/store/internal/tables", "framework/notification"}},
	{"framework/store/internal/driverrows", []string{"framework/store", "framework/notification"}},
	{"framework/store/postgres/internal/catalog", []string{"framework/store"}},
	{"framework/store/mysql/internal/session", []string{"framework/store"}},
	{"framework/store/mysql/internal/spans", []string{"framework/store", "framework/notification"}},
	{"framework/store/*", []string{"framework/internal/failpoint", "framework/internal/pace", "framework/internal/testserver", "framework/store", "framework/store/internal/driverrows", "framework/store/internal/migration", "framework/store/internal/tables", "framework/store/internal/tables/acts", "framework/store/internal/tables/looks", "framework/store/postgres/internal/catalog", "framework/store/mysql/internal/session", "framework/store/mysql/internal/spans", "framework/notification"}},
	{"framework/privacy", []string{"framework/notification", "framework/store", "registry", "serializer", "sinks"}},
	{"framework/route", []string{"framework/notification", "framework/store", "registry", "sinks"}},
	{"sinks/internal/envelope", []string{"framework/notification"}},
	{"sinks/internal/cloudevents", []string{"framework/notification", "sinks", "sinks/internal/envelope"}},
	{"sinks/body", []string{"framework/notification", "sinks", "sinks/internal/cloudevents", "sinks/internal/envelope"}},
	{"sinks/internal/naming", []string{"framework/notification"}},
	{"sinks/internal/certificates", nil},
	{"sinks/internal/line", nil},
	{"sinks/internal/retryafter", nil},
	{"sinks/encoding", []string{"sinks", "sinks/internal/certificates", "sinks/internal/line", "sinks/internal/redact", "sinks/internal/retryafter", "framework/notification", "serializer", "serializer/*"}},
	{"sinks/large", []string{"sinks", "framework/notification"}},
	{"sinks/*", []string{"sinks", "sinks/encoding", "sinks/large", "sinks/internal/certificates", "sinks/internal/cloudevents", "sinks/internal/envelope", "sinks/internal/line", "sinks/internal/naming", "sinks/internal/redact", "sinks/internal/retryafter", "framework/notification", "registry"}},
	{"framework/source/*", []string{"framework/store", "framework/notification", "framework/internal/pace", "sinks/*"}},
	{"framework/outbox", []string{"framework/privacy", "framework/internal/failpoint", "framework/notification", "framework/tracing", "registry", "serializer", "framework/store", "framework/internal/pace"}},
	{"framework/internal/outboxtest", []string{"framework/store/*"}},
	{"framework/store/storetest", []string{"framework/notification", "framework/store", "framework/store/internal/tables/acts", "framework/outbox", "registry"}},
	{"framework/event", []string{"framework/notification", "framework/store", "sinks"}},
	{"framework/settings", []string{"framework/internal/duration", "framework/internal/zones", "framework/notification", "framework/route", "sinks"}},
	{engine + "policy", []string{"framework/settings", "framework/event", "framework/route", "framework/notification", "framework/store", "sinks"}},
	{engine + "fairqueue", nil},
	{engine + "keyqueue", nil},
	{engine + "window", []string{"framework/notification", "framework/store"}},
	{engine + "budget", nil},
	{engine + "memory", []string{"framework/notification", "framework/store"}},
	{engine + "caller", []string{"framework/privacy", "framework/internal/pace", "framework/notification", "framework/store", "framework/route", "registry", "sinks"}},
	{engine + "presence", []string{"framework/internal/pace", "framework/store"}},
	{engine + "dispatch", engineImports("policy", "presence", "fairqueue", "keyqueue", "window", "budget", "memory", "caller")},
	{engine + "named", []string{"framework/notification", "framework/store"}},
	{engine + "settle", engineImports("policy", "window", "memory", "dispatch", "named")},
	{engine + "feed", engineImports("policy", "named")},
	{engine + "session", engineImports("policy", "presence", "dispatch", "settle", "feed", "named")},
	{engine + "lanetest", append(engineImports("policy", "budget", "caller", "dispatch"), "framework/store/*")},
	{engine + "coordinate", engineImports("policy", "presence", "dispatch", "settle", "feed", "session")},
	{engine + "quota", []string{"framework/store", "framework/notification"}},
	{engine + "prune", []string{"framework/event", "framework/internal/pace", "framework/store", engine + "policy"}},
	{"framework/forwarder", engineImports("policy", "presence", "budget", "caller", "dispatch", "feed", "coordinate", "prune", "quota")},
	{"framework/forwarder/fleet", []string{"framework/internal/pace", "framework/store", engine + "coordinate", "framework/forwarder"}},
	{"framework/crashtest", []string{"framework/internal/failpoint", "framework/internal/pace", "framework/store", "framework/store/*"}},
	{"framework/inbox", []string{"framework/notification", "framework/store", "framework/outbox", "registry", "sinks", "sinks/*"}},
	{"framework/schedule", []string{"framework/internal/failpoint", "framework/tracing", "framework/internal/pace", "framework/internal/duration", "framework/internal/zones", "framework/notification", "framework/store", "framework/outbox"}},
	{"framework/admin", []string{"framework/privacy", "framework/notification", "framework/store", "framework/route", "framework/settings", "registry"}},
	{"framework/waybilltest", []string{"framework/privacy", "framework/admin", "framework/contract", "framework/notification", "framework/store", "framework/store/*", "framework/outbox", "framework/route", "framework/forwarder", "registry", "sinks"}},
	{"framework/observe", []string{"framework/event", "framework/notification", "framework/store", "framework/forwarder", "sinks"}},
	{"framework/webhooks", []string{"framework/privacy", "framework/event", "framework/notification", "framework/store", "framework/settings", "framework/route", "framework/outbox", "framework/forwarder", "framework/admin", "registry", "serializer", "sinks", "sinks/*"}},
	{"framework/alerts", []string{"framework/internal/failpoint", "framework/internal/pace", "framework/tracing", "framework/notification", "framework/store", "framework/settings", "framework/outbox", "framework/forwarder", "framework/admin", "registry"}},
	{"framework/internal/endpoint", []string{"framework/admin", "framework/forwarder", "framework/settings", "framework/store", "framework/webhooks", "sinks"}},
	{"framework/webhooks/portal", []string{"framework/notification", "framework/store", "framework/settings", "framework/admin", "framework/webhooks", "framework/internal/endpoint", "framework/internal/look", "registry", "serializer", "sinks"}},
	{"framework/doctor", []string{"framework/alerts", "framework/settings", "framework/notification", "framework/route", "framework/admin", "framework/store", "framework/store/*", "framework/forwarder", "framework/webhooks", "framework/internal/endpoint", "sinks"}},
	{"framework/dashboard", []string{"framework/contract", "framework/privacy", "framework/internal/duration", "framework/notification", "framework/store", "framework/route", "framework/forwarder", "framework/webhooks", "framework/internal/endpoint", "framework/internal/look", "framework/admin", "framework/doctor", "framework/settings", "registry", "sinks"}},
	{"framework/config", []string{"framework/contract", "framework/privacy", "framework/webhooks", "framework/settings", "framework/event", "framework/source/*", "framework/internal/duration", "framework/internal/pace", "framework/notification", "framework/store", "framework/store/*", "framework/route", "framework/forwarder", "framework/forwarder/fleet", "framework/outbox", "framework/schedule", "registry", "sinks"}},
	{"benchmarks/receiver", []string{"benchmarks/durations", "benchmarks/result", "sinks/*"}},
	{"framework/watch", []string{"framework/dashboard", "framework/doctor", "framework/forwarder", "framework/notification", "framework/observe", "framework/outbox", "framework/store", "framework/webhooks"}},
	{"framework/program", anything},
	{"cmd/*", anything},
	{"examples/*", anything},
	{"benchmarks/guard", anything},
}

// tops are the folders of programs, which no package imports.
var tops = []string{"cmd", "examples"}

// Vague names do not describe a package. Shadowing names hide a package of the standard library that
// its users also need.
var (
	vague     = []string{"util", "utils", "common", "misc", "model", "models", "types", "helper", "helpers"}
	shadowing = []string{"http", "json", "exec", "sql", "errors", "context", "time", "slog", "testing"}
)

const watermillSQL = "github.com/ThreeDotsLabs/watermill-sql"

// watermillSQLImporter is the package that may import Watermill's SQL outbox.
const watermillSQLImporter = "framework/outbox"

func TestImportsFollowTheLayers(t *testing.T) {
	t.Parallel()
	watchTree(t)
	packages := listPackages(t)
	require.NotEmpty(t, packages)
	for _, p := range packages {
		if err := checkName(p.ImportPath, p.Name); err != nil {
			t.Error(err)
		}
		for _, imported := range p.Imports {
			if err := checkImport(p.ImportPath, imported); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestLayersNameOnlyLowerOnes(t *testing.T) {
	t.Parallel()
	var lower []string
	for _, l := range layers {
		if slices.Equal(l.imports, anything) {
			continue
		}
		for _, imported := range l.imports {
			require.Contains(t, lower, imported, "%s may not import what is not below it", l.pattern)
		}
		lower = append(lower, l.pattern)
	}
}

func TestImportRules(t *testing.T) {
	t.Parallel()
	for _, edge := range []struct {
		from, to string
		rule     string // part of the error; "": the import is allowed
	}{
		{"framework/forwarder", "framework/store", ""},
		{"framework/forwarder", "sinks", ""},
		{"framework/forwarder/fleet", engine + "coordinate", ""},
		{engine + "dispatch", engine + "keyqueue", ""},
		{"framework/store/postgres", "framework/store", ""},
		{"framework/store/postgres/postgrestest", "framework/store/postgres", ""},
		{"serializer/protobuf", "serializer", ""},
		{"sinks/kafka", "registry", ""},
		{"cmd/waybill", "sinks/kafka", ""},
		{"cmd/waybill", "framework/program", ""},
		{"framework/program", "framework/program/internal/terminal", ""},
		{"examples/chain", "framework/store/postgres/postgrestest", ""},
		{"examples/customer", "examples/customer/customer", ""},

		{"framework/notification", "registry", "may import none of our packages"},
		{"framework/store", "framework/forwarder", "may import only framework/notification"},
		{"framework/forwarder", "sinks/kafka", "may import only"},
		{engine + "dispatch", engine + "settle", "may import only"},
		{"framework/store/postgres", "framework/store/sqlite", "may import only"},
		{"sinks/kafka", "sinks/httpsink", "may import only"},
		{"sinks/kafka", "sinks/encoding", ""},
		{"sinks/encoding", "sinks/kafka", "may import only"},
		{"framework/store/postgres", "framework/store/postgres/postgrestest", "for tests"},
		{"framework/admin", "cmd/waybill", "no package imports a program"},
		{"examples/chain", "examples/hello", "no package imports a program"},
		{"examples/chain", engine + "keyqueue", "public packages"},
		{"framework/program", module, "imports the facade github.com"},
		{"framework/teleport", "framework/store", "no row of the layering table"},
		{"framework/forwarder", watermillSQL + "/v3/pkg/sql", "may import watermill-sql"},
		{"framework/outbox", watermillSQL + "/v3/pkg/sql", ""},
		{"framework/forwarder", "github.com/stretchr/testify/require", ""},
	} {
		from, to := module+"/"+edge.from, edge.to
		if top, _, _ := strings.Cut(to, "/"); slices.Contains([]string{"framework", "sinks", "serializer", "registry", "cmd", "examples"}, top) {
			to = module + "/" + to
		}
		err := checkImport(from, to)
		if edge.rule == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, edge.rule)
		require.ErrorContains(t, err, edge.from, "the importing package is named")
		require.ErrorContains(t, err, edge.to, "the import is named")
	}
}

func TestNameRules(t *testing.T) {
	t.Parallel()
	require.NoError(t, checkName(module+"/sinks/httpsink", "httpsink"))
	require.NoError(t, checkName(module+"/examples/http", "main"), "the name of a program hides no package")
	require.ErrorContains(t, checkName(module+"/framework/util", "util"), "framework/util: the name util does not describe")
	require.ErrorContains(t, checkName(module+"/sinks/http", "http"), "sinks/http: the name http shadows")
}

// checkImport returns an error with the rule if a package may not import another one. It is not for test
// files.
func checkImport(from, to string) error {
	from, ours := below(from)
	if !ours {
		return nil // the root only pins dependencies
	}
	if to == module && !isTop(from) {
		return fmt.Errorf("%s imports the facade %s, which is for programs", from, to)
	}
	to, ours = below(to)
	if rule := brokenRule(from, to, ours); rule != "" {
		return fmt.Errorf("%s imports %s: %s", from, to, rule)
	}
	return nil
}

func brokenRule(from, to string, ours bool) string {
	if !ours {
		if strings.HasPrefix(to, watermillSQL) && !fits(watermillSQLImporter, from) {
			return "only " + watermillSQLImporter + " may import watermill-sql"
		}
		return ""
	}
	row, known := rowOf(from)
	target, _ := rowOf(to)
	switch {
	case !known:
		return from + " is in no row of the layering table; the design and this test name every package"
	case family(row, from) == family(target, to) && !isForTests(to):
		return ""
	case isTop(to):
		return "no package imports a program"
	case isTop(from) && !strings.HasPrefix(from, "cmd/") && slices.Contains(strings.Split(to, "/"), "internal"):
		return "examples show what users can do, with public packages only"
	case isTop(from), slices.Equal(row.imports, anything):
		return ""
	case isForTests(to) && !isForTests(from):
		return path.Base(to) + " is for tests, examples and programs only"
	case isForTests(to), isForTests(from) && strings.HasPrefix(from, to+"/"):
		return "" // a test package may import what it tests
	case len(row.imports) == 0:
		return from + " may import none of our packages"
	case !slices.Contains(row.imports, target.pattern):
		return from + " may import only " + strings.Join(row.imports, ", ")
	}
	return ""
}

func checkName(importPath, name string) error {
	where, _ := below(importPath)
	switch {
	case slices.Contains(vague, name):
		return fmt.Errorf("%s: the name %s does not describe the package", where, name)
	case slices.Contains(shadowing, name):
		return fmt.Errorf("%s: the name %s shadows a package that its users need beside it", where, name)
	}
	return nil
}

// below returns the path below the module, or the whole path and false.
func below(importPath string) (string, bool) {
	return strings.CutPrefix(importPath, module+"/")
}

// rowOf finds the most specific row for a package: the deepest one that matches, and a name rather than "*".
func rowOf(pkg string) (row layer, known bool) {
	specific := func(l layer) int { return 2*strings.Count(l.pattern, "/") - strings.Count(l.pattern, "*") }
	for _, l := range layers {
		if fits(l.pattern, pkg) && (!known || specific(l) >= specific(row)) {
			row, known = l, true
		}
	}
	return row, known
}

// family returns the package in the table that is this package or a parent of it.
func family(row layer, pkg string) string {
	names := strings.Split(pkg, "/")
	depth := strings.Count(row.pattern, "/") + 1
	return strings.Join(names[:min(depth, len(names))], "/")
}

// fits reports whether the pattern matches the package or a folder above it.
func fits(pattern, pkg string) bool {
	wanted, names := strings.Split(pattern, "/"), strings.Split(pkg, "/")
	if len(names) < len(wanted) {
		return false
	}
	for i, name := range wanted {
		if name != "*" && name != names[i] {
			return false
		}
	}
	return true
}

func isTop(pkg string) bool {
	top, _, _ := strings.Cut(pkg, "/")
	return slices.Contains(tops, top)
}

// isForTests reports whether a package is for tests, by its name: sinktest, storetest, postgrestest.
func isForTests(pkg string) bool { return strings.HasSuffix(path.Base(pkg), "test") }

// watchTree reads every folder of the module. The go command repeats a cached test only if a file
// that the test itself reads has changed; it does not notice what `go list` reads.
func watchTree(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("..", func(folder string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && len(entry.Name()) > 2 && entry.Name()[0] == '.' {
			return filepath.SkipDir
		}
		return err
	})
	require.NoError(t, err)
}

type listedPackage struct {
	ImportPath, Name string
	Imports          []string
}

func listPackages(t *testing.T) []listedPackage {
	t.Helper()
	command := exec.Command("go", "list", "-json=ImportPath,Name,Imports", "./...")
	command.Dir = ".."
	output, err := command.Output()
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		t.Fatalf("go list: %v\n%s", err, failed.Stderr)
	}
	require.NoError(t, err)
	var packages []listedPackage
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var p listedPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}
