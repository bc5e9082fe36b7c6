package program

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	measured "github.com/waybill-go/waybill/benchmarks/result"
)

// quickly has the flags of a short bench.
var quickly = []string{"--rows", "50", "--runs", "1", "--duration", "50ms"}

// resultFile measures a drain to a receiver that accepts everything, and returns the file of the result.
func resultFile(t *testing.T) string {
	t.Helper()
	r := waybill(t, append([]string{"bench", "drain", "--sinks", "noop", "--json"}, quickly...)...)
	require.Zero(t, r.code, r.stderr)
	file := filepath.Join(t.TempDir(), "result.json")
	require.NoError(t, os.WriteFile(file, []byte(r.stdout), 0o600))
	return file
}

func TestABenchPrintsTablesAndAdvice(t *testing.T) {
	t.Parallel()
	r := waybill(t, append([]string{"bench", "drain", "--sinks", "noop"}, quickly...)...)
	require.Zero(t, r.code, r.stderr)
	require.Regexp(t, `(?s)On SQLite .*Warm in each run: .* Cold: .*drain: how fast a backlog is delivered.*noop .*\n.*Checked by their ids: all 100 notifications arrived.*\nA backlog drains slowest to noop, with [0-9,]+/s: .*\.\n$`, r.stdout)
}

func TestResultsAreComparedAndPlotted(t *testing.T) {
	t.Parallel()
	file := resultFile(t)
	r := waybill(t, "bench", "compare", file, file)
	require.Zero(t, r.code, r.stderr)
	require.Regexp(t, `drain, noop +throughput notifications/s .* 1\.00 +needs two runs +unknown`, r.stdout)
	r = waybill(t, "bench", "plot", file)
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "<svg")

	other := writeFile(t, "database: sqlite:outbox.db")
	for _, args := range [][]string{{"compare"}, {"compare", file}, {"compare", file, other}, {"compare", file, "nowhere.json"}, {"plot"}, {"plot", other}} {
		require.Equal(t, exitUsage, waybill(t, append([]string{"bench"}, args...)...).code, args)
	}
}

func TestAComparisonFailsIfAFigureIsWorse(t *testing.T) {
	t.Parallel()
	file := resultFile(t)
	scaled := func(factor float64) string {
		r, err := measured.Read(file)
		require.NoError(t, err)
		m := r.Scenarios[0].Cases[0].Find("throughput")
		m.Runs[0], m.Median, m.Min, m.Max = m.Runs[0]*factor, m.Median*factor, m.Min*factor, m.Max*factor
		to := filepath.Join(t.TempDir(), "scaled.json")
		require.NoError(t, r.Write(to))
		return to
	}
	better := waybill(t, "bench", "compare", file, scaled(2), "--tolerance", "0%")
	require.Zero(t, better.code, better.stderr)
	require.Zero(t, waybill(t, "bench", "compare", file, scaled(0.92)).code, "within 10 %")
	worse := waybill(t, "bench", "compare", file, scaled(0.5), "--tolerance", "45%")
	require.Equal(t, exitFailed, worse.code)
	require.Regexp(t, `worse by more than 45%: drain, noop: throughput notifications/s was [0-9,.]+ before and is [0-9,.]+ now: 0\.50 times\n`, worse.stderr)
	require.Contains(t, worse.stdout, "drain, noop", "the table is printed nevertheless")
	asJSON := waybill(t, "bench", "compare", file, scaled(0.5), "--json")
	require.Equal(t, exitFailed, asJSON.code)
	var c measured.Comparison
	require.NoError(t, json.Unmarshal([]byte(asJSON.stdout), &c))
	require.InDelta(t, 0.5, c.Rows[0].Ratio, 1e-9)
	for _, tolerance := range []string{"5", "NaN%"} {
		r := waybill(t, "bench", "compare", file, file, "--tolerance", tolerance)
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.stderr, "use a percentage from 0% to less than 100%")
	}
}

// partner is a configuration with a real HTTP sink, and one that needs a secret.
func partner(t *testing.T, o outbox, url string) string {
	return writeFile(t, fmt.Sprintf(`
database: %q
sinks:
  partner: {kind: http, with: {url: %q}, parallelism: {threshold: 3}}
  mail: {kind: email, with: {smtp: "smtp://nobody:${SECRET}@mail.example.com", from: a@example.com, templates: nowhere}}
routes: {"*": [partner, mail]}
`, o.address, url))
}

