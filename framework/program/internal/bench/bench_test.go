package bench

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/benchmarks/result"
	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// tiny returns the configuration of a short bench.
func tiny(scenarios ...string) Config {
	return Config{
		Scenarios: scenarios, Rows: 300, Runs: 2, clients: []int{1, 2},
		Delay: time.Millisecond, Duration: 100 * time.Millisecond,
	}
}

// onPostgres returns the configuration of a bench in a fresh PostgreSQL database.
func onPostgres(t *testing.T, c Config) (Config, *sql.DB) {
	t.Helper()
	dsn := postgrestest.DSN(t)
	var err error
	c.Database, err = config.ParseDatabase(dsn)
	require.NoError(t, err)
	db, err := sql.Open("postgres", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return c, db
}

// measure is Run with a short measurement of the machine's load.
func measure(ctx context.Context, c Config, p Progress) (*result.Result, error) {
	b := &bench{config: c.withDefaults(), progress: p, watchFor: time.Millisecond, stalled: time.Minute}
	return b.measure(ctx)
}

func quiet() Progress { return NewProgress(new(bytes.Buffer)) }

// requireMeasured checks that all cases of a scenario have figures, and that all published notifications
// arrived.
func requireMeasured(t *testing.T, r *result.Result, scenario string, cases ...string) {
	t.Helper()
	i := slices.IndexFunc(r.Scenarios, func(s result.Scenario) bool { return s.Name == scenario })
	require.GreaterOrEqual(t, i, 0, scenario)
	var names []string
	for _, c := range r.Scenarios[i].Cases {
		names = append(names, c.Name)
		if c.Skipped != "" {
			continue
		}
		require.NotEmpty(t, c.Metrics, c.Name)
		for _, m := range c.Metrics {
			require.Len(t, m.Runs, r.Settings.Runs, "%s: %s", c.Name, m.Name)
			require.LessOrEqual(t, m.Min, m.Median)
			require.LessOrEqual(t, m.Median, m.Max)
		}
		require.Positive(t, c.Metrics[0].Min, c.Name)
		require.NotEmpty(t, c.Checks, c.Name)
		for _, check := range c.Checks {
			require.Equal(t, check.Expected, check.Arrived, c.Name)
			require.Zero(t, check.Lost+check.Repeated+check.Unknown, c.Name)
		}
	}
	require.Equal(t, cases, names)
}

// find returns a metric of a case.
func find(t *testing.T, r *result.Result, scenario, name, metric string) *result.Metric {
	t.Helper()
	for _, s := range r.Scenarios {
		for i := range s.Cases {
			if s.Name == scenario && s.Cases[i].Name == name {
				m := s.Cases[i].Find(metric)
				require.NotNil(t, m, metric)
				return m
			}
		}
	}
	t.Fatalf("there is no case %s of %s", name, scenario)
	return nil
}

func TestEveryScenarioOnSQLiteLeavesNothingBehind(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	c := tiny("all")
	c.Thresholds = []int{1, 8}
	r, err := measure(t.Context(), c, quiet())
	require.NoError(t, err)
	require.True(t, r.OK)
	require.Equal(t, "SQLite", r.Server.Kind)
	requireMeasured(t, r, "publish",
		"1 client, insert alone", "1 client, with 1 notification", "1 client, with 10 notifications",
		"2 clients, insert alone", "2 clients, with 1 notification", "2 clients, with 10 notifications")
	requireMeasured(t, r, "drain", "noop", "kafka", "http", "smtp")
	requireMeasured(t, r, "latency", "woken in the process", "polling")
	requireMeasured(t, r, "sustain", "to noop")
	requireMeasured(t, r, "sweep", "noop, threshold 1", "noop, threshold 8")
	requireMeasured(t, r, "fault", healthy, oneDead, openTransaction)

	require.EqualValues(t, 300, find(t, r, "drain", "kafka", "rows").Median, "the configured number")

	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left)
	requirePages(t, r)
}

