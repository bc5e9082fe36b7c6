package program

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/program/internal/command"
)

// nowhere is an address at which nothing listens.
const nowhere = "postgres://app:hunter2@127.0.0.1:1/app?sslmode=disable"

func TestErrorsAreOneLineAndHaveAnExitCode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args   []string
		code   int
		stderr string // a pattern
	}{
		"unknown command":     {[]string{"forwrad"}, exitUsage, `^waybill: unknown command "forwrad"; did you mean forward\?; see waybill --help\n$`},
		"far from all":        {[]string{"teleport"}, exitUsage, `^waybill: unknown command "teleport"; see waybill --help\n$`},
		"help of no command":  {[]string{"help", "forwrad"}, exitUsage, `^waybill: unknown command "forwrad"; did you mean forward\?; see waybill --help\n$`},
		"unknown flag":        {[]string{"migrate", "--force"}, exitUsage, `^waybill: unknown flag: --force; see waybill migrate --help\n$`},
		"flag of a group":     {[]string{"parked", "--database", nowhere}, exitUsage, `^waybill: unknown flag: --database; name a command before its flags: causes, discard, list, requeue, reroute, show, skip; see waybill parked --help\n$`},
		"flag of a lister":    {[]string{"schedules", "--force"}, exitUsage, `^waybill: unknown flag: --force; see waybill schedules --help\n$`},
		"flag without value":  {[]string{"status", "-c"}, exitUsage, `^waybill: flag needs an argument: 'c' in -c; see waybill status --help\n$`},
		"argument":            {[]string{"forward", "now"}, exitUsage, `^waybill: unexpected argument "now"; see waybill forward --help\n$`},
		"log format":          {[]string{"version", "--log-format", "xml"}, exitUsage, `^waybill: --log-format is "xml": use text or json\n$`},
		"log level":           {[]string{"version", "--log-level", "loud"}, exitUsage, `^waybill: --log-level is "loud": use debug, info, warn or error\n$`},
		"print and json":      {[]string{"migrate", "--print", "--json"}, exitUsage, `^waybill: --print prints SQL and --json prints JSON: leave one of them out; see waybill migrate --help\n$`},
		"no database":         {[]string{"migrate"}, exitUsage, `^database is missing: name a configuration file with -c, or set it with WAYBILL_DATABASE or --database\n$`},
		"mysql":               {[]string{"migrate", "--database", "mysql://app:hunter2@db"}, exitUsage, `^.*has a password.*\n--database: database: names no database; write mysql://user:password@host:3306/name\n$`},
		"no file":             {[]string{"forward", "-c", "nowhere.yaml"}, exitUsage, `^nowhere.yaml: the file does not exist\n$`},
		"no default file":     {[]string{"forward"}, exitUsage, `^waybill: there is no waybill.yaml in this folder: name a configuration file with -c; see waybill forward --help\n$`},
		"migrate, no server":  {[]string{"migrate", "--database", nowhere}, exitFailed, `^.*has a password.*\nwaybill: connect to PostgreSQL: .*connection refused\n$`},
		"status, no server":   {[]string{"status", "--database", nowhere}, exitFailed, `^.*has a password.*\nwaybill: connect to PostgreSQL: .*connection refused\n$`},
		"migrate, no folder":  {[]string{"migrate", "--database", "sqlite:/does/not/exist.db"}, exitFailed, `^waybill: open SQLite database "/does/not/exist.db": .*\n$`},
		"status, not of ours": {[]string{"status", "--database", "sqlite:main.go"}, exitFailed, `^waybill: .*\n$`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := waybill(t, c.args...)
			require.Equal(t, c.code, r.code, r.stderr)
			require.Regexp(t, c.stderr, r.stderr)
			require.NotContains(t, r.stderr, "hunter2")
			require.Empty(t, r.stdout)
		})
	}
}

func TestMistakesOfTheFileAreListed(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "database: sqlite:outbox.db\nsinks:\n  mail: {kind: emial}\nroutes:\n  a: [mial]\n")
	r := waybill(t, "forward", "-c", path)
	require.Equal(t, result{code: exitUsage, stderr: path + ":3: sinks.mail.kind: unknown sink kind \"emial\"; did you mean email?\n" +
		path + ":5: routes.a names the unknown sink \"mial\"; did you mean mail?\n"}, r)

	r = waybill(t, "forward", "-c", path, "--log-format", "json")
	require.Equal(t, exitUsage, r.code)
	lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
	require.Len(t, lines, 2)
	var entry struct {
		Where, Error string
		Line         int
	}
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &entry))
	require.Equal(t, path, entry.Where)
	require.Equal(t, 5, entry.Line)
}

func TestErrorsAreJSONIfLogsAre(t *testing.T) {
	t.Parallel()
	r := waybill(t, "status", "--database", nowhere, "--log-format", "json")
	require.Equal(t, exitFailed, r.code)
	var entry struct{ Level, Error string }
	warning, failure, _ := strings.Cut(r.stderr, "\n")
	require.NoError(t, json.Unmarshal([]byte(warning), &entry), r.stderr)
	require.Equal(t, "WARN", entry.Level)
	require.NoError(t, json.Unmarshal([]byte(failure), &entry), r.stderr)
	require.Equal(t, "ERROR", entry.Level)
	require.Contains(t, entry.Error, "connection refused")
}