func TestConfiguredSinksGetNothingUnlessTheyAreNamed(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		r := newReceiver(t)
		got := waybill(t, append([]string{"bench", "drain", "-c", partner(t, o, r.URL), "--json"}, quickly...)...)
		require.Zero(t, got.code, got.stderr)
		var found measured.Result
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &found))
		var names []string
		for _, c := range found.Scenarios[0].Cases {
			names = append(names, c.Name)
		}
		require.Equal(t, []string{"mail (built-in smtp)", "partner (built-in http)"}, names, "receivers of the same kinds stand in their places")
		count, _ := r.bodies()
		require.Zero(t, count)
	})
}

func TestDeliveriesToRealSinksNeedConsent(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	o := databases["sqlite"](t)
	file := writeFile(t, fmt.Sprintf("database: %q\nsinks:\n  partner: {kind: http, with: {url: %q}}\nroutes: {\"*\": [partner]}\n", o.address, r.URL))
	args := append([]string{"bench", "drain", "-c", file, "--sinks", "partner", "--json"}, quickly...)

	refused := waybill(t, args...)
	require.Equal(t, exitUsage, refused.code)
	require.Contains(t, refused.stderr, "It delivers made-up notifications of the type waybill.bench to the real sink partner.\n")
	require.Contains(t, refused.stderr, "there is no terminal to ask on: read the lines above, then use --yes")
	count, _ := r.bodies()
	require.Zero(t, count)

	got := waybill(t, append(args, "--yes")...)
	require.Zero(t, got.code, got.stderr)
	var found measured.Result
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &found))
	check := found.Scenarios[0].Cases[0].Checks[0]
	require.Equal(t, measured.Check{Sink: "partner", Counted: "receipts", Expected: 100, Arrived: 100}, check, "a warm-up and a run")
	require.Equal(t, "partner (http)", found.Scenarios[0].Cases[0].Name, "with its kind")
	count, _ = r.bodies()
	require.Equal(t, 50, count)
}

func TestABenchPublishesANotificationOfTheUsersOwn(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		r := newReceiver(t)
		file := writeFile(t, fmt.Sprintf("database: %q\nsinks:\n  partner: {kind: http, with: {url: %q}}\nroutes: {\"*\": [partner]}\n", o.address, r.URL))
		data := filepath.Join(t.TempDir(), "order.json")
		require.NoError(t, os.WriteFile(data, []byte("{\"order\": \"ü-17\"}\n"), 0o600))
		got := waybill(t, append([]string{"bench", "drain", "latency", "-c", file, "--sinks", "partner", "--sample", "order.placed=" + data, "--yes", "--json"}, quickly...)...)
		require.Zero(t, got.code, got.stderr)
		require.Contains(t, got.stderr, "It delivers many copies of the given notification of the type order.placed to the real sink partner.\n")
		var found measured.Result
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &found))
		require.Equal(t, "order.placed", found.Settings.Type)
		require.Equal(t, 17, found.Settings.PayloadBytes)
		r.mu.Lock()
		defer r.mu.Unlock()
		require.Len(t, r.counts, 1, "the same from the backlog as from the publisher")
		require.Contains(t, r.counts, `{"order":"ü-17"}`)
	})
}

func TestMistakesOfABenchAreWrongUsage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args   []string
		stderr string
	}{
		"scenario":          {[]string{"bench", "drian"}, `there is no scenario "drian"`},
		"runs":              {[]string{"bench", "--runs", "-1"}, `--runs is -1: use 1 to 1000`},
		"database":          {[]string{"bench", "--database", "mysql://app:hunter2@db"}, `--database names no database`},
		"sinks, no file":    {[]string{"bench", "--sinks", "partner"}, `name a configuration with -c`},
		"a sample, no file": {[]string{"bench", "--sample", "order.placed"}, `--sample: use TYPE=FILE`},
		"no such sample":    {[]string{"bench", "--sample", "order.placed=nowhere.json"}, `--sample: open nowhere.json`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := waybill(t, c.args...)
			require.Equal(t, exitUsage, r.code, r.stderr)
			require.Contains(t, r.stderr, c.stderr)
			require.NotContains(t, r.stderr, "hunter2")
			require.Empty(t, r.stdout)
		})
	}
	r := waybill(t, "bench", "drain", "--database", nowhere)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "connection refused")
	require.NotContains(t, r.stderr, "hunter2")
}