func TestSeveralDeliveriesAtATimeAreFasterInASweep(t *testing.T) {
	t.Parallel()
	c := tiny("sweep")
	c.Thresholds, c.Delay = []int{1, 8}, 10*time.Millisecond // 3 s and 0.4 s, so that stalls matter little
	r, err := measure(t.Context(), c, quiet())
	require.NoError(t, err)
	one, eight := find(t, r, "sweep", "noop, threshold 1", "throughput"), find(t, r, "sweep", "noop, threshold 8", "throughput")
	require.Less(t, one.Max, 100.0, "one delivery at a time takes 10 ms each")
	require.Greater(t, eight.Max, 100.0, "several at a time are faster")
	require.GreaterOrEqual(t, find(t, r, "sweep", "noop, threshold 1", "call_p50").Min, 10.0, "the receiver takes 10 ms")
}

// requirePages checks the output of a result for people and for programs.
func requirePages(t *testing.T, r *result.Result) {
	t.Helper()
	var table, page bytes.Buffer
	Print(&table, r)
	require.NoError(t, WritePage(&page, r))
	text, err := json.Marshal(r)
	require.NoError(t, err)
	for _, s := range r.Scenarios {
		for _, c := range s.Cases {
			require.Contains(t, strings.ToLower(table.String()), strings.ToLower(c.Name), "headings of tables are in capitals")
			require.Contains(t, page.String(), c.Name)
		}
	}
	require.GreaterOrEqual(t, strings.Count(page.String(), "<svg"), len(r.Scenarios), "each scenario has a plot")
	requireSelfContained(t, page.String())

	file := t.TempDir() + "/result.json"
	require.NoError(t, os.WriteFile(file, text, 0o600))
	read, err := result.Read(file)
	require.NoError(t, err)
	require.Equal(t, r, read)
	requireKeys(t, text)
}

// requireSelfContained checks that a page loads nothing else.
func requireSelfContained(t *testing.T, page string) {
	t.Helper()
	names := regexp.MustCompile(`xmlns(:\w+)?="[^"]*"`) // names of namespaces, not addresses to fetch
	page = names.ReplaceAllString(page, "")
	for _, reference := range []string{"http://", "https://", "src=", "href=", "url(", "@import", "<script"} {
		require.NotContains(t, page, reference)
	}
}

// requireKeys compares the keys of a result with those on which other programs rely.
func requireKeys(t *testing.T, text []byte) {
	t.Helper()
	var value any
	require.NoError(t, json.Unmarshal(text, &value))
	found := make(map[string]bool)
	gatherKeys(value, "", found)
	var keys []string
	for key := range found {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	const golden = "testdata/keys.golden"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(golden, []byte(strings.Join(keys, "\n")+"\n"), 0o644))
	}
	wanted, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(wanted), strings.Join(keys, "\n")+"\n")
}

func gatherKeys(value any, at string, found map[string]bool) {
	switch value := value.(type) {
	case map[string]any:
		for key, below := range value {
			path := strings.TrimPrefix(at+"."+key, ".")
			if path == "database.settings" {
				below = nil // its keys depend on the database
			}
			found[path] = true
			gatherKeys(below, path, found)
		}
	case []any:
		for _, below := range value {
			gatherKeys(below, at+"[]", found)
		}
	}
}