func TestWaybillYamlInTheFolderIsTheDefault(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "waybill.yaml"), []byte("database: sqlite:here.db\n"), 0o600))
	command := exec.CommandContext(t.Context(), binary, "migrate")
	command.Dir, command.Env = folder, []string{}
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
	require.FileExists(t, filepath.Join(folder, "here.db"))
}

func TestVersionShowsTheBuild(t *testing.T) {
	t.Parallel()
	output, err := exec.CommandContext(t.Context(), binary, "version", "--json").Output()
	require.NoError(t, err)
	var b build
	require.NoError(t, json.Unmarshal(output, &b))
	require.NotEmpty(t, b.Version)
	require.Regexp(t, `^go1\.`, b.Go)
	_, err = time.Parse(time.RFC3339, b.Date)
	require.True(t, err == nil || b.Revision == "", b.Date)

	output, err = exec.CommandContext(t.Context(), binary, "version").Output()
	require.NoError(t, err)
	require.Equal(t, b.String()+"\n", string(output))
}

func TestVersionShowsTheLicencesOfLinkedModules(t *testing.T) {
	t.Parallel()
	r := waybill(t, "version", "--licenses")
	require.Zero(t, r.code, r.stderr)
	for _, want := range []string{"github.com/lib/pq: MIT\n", "modernc.org/sqlite: ", "Permission is hereby granted", "Apache License"} {
		require.Contains(t, r.stdout, want)
	}
	own := own(t.Context(), []Option{Licenses("example.com/own: MIT")}, "version", "--licenses")
	require.Equal(t, r.stdout+"example.com/own: MIT", own.stdout)
}

func TestHelpDocumentsTheExitCodes(t *testing.T) {
	t.Parallel()
	r := waybill(t)
	require.Zero(t, r.code)
	for _, code := range []string{"0 ", "1 ", "2 ", "130 "} {
		require.Contains(t, r.stdout, "\n    "+code)
	}
	require.NotContains(t, r.stdout, "docs")
}

// The program with all kinds writes the references, and its test compares them as a whole.
func TestReferencesAreCurrent(t *testing.T) {
	t.Parallel()
	for name, write := range references {
		var b bytes.Buffer
		require.NoError(t, write(&b, newRoot(&command.Invocation{Name: "waybill"}), ownKinds(t)))
		committed, err := os.ReadFile(filepath.Join("../../docs", name))
		require.NoError(t, err)
		for line := range strings.Lines(b.String()) {
			require.Contains(t, string(committed), strings.TrimRight(line, ",\n"), "run go generate ./framework/program")
		}
	}
}

func TestTheListOfPagesForAssistantsIsCurrent(t *testing.T) {
	t.Parallel()
	text, err := llms("../../docs")
	require.NoError(t, err)
	require.Contains(t, text, "\n- [Doctor](doctor.md): ")
	require.NotRegexp(t, `: \n`, text, "each page has a line")
	committed, err := os.ReadFile("../../docs/llms.txt")
	require.NoError(t, err)
	require.Equal(t, text, string(committed), "run go generate ./framework/program")
}

func TestEachCommandOfTheRunbookExists(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	commands := regexp.MustCompile("(?m)(?:`|^    (?:\\$ )?|&& )waybill ([a-z][^`\n]*)").FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(commands), 40)
	ends := regexp.MustCompile(` *(?:\||>|#|…).*$`) // pipes, redirections, comments
	quoted := regexp.MustCompile(`'[^']*'|"[^"]*"`)
	for _, match := range commands {
		arguments := strings.Fields(ends.ReplaceAllString(quoted.ReplaceAllString(match[1], "1d"), ""))
		name := []string{"waybill"}
		for _, a := range arguments {
			if a != strings.ToLower(a) || strings.HasPrefix(a, "-") {
				break
			}
			name = append(name, a)
		}
		r := waybill(t, append(arguments, "--help")...)
		require.Zero(t, r.code, "%s: %s", match[1], r.stderr)
		known := false // words after a command's name are arguments, unless the command only has subcommands
		for n := len(name); n > 1; n-- {
			known = known || strings.Contains(r.stdout, "Usage:\n  "+strings.Join(name[:n], " ")+" ") &&
				(n == len(name) || !strings.Contains(r.stdout, " [command]\n"))
		}
		require.True(t, known, "waybill %s: %s", match[1], r.stdout)
	}
}

func TestTheSinksPageLinksToThePageOfEachSink(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/sinks.md")
	require.NoError(t, err)
	pages, err := filepath.Glob("../../docs/sinks-*.md")
	require.NoError(t, err)
	for _, page := range pages {
		require.Contains(t, string(text), "]("+filepath.Base(page)+")", "list it in sinkPages, or name it below them")
	}
	for _, page := range sinkPages {
		file, _, _ := strings.Cut(page, "#")
		require.FileExists(t, filepath.Join("../../docs", file))
	}
}
