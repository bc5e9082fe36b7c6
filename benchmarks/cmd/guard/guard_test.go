package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// resultOf returns a result with one figure.
func resultOf(t *testing.T, better string, value float64) *result {
	t.Helper()
	r := new(result)
	text := fmt.Sprintf(`{"scenarios": [{"name": "drain", "cases": [{"name": "noop", "metrics": [{"name": "it", "better": %q, "median": %g}]}]}]}`, better, value)
	require.NoError(t, json.Unmarshal([]byte(text), r))
	return r
}

var it = figure{"it", "drain", "noop", "it"}

func TestSpeedIsBelowOneIfAFigureIsWorse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		better             string
		before, now, speed float64
	}{
		{"higher", 200, 100, 0.5},
		{"higher", 100, 200, 2},
		{"lower", 100, 200, 0.5},
		{"lower", 200, 100, 2},
	} {
		p, err := pairOf(it, resultOf(t, c.better, c.before), resultOf(t, c.better, c.now))
		require.NoError(t, err)
		require.Equal(t, pair{c.before, c.now, c.speed}, p)
	}
	_, err := pairOf(it, resultOf(t, "higher", 0), resultOf(t, "higher", 1))
	require.EqualError(t, err, "before: the result has no it of drain, noop")
	_, err = pairOf(it, resultOf(t, "higher", 1), new(result))
	require.EqualError(t, err, "now: the result has no it of drain, noop")
}

func TestTheMedianOfThePairsDecides(t *testing.T) {
	t.Parallel()
	of := func(speeds ...float64) (list pairs) {
		for _, s := range speeds {
			list = append(list, pair{100, 100 * s, s})
		}
		return list
	}
	for name, c := range map[string]struct {
		pairs pairs
		worse bool
	}{
		"as before":              {of(1, 1, 1), false},
		"one bad pair":           {of(0.2, 1, 1), false},
		"one good pair":          {of(0.8, 0.85, 3), true},
		"a tenth":                {of(0.9, 0.9, 0.9), false},
		"more than a tenth":      {of(0.89, 0.89, 0.89), true},
		"an even number, worse":  {of(0.8, 0.95, 0.7, 1), true},
		"an even number, better": {of(0.8, 1.01, 0.8, 1.01), false},
	} {
		require.Equal(t, c.worse, c.pairs.worse(0.1), name)
	}
	require.Equal(t, "       100 before         85 now   speed 0.85 (0.80–3.00), pairs: 3", of(0.85, 3, 0.8).String())
}

// program writes a shell script as an executable.
func program(t *testing.T, folder, name, script string) string {
	t.Helper()
	file := filepath.Join(folder, name)
	require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o755))
	return file
}

// printing returns a program that prints a result with the value of a figure, and writes profiles.
func printing(t *testing.T, folder, name string, value int) string {
	return program(t, folder, name, fmt.Sprintf(`
echo "%[1]s $*" >> %[3]s/calls
case "$*" in *--help*) echo "--cpu-profile FILE"; exit;; esac
while [ $# -gt 0 ]; do if [ "$1" = --cpu-profile ]; then echo profile > "$2"; fi; shift; done
echo '{"scenarios": [{"name": "drain", "cases": [{"name": "noop", "metrics": [{"name": "it", "better": "higher", "median": %[2]d}]}]}]}'
`, name, value, folder))
}

func TestAFigureThatSeemsWorseIsMeasuredAgainBeforeTheGuardFails(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	var out bytes.Buffer
	g := &guard{
		options:      options{pairs: 2, tolerance: 0.1, database: "postgres://nowhere", profiles: filepath.Join(folder, "profiles")},
		programs:     programs{printing(t, folder, "before", 100), printing(t, folder, "now", 80)},
		measurements: []measurement{{"drain", []string{"drain", "--rows", "7"}, []figure{it}}}, out: &out,
	}
	err := g.run(t.Context())
	require.ErrorIs(t, err, errWorse)
	require.EqualError(t, err, "worse than before by more than 10 %: it")
	require.Contains(t, out.String(), "speed 0.80 (0.80–0.80), pairs: 4")
	require.FileExists(t, filepath.Join(folder, "profiles", "guard-drain-now.prof"))
	require.FileExists(t, filepath.Join(folder, "profiles", "guard-drain-before.prof"))
	calls, err := os.ReadFile(filepath.Join(folder, "calls"))
	require.NoError(t, err)
	const args = " bench drain --rows 7 --runs 1 --json --database postgres://nowhere\n"
	require.Contains(t, string(calls), "before"+args+"now"+args+"now"+args+"before"+args+"before"+args+"now"+args+"now"+args+"before"+args, "the programs take turns at being first")

	g.now = printing(t, folder, "now", 95)
	out.Reset()
	require.NoError(t, g.run(t.Context()))
	require.Contains(t, out.String(), ", pairs: 2\n")

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
	require.NoError(t, build(t.Context(), "../../..", built))
	server, err := postgrestest.Start(t.Context(), postgrestest.Options{Private: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	g := &guard{options: options{database: server.DSN()}}
	for _, m := range measurements() {
		r, err := g.bench(t.Context(), built, append(m.args, "--rows", "100", "--duration", "100ms")) // the last value of a flag counts
		require.NoError(t, err)
		for _, f := range m.figures {
			p, err := pairOf(f, r, r)
			require.NoError(t, err)
			require.Equal(t, 1.0, p.speed)
		}
	}
}
