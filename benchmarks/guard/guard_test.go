package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/benchmarks/result"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

var it = figure{"it", "drain", "noop", "it"}

// program writes a shell script as an executable.
func program(t *testing.T, folder, name, script string) string {
	t.Helper()
	file := filepath.Join(folder, name)
	require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o755))
	return file
}

// printing returns a program that prints a result with the value of a figure.
func printing(t *testing.T, folder, name, flags string, value int) string {
	return program(t, folder, name, fmt.Sprintf(`
case "$*" in *--help*) echo "%[4]s"; exit;; esac
echo "%[1]s $*" >> %[3]s/calls
echo '{"scenarios": [{"name": "drain", "cases": [{"name": "noop", "metrics": [{"name": "it", "better": "higher", "median": %[2]d}]}]}]}'
`, name, value, folder, flags))
}

func TestAFigureThatSeemsWorseIsMeasuredAgainBeforeTheGuardFails(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	var out bytes.Buffer
	g := &guard{
		options:      options{pairs: 2, tolerance: 0.1, database: "postgres://nowhere"},
		programs:     programs{printing(t, folder, "before", "--receivers", 100), printing(t, folder, "now", "--sinks", 80)},
		measurements: []measurement{{[]string{"drain", "--sinks", "noop"}, []figure{it}}}, out: &out,
	}
	err := g.run(t.Context())
	require.ErrorIs(t, err, errWorse)
	require.EqualError(t, err, "worse than before by more than 10 %: it")
	require.Contains(t, out.String(), "guard, it: it was 100 before and is 80 now: 0.80 times (0.80–0.80)\n")
	require.Len(t, g.results[0].Scenarios[0].Cases[0].Metrics[0].Runs, 4)
	calls, err := os.ReadFile(filepath.Join(folder, "calls"))
	require.NoError(t, err)
	before, now := "before bench drain --receivers noop --runs 1 --json --database postgres://nowhere\n", "now bench drain --sinks noop --runs 1 --json --database postgres://nowhere\n"
	require.Equal(t, before+now+now+before+before+now+now+before, string(calls), "the programs take turns at being first")

	g.now = printing(t, folder, "now", "--sinks", 95)
	require.NoError(t, g.run(t.Context()))
	require.Len(t, g.results[0].Scenarios[0].Cases[0].Metrics[0].Runs, 2)

	g.now = program(t, folder, "now", "echo lost >&2; exit 1")
	require.ErrorContains(t, g.run(t.Context()), "lost")
}

func TestTheRevisionIsTheLatestTagOrTheParent(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	run := func(args ...string) string {
		text, err := git(t.Context(), folder, append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		require.NoError(t, err)
		return text
	}
	run("init", "-q")
	var commits []string
	for range 3 {
		run("commit", "-q", "--allow-empty", "-m", "one more")
		commits = append(commits, run("rev-parse", "HEAD"))
	}
	revision := func(against string) string {
		found, err := revisionOf(t.Context(), options{root: folder, against: against})
		require.NoError(t, err)
		return found
	}
	require.Equal(t, commits[1], revision(""))
	run("tag", "v1.0.0", commits[0])
	require.Equal(t, commits[0], revision(""))
	require.Equal(t, commits[2], revision("HEAD"))
	_, err := revisionOf(t.Context(), options{root: folder, against: "--all"})
	require.Error(t, err)
}

// TestEveryFigureIsThere runs this tree's program with tiny sizes, and finds all figures in its results.
func TestEveryFigureIsThere(t *testing.T) {
	t.Parallel()
	built := filepath.Join(t.TempDir(), "waybill")
	require.NoError(t, build(t.Context(), "../..", built))
	server, err := postgrestest.Start(t.Context(), postgrestest.Options{Private: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	g := &guard{options: options{database: server.DSN()}, programs: programs{now: built}}
	g.results[1].Scenarios = []result.Scenario{{}}
	figures := 0
	for _, m := range measurements() {
		m.args = append(m.args, "--rows", "100", "--duration", "100ms") // the last value of a flag counts
		require.NoError(t, g.bench(t.Context(), 1, m))
		figures += len(m.figures)
	}
	require.Len(t, g.results[1].Scenarios[0].Cases, figures)
}