func TestTheBenchTouchesNoOtherTables(t *testing.T) {
	t.Parallel()
	c, db := onPostgres(t, tiny("publish", "drain", "latency", "sustain", "fault"))
	_, err := db.ExecContext(t.Context(), `
		CREATE TABLE outbox (id text);
		INSERT INTO outbox VALUES ('mine');
		CREATE TABLE waybill_bench_0123abcd (id text); -- of a bench that was killed`)
	require.NoError(t, err)

	r, err := measure(t.Context(), c, quiet())
	require.NoError(t, err)
	require.Equal(t, "PostgreSQL", r.Server.Kind)
	requireMeasured(t, r, "publish",
		"1 client, insert alone", "1 client, with 1 notification", "1 client, with 10 notifications",
		"2 clients, insert alone", "2 clients, with 1 notification", "2 clients, with 10 notifications")
	requireMeasured(t, r, "drain", "noop", "kafka", "http", "smtp")
	requireMeasured(t, r, "latency", "woken by LISTEN", "woken in the process", "polling")
	requireMeasured(t, r, "sustain", "to noop")
	requireMeasured(t, r, "fault", healthy, oneDead, openTransaction)
	require.Zero(t, find(t, r, "sustain", "to noop", "dead_in_log").Max)
	require.Positive(t, find(t, r, "sustain", "to noop", "tables").Min)

	warnings := strings.Join(r.Warnings, "\n")
	require.Contains(t, warnings, "fsync is off", "test servers have it off")
	require.Contains(t, warnings, "waybill_bench_0123abcd")
	require.Equal(t, []string{"outbox", "waybill_bench_0123abcd"}, tables(t, db))
	var mine string
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT string_agg(id, ' ') FROM outbox`).Scan(&mine))
	require.Equal(t, "mine", mine)
}

func tables(t *testing.T, db *sql.DB) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'S') ORDER BY 1`)
	require.NoError(t, err)
	defer rows.Close()
	names := []string{}
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		names = append(names, name)
	}
	require.NoError(t, rows.Err())
	return names
}

func TestMistakesAreReportedAllAtOnce(t *testing.T) {
	t.Parallel()
	err := Config{
		Scenarios: []string{"drian"}, Sinks: []string{"pigeon", "noop", "noop"}, Rows: -1, Runs: -1, Thresholds: []int{0}, Delay: time.Hour, Duration: -1,
	}.Validate()
	for _, mistake := range []string{
		`no scenario "drian"`, `no receiver "pigeon"`, `--sinks names "noop" twice`, "--rows is -1", "--runs is -1",
		"--threshold is 0", "--delay is 1h0m0s", "--duration is -1ns",
	} {
		require.ErrorContains(t, err, mistake)
	}
	require.ErrorContains(t, Config{Configured: shop, Sinks: []string{"noop"}}.Validate(), `the configuration has no sink "noop"`)
	require.NoError(t, Config{}.Validate())
}

func TestABacklogHasItsKeysAndSizes(t *testing.T) {
	t.Parallel()
	sqlite := Config{}
	json, _ := onPostgres(t, Config{})
	binary, _ := onPostgres(t, Config{Configured: &config.Config{Outbox: config.Outbox{Payload: config.PayloadBytes}}})
	for name, c := range map[string]Config{"sqlite": sqlite, "postgres": json, "postgres with bytea": binary} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bench{config: c.withDefaults(), progress: quiet()}
			var err error
			b.database, err = openDatabase(t.Context(), b.config, t.TempDir())
			require.NoError(t, err)
			defer func() { require.NoError(t, b.database.Close()) }()
			named, err := b.append(t.Context(), 1500)
			require.NoError(t, err)
			require.Equal(t, name == "postgres with bytea", b.database.postgres && b.database.Store.BinaryPayload())

			var rows, different, ids, bytes int
			length := "length(payload)"
			if name == "postgres" {
				length = "length(payload::text)"
			}
			require.NoError(t, b.database.DB.QueryRowContext(t.Context(),
				b.database.named(`SELECT count(*), count(DISTINCT key), count(DISTINCT id), max(`+length+`) FROM outbox WHERE id LIKE '`+named.tag+`%'`)).
				Scan(&rows, &different, &ids, &bytes))
			require.Equal(t, []int{1500, keys, 1500}, []int{rows, different, ids})
			require.InDelta(t, payloadBytes, bytes, 6)
		})
	}
}
