package bench

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/cmd/waybill/internal/config"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/sinks"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// tiny is a bench that ends soon.
func tiny(scenarios ...string) Config {
	return Config{
		Scenarios: scenarios, Rows: 300, Runs: 2, Clients: []int{1, 2}, Thresholds: []int{1, 8},
		Delay: time.Millisecond, Duration: 100 * time.Millisecond, Backlog: 2000,
	}
}

// onPostgres is a bench in a fresh PostgreSQL.
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

// measure is Run without a long look at the machine.
func measure(ctx context.Context, c Config, p Progress) (*Result, error) {
	b := &bench{config: c.withDefaults(), progress: p, watchFor: time.Millisecond, stalled: time.Minute}
	return b.measure(ctx)
}

func quiet() Progress { return NewProgress(new(bytes.Buffer)) }

// requireMeasured checks that all cases of a scenario have figures and that all that
// was published arrived.
func requireMeasured(t *testing.T, r *Result, scenario string, cases ...string) {
	t.Helper()
	i := slices.IndexFunc(r.Scenarios, func(s Scenario) bool { return s.Name == scenario })
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

// find is a metric of a case.
func find(t *testing.T, r *Result, scenario, name, metric string) *Metric {
	t.Helper()
	for _, s := range r.Scenarios {
		for i := range s.Cases {
			if s.Name == scenario && s.Cases[i].Name == name {
				m := s.Cases[i].find(metric)
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
	r, err := measure(t.Context(), tiny("all"), quiet())
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
	requireMeasured(t, r, "fault", healthy, oneDead, openTransaction, "a backlog of 2,000 to one sink")

	one, eight := find(t, r, "sweep", "noop, threshold 1", "throughput"), find(t, r, "sweep", "noop, threshold 8", "throughput")
	require.Less(t, one.Max, 1000.0, "one at a time, a millisecond each")
	require.Greater(t, eight.Max, 2*one.Max, "more at a time are faster")
	require.GreaterOrEqual(t, find(t, r, "sweep", "noop, threshold 1", "call_p50").Min, 1.0, "the receiver takes a millisecond")
	require.EqualValues(t, 300, find(t, r, "drain", "kafka", "rows").Median, "as the user wants")

	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left)
	requirePages(t, r)
}

// requirePages checks what is made of a result for people and for programs.
func requirePages(t *testing.T, r *Result) {
	t.Helper()
	var table, page bytes.Buffer
	r.Print(&table)
	require.NoError(t, r.WriteHTML(&page))
	text, err := json.Marshal(r)
	require.NoError(t, err)
	for _, s := range r.Scenarios {
		for _, c := range s.Cases {
			require.Contains(t, strings.ToLower(table.String()), strings.ToLower(c.Name), "heads are in capitals")
			require.Contains(t, page.String(), c.Name)
		}
	}
	require.GreaterOrEqual(t, strings.Count(page.String(), "<svg"), len(r.Scenarios), "each scenario has a plot")
	requireSelfContained(t, page.String())

	file := t.TempDir() + "/result.json"
	require.NoError(t, os.WriteFile(file, text, 0o600))
	read, err := Read(file)
	require.NoError(t, err)
	require.Equal(t, r, read)
	requireKeys(t, text)
}

// requireSelfContained checks that a page asks for nothing.
func requireSelfContained(t *testing.T, page string) {
	t.Helper()
	names := regexp.MustCompile(`xmlns(:\w+)?="[^"]*"`) // which nobody fetches
	page = names.ReplaceAllString(page, "")
	for _, reference := range []string{"http://", "https://", "src=", "href=", "url(", "@import", "<script"} {
		require.NotContains(t, page, reference)
	}
}

// requireKeys compares the keys of a result with those that other programs rely on.
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
				below = nil // are the database's own
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

func TestOnPostgreSQLItLeavesOtherTablesAlone(t *testing.T) {
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
	requireMeasured(t, r, "fault", healthy, oneDead, openTransaction, "a backlog of 2,000 to one sink")
	require.Zero(t, find(t, r, "sustain", "to noop", "dead_in_log").Max)
	require.Positive(t, find(t, r, "sustain", "to noop", "tables").Min)

	warnings := strings.Join(r.Warnings, "\n")
	require.Contains(t, warnings, "fsync is off", "as it is on the servers of tests")
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

func TestNamesInUseAreRefused(t *testing.T) {
	t.Parallel()
	_, db := onPostgres(t, Config{})
	require.NoError(t, refuseTaken(t.Context(), db, "waybill_bench_0123abcd"))
	_, err := db.ExecContext(t.Context(), `CREATE TABLE waybill_bench_0123abcd_cursors (id text)`)
	require.NoError(t, err)
	require.ErrorContains(t, refuseTaken(t.Context(), db, "waybill_bench_0123abcd"), "already")
}

// observer looks at the database while deliveries are awaited, and counts by the
// step's name how many transactions hold a row of the log back.
type observer struct {
	Progress
	look func() int
	step string
	seen map[string]int
}

func (o *observer) Step(what string) {
	o.step = what
	o.Progress.Step(what)
}

func (o *observer) Watch(what func() string) {
	o.Progress.Watch(what)
	o.seen[o.step] += o.look()
}

func TestATransactionIsHeldOpenBesideItsCaseAlone(t *testing.T) {
	t.Parallel()
	c, db := onPostgres(t, tiny("fault"))
	c.Runs = 1
	o := &observer{Progress: quiet(), seen: make(map[string]int), look: func() (open int) {
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(DISTINCT pid) FROM pg_stat_activity
			WHERE datname = current_database() AND state = 'idle in transaction' AND query LIKE 'INSERT INTO waybill_bench%(type, payload)%'`).Scan(&open))
		return open
	}}
	_, err := measure(t.Context(), c, o)
	require.NoError(t, err)
	require.Equal(t, 2, o.seen[openTransaction+": run 1 of 1"], "one, as each of the two sinks is awaited")
	require.Zero(t, o.seen[healthy+": run 1 of 1"])
	require.Zero(t, o.seen[oneDead+": run 1 of 1"])
}

// canceller ends a bench in the midst of its first run.
type canceller struct {
	Progress
	cancel context.CancelFunc
}

func (c canceller) Watch(what func() string) {
	c.Progress.Watch(what)
	c.cancel()
}

func TestACancelledBenchRemovesItsTables(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, scenario := range []string{"publish", "drain", "sustain"} {
		t.Run(scenario, func(t *testing.T) {
			c, db := onPostgres(t, tiny(scenario))
			c.Duration, c.Rows, c.Delay = time.Hour, 5000, maxDelay
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, err := measure(ctx, c, canceller{quiet(), cancel})
			require.ErrorIs(t, err, context.Canceled)
			require.Nil(t, r)
			require.Empty(t, tables(t, db))
			left, err := os.ReadDir(os.TempDir())
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

func TestWhatAReceiverDoesNotGetFailsTheBench(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tamper  func(n int64, took func(string), id string)
		lost    int64
		unknown int64
		repeats int64
		ok      bool
	}{
		"one is dropped": {func(n int64, took func(string), id string) {
			if n != 17 {
				took(id)
			}
		}, 1, 0, 0, false},
		"one comes that nobody published": {func(n int64, took func(string), id string) {
			took(id)
			if n == 17 {
				took("order-1")
			}
		}, 0, 1, 0, false},
		"one of another run comes": {func(n int64, took func(string), id string) {
			took(id)
			if n == 17 {
				took(id + "0000")
			}
		}, 0, 1, 0, false},
		"one comes again": {func(n int64, took func(string), id string) {
			took(id)
			if n == 17 {
				took(id)
			}
		}, 0, 0, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := tiny("drain")
			config.Receivers, config.Delay = []string{httpName}, 0
			var came atomic.Int64
			b := &bench{
				config: config.withDefaults(), progress: quiet(), stalled: time.Minute,
				tamper: func(took func(string)) func(string) {
					return func(id string) { c.tamper(came.Add(1), took, id) }
				},
			}
			r, err := b.measure(t.Context())
			require.NotNil(t, r)
			require.Equal(t, c.ok, r.OK)
			check := r.Scenarios[0].Cases[0].Checks[0]
			require.Equal(t, [3]int64{c.lost, c.unknown, c.repeats}, [3]int64{check.Lost, check.Unknown, check.Repeated})
			var table bytes.Buffer
			r.Print(&table)
			if c.ok {
				require.NoError(t, err)
				require.Contains(t, table.String(), "arrived more than once")
				return
			}
			require.ErrorIs(t, err, ErrLost)
			require.Contains(t, table.String(), "FAILED")
			require.Contains(t, table.String(), fmt.Sprintf("%d were lost at http (received), and %d arrived that were never published", c.lost, c.unknown))
		})
	}
}

func TestDeliveriesThatStandStillEndTheBench(t *testing.T) {
	t.Parallel()
	b := &bench{config: Config{}.withDefaults(), progress: quiet(), stalled: 200 * time.Millisecond}
	var err error
	b.database, err = openDatabase(t.Context(), b.config, t.TempDir())
	require.NoError(t, err)
	defer func() { require.NoError(t, b.database.Close()) }()
	named, err := b.fill(t.Context(), 50)
	require.NoError(t, err)
	refuses := destination{name: "partner", counted: countedReceipts, settings: threshold(4), open: func(context.Context, opening) (*opened, error) {
		return &opened{sink: sinks.Func(func(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
			if d.ID == named.id(17) {
				return "", sinks.Permanent(errors.New("not this one"))
			}
			return "", nil
		})}, nil
	}}
	_, checks, err := b.drainOnce(t.Context(), named, 50, []destination{refuses}, nil)
	require.ErrorIs(t, err, errStalled)
	require.ErrorContains(t, err, "partner took 49 of 50 notifications, and then none for 200ms")
	require.Equal(t, []Check{{Sink: "partner", Counted: countedReceipts, Expected: 50, Arrived: 49, Lost: 1}}, checks)
}

func TestMistakesAreReportedAllAtOnce(t *testing.T) {
	t.Parallel()
	err := Config{
		Scenarios: []string{"drian"}, Receivers: []string{"pigeon"}, Sinks: []string{"partner", "partner"}, Rows: -1, Runs: -1, PayloadBytes: -1, Keys: -1,
		Clients: []int{0}, Threshold: -1, Thresholds: []int{0}, Delay: time.Hour, Rate: -1, Duration: -1, Backlog: -1,
	}.Validate()
	for _, mistake := range []string{
		`no scenario "drian"`, `no receiver "pigeon"`, "--sinks partner: sinks are those of a configuration", `name "partner" twice`, "--rows is -1", "--runs is -1",
		"--payload-bytes is -1", "--keys is -1", "--clients is 0", "--threshold is -1", "--thresholds is 0", "--delay is 1h0m0s", "--rate is -1",
		"--duration is -1ns", "--backlog is -1",
	} {
		require.ErrorContains(t, err, mistake)
	}
	require.NoError(t, Config{}.Validate())
}

func TestThePlanAsksBeforeItDoesHarm(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config  Config
		consent bool
		says    string
	}{
		"by default":                {Config{}, false, ""},
		"real sinks":                {Config{Sinks: []string{"partner"}}, true, "the real sink partner"},
		"a large backlog of faults": {Config{Scenarios: []string{"fault"}}, true, "10,000,000 notifications: about 4.5 GB"},
		"many rows":                 {Config{Rows: 5_000_000}, true, "about 2.2 GB"},
		"a small backlog":           {Config{Scenarios: []string{"fault"}, Backlog: 1000}, false, ""},
	} {
		lines, consent := c.config.Plan()
		require.Equal(t, c.consent, consent, name)
		require.Contains(t, strings.Join(lines, "\n"), c.says, name)
	}
}

func TestABacklogIsSpreadOverItsKeysAndHasItsSize(t *testing.T) {
	t.Parallel()
	sqlite := Config{}
	json, _ := onPostgres(t, Config{})
	binary, _ := onPostgres(t, Config{Configured: &config.Config{Outbox: config.Outbox{Payload: config.PayloadBytes}}})
	for name, c := range map[string]Config{"sqlite": sqlite, "postgres": json, "postgres with bytea": binary} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.Keys, c.PayloadBytes = 7, 250
			b := &bench{config: c.withDefaults(), progress: quiet()}
			var err error
			b.database, err = openDatabase(t.Context(), b.config, t.TempDir())
			require.NoError(t, err)
			defer func() { require.NoError(t, b.database.Close()) }()
			named, err := b.fill(t.Context(), 150)
			require.NoError(t, err)
			require.Equal(t, name == "postgres with bytea", b.database.postgres && b.database.Store.BinaryPayload())

			var rows, keys, ids, bytes int
			length := "length(payload)"
			if name == "postgres" {
				length = "length(payload::text)"
			}
			require.NoError(t, b.database.DB.QueryRowContext(t.Context(),
				b.database.named(`SELECT count(*), count(DISTINCT key), count(DISTINCT id), max(`+length+`) FROM outbox WHERE id LIKE '`+named.tag+`%'`)).
				Scan(&rows, &keys, &ids, &bytes))
			require.Equal(t, []int{150, 7, 150}, []int{rows, keys, ids})
			require.InDelta(t, 250, bytes, 6)
		})
	}
}
