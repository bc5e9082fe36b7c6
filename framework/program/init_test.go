package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// placeholdersSet is an environment for the example configuration.
var placeholdersSet = []string{
	"DATABASE_URL=postgres://app@localhost/app",
	"PARTNER_URL=https://partner.example/hooks",
	"PARTNER_SECRET=whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
}

func TestConfigInitWritesAFileThatOnlyNeedsItsVariables(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "outbox.yaml")
	r := waybill(t, "config", "init", file)
	require.Equal(t, result{stdout: "wrote " + file + ": set DATABASE_URL, PARTNER_URL, PARTNER_SECRET, then run waybill config check -c " + file + "\n"}, r)

	r = waybillWith(t, placeholdersSet, "config", "check", "--offline", "-c", file)
	require.Zero(t, r.code, r.stderr)

	r = waybill(t, "config", "check", "--offline", "-c", file)
	require.Equal(t, exitUsage, r.code)
	mistakes := strings.Split(strings.TrimSpace(r.stderr), "\n")
	require.Len(t, mistakes, len(placeholdersSet), r.stderr)
	for i, mistake := range mistakes {
		name, _, _ := strings.Cut(placeholdersSet[i], "=")
		require.Contains(t, mistake, "the environment variable "+name+" is not set")
	}
}

// switchedOn returns the example with its commented settings switched on.
func switchedOn() string {
	return regexp.MustCompile(`(?m)^#( *[^ #\n])`).ReplaceAllStringFunc(example, func(begin string) string {
		if strings.HasPrefix(begin, "# ") && !strings.HasPrefix(begin, "#  ") {
			return begin // prose
		}
		return begin[1:]
	})
}

func TestTheSettingsOfTheExampleAreValid(t *testing.T) {
	t.Parallel()
	text := strings.Replace(switchedOn(), "./mail", mailTemplates(t), 1)
	r := waybillWith(t, placeholdersSet, "config", "check", "--offline", "-c", writeFile(t, text))
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, 6, strings.Count(r.stdout, "\n"), "five sinks: %s", r.stdout)

	// The values that the example presents as defaults are the defaults.
	usual := waybillWith(t, placeholdersSet, "config", "explain", "order.placed", "-c", writeFile(t, example))
	for _, line := range []string{"#      types:", `#        "order.*": {max_age: 72h}`, "#    rate:", `#  "*": [lines, program]`} {
		text = regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(line[1:])+`.*$`).ReplaceAllString(text, "")
	}
	switchedOn := waybillWith(t, placeholdersSet, "config", "explain", "order.placed", "-c", writeFile(t, text))
	require.Equal(t, usual, switchedOn)
	require.Zero(t, usual.code, usual.stderr)
}

func TestConfigInitDoesNotOverwriteFiles(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "mine")
	r := waybill(t, "config", "init", file)
	require.Equal(t, result{code: exitUsage, stderr: "waybill: " + file + " exists: name another file; see waybill config init --help\n"}, r)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "mine", string(text))

	r = waybill(t, "config", "init", filepath.Join(t.TempDir(), "nowhere", "a.yaml"))
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "no such file or directory")
}

func TestConfigInitWritesWaybillYamlOrStdout(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	command := exec.CommandContext(t.Context(), binary, "config", "init", "--json")
	command.Dir, command.Env = folder, []string{}
	output, err := command.Output()
	require.NoError(t, err)
	require.JSONEq(t, `{"file": "waybill.yaml", "variables": ["DATABASE_URL", "PARTNER_URL", "PARTNER_SECRET"]}`, string(output))
	written, err := os.ReadFile(filepath.Join(folder, "waybill.yaml"))
	require.NoError(t, err)

	require.Equal(t, result{stdout: string(written)}, waybill(t, "config", "init", "-"))
	for args, stderr := range map[string]string{
		"- --json": "stdout gets the file, which is YAML: leave --json out, or name a file",
		"a b":      `unexpected argument "b"`,
	} {
		r := waybill(t, append([]string{"config", "init"}, strings.Fields(args)...)...)
		require.Equal(t, result{code: exitUsage, stderr: fmt.Sprintf("waybill: %s; see waybill config init --help\n", stderr)}, r)
	}
}
