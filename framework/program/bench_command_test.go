package program

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/program/internal/bench"
)

// quickly has the flags of a short bench.
var quickly = []string{"--rows", "50", "--runs", "1", "--duration", "50ms", "--clients", "1"}

func TestABenchPrintsTablesAndPages(t *testing.T) {
	t.Parallel()
	page, profile := filepath.Join(t.TempDir(), "report.html"), filepath.Join(t.TempDir(), "cpu.prof")
	r := waybill(t, append([]string{"bench", "drain", "--receivers", "noop", "--html", page, "--cpu-profile", profile}, quickly...)...)
	require.Zero(t, r.code, r.stderr)
	require.Regexp(t, `(?s)On SQLite .*Warm in each run: .* Cold: .*drain: how fast a backlog is delivered.*noop .*\n.*Checked by their ids: all 100 notifications arrived`, r.stdout)
	html, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(html), "<svg")
	require.FileExists(t, profile)
}

func TestBenchesAreCompared(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "result.json")
	r := waybill(t, append([]string{"bench", "drain", "--receivers", "noop", "--json"}, quickly...)...)
	require.Zero(t, r.code, r.stderr)
	require.NoError(t, os.WriteFile(file, []byte(r.stdout), 0o600))

	r = waybill(t, "bench", "compare", file, file)
	require.Zero(t, r.code, r.stderr)
	require.Regexp(t, `drain, noop +throughput notifications/s .* 1\.00 +needs two runs +unknown`, r.stdout)
	r = waybill(t, "bench", "compare", file, file, "--json")
	require.Zero(t, r.code, r.stderr)
	var c bench.Comparison
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &c))
	require.InDelta(t, 1, c.Rows[0].Ratio, 1e-12)

	other := writeFile(t, "database: sqlite:outbox.db")
	for _, args := range [][]string{{"bench", "compare"}, {"bench", "compare", file}, {"bench", "compare", file, other}, {"bench", "compare", file, "nowhere.json"}} {
		require.Equal(t, exitUsage, waybill(t, args...).code, args)
	}
}

// benchFile writes a result of the scenario drain, with its figures multiplied by a factor.
func benchFile(t *testing.T, r bench.Result, factor float64) string {
	t.Helper()
	for _, c := range r.Scenarios[0].Cases {
		for i := range c.Metrics {
			for k := range c.Metrics[i].Runs {
				c.Metrics[i].Runs[k] *= factor
			}
			c.Metrics[i].Median *= factor
		}
	}
	text, err := json.Marshal(r)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "before.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	return file
}

func TestABenchAgainstAnEarlierResultFailsIfItIsWorse(t *testing.T) {
	t.Parallel()
	drain := append([]string{"bench", "drain", "--receivers", "noop"}, quickly...)
	first := waybill(t, append(drain, "--json")...)
	require.Zero(t, first.code, first.stderr)
	var result bench.Result
	require.NoError(t, json.Unmarshal([]byte(first.stdout), &result))
	require.Nil(t, result.Against)
	slow := benchFile(t, result, 1e-6)
	fast := benchFile(t, result, 1e12)

	better := waybill(t, append(drain, "--against", slow, "--tolerance", "0%")...)
	require.Zero(t, better.code, better.stderr)
	require.Regexp(t, `(?s)all 100 notifications arrived.*Against .*before\.json:.*drain, noop +throughput`, better.stdout)

	worse := waybill(t, append(drain, "--against", fast)...)
	require.Equal(t, exitFailed, worse.code, worse.stderr)
	require.Regexp(t, `worse than in .*before\.json by more than 10%: drain, noop: throughput notifications/s was [0-9,]+ before and is [0-9,]+ now: 0\.00 times\n`, worse.stderr)
	require.Regexp(t, `(?s)all 100 notifications arrived.*Against`, worse.stdout, "the result is printed nevertheless")

	asJSON := waybill(t, append(drain, "--against", fast, "--json")...)
	require.Equal(t, exitFailed, asJSON.code)
	require.NoError(t, json.Unmarshal([]byte(asJSON.stdout), &result))
	require.Less(t, result.Against.Rows[0].Ratio, 0.01)

	for _, c := range []struct {
		args   []string
		stderr string
	}{
		{[]string{"bench", "latency", "--against", fast}, "has none of the scenarios to measure"},
		{[]string{"bench", "--against", "nowhere.json"}, "--against: open nowhere.json"},
		{[]string{"bench", "--tolerance", "5%"}, "--tolerance needs --against"},
		{[]string{"bench", "--against", fast, "--tolerance", "5"}, "use a percentage from 0% to less than 100%"},
		{[]string{"bench", "--against", fast, "--tolerance", "NaN%"}, "use a percentage"},
	} {
		r := waybill(t, c.args...)
		require.Equal(t, exitUsage, r.code, c.args)
		require.Contains(t, r.stderr, c.stderr)
	}
	nothing := waybill(t, append([]string{"bench", "drain", "--receivers", "http", "--against", fast}, quickly...)...)
	require.Equal(t, exitFailed, nothing.code)
	require.Contains(t, nothing.stderr, "have no figure in common")
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
		var result bench.Result
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &result))
		var names []string
		for _, c := range result.Scenarios[0].Cases {
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

	agreed := waybill(t, append(args, "--yes")...)
	require.Zero(t, agreed.code, agreed.stderr)
	var result bench.Result
	require.NoError(t, json.Unmarshal([]byte(agreed.stdout), &result))
	check := result.Scenarios[0].Cases[0].Checks[0]
	require.Equal(t, bench.Check{Sink: "partner", Counted: "receipts", Expected: 100, Arrived: 100}, check, "a warm-up and a run")
	require.Equal(t, "partner (http)", result.Scenarios[0].Cases[0].Name, "with its kind")
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
		got := waybill(t, append([]string{"bench", "drain", "latency", "-c", file, "--sinks", "partner", "--yes", "--type", "order.placed", "--data", data, "--json"}, quickly...)...)
		require.Zero(t, got.code, got.stderr)
		require.Contains(t, got.stderr, "It delivers many copies of the given notification of the type order.placed to the real sink partner.\n")
		var result bench.Result
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &result))
		require.Equal(t, "order.placed", result.Settings.Type)
		require.Equal(t, 17, result.Settings.PayloadBytes)
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
		"scenario":            {[]string{"bench", "drian"}, `there is no scenario "drian"`},
		"runs":                {[]string{"bench", "--runs", "-1"}, `--runs is -1: use 1 to 1000`},
		"database":            {[]string{"bench", "--database", "mysql://app:hunter2@db"}, `--database names no database`},
		"sinks, no file":      {[]string{"bench", "--sinks", "partner"}, `name it with -c`},
		"html":                {[]string{"bench", "--html", "/does/not/exist.html"}, `--html: open /does/not/exist.html`},
		"type without a sink": {[]string{"bench", "--type", "order.placed"}, `--type and --data describe one notification`},
		"no such data":        {[]string{"bench", "--type", "order.placed", "--data", "nowhere.json"}, `--data: open nowhere.json`},
		"data and size":       {[]string{"bench", "--type", "order.placed", "--data", "x", "--payload-bytes", "7"}, `--payload-bytes applies to made-up payloads`},
		"profile":             {[]string{"bench", "--cpu-profile", "/does/not/exist.prof"}, `--cpu-profile: open /does/not/exist.prof`},
		"large backlog":       {[]string{"bench", "fault", "--json"}, `there is no terminal to ask on`},
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
