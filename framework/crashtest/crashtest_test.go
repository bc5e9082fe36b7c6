package crashtest_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/crashtest"
	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// These variables make a run longer, repeat a run, and keep the forwarders' logs.
const (
	variableSeed     = "WAYBILL_CRASH_SEED"
	variableDuration = "WAYBILL_CRASH_DURATION"
	variableFaults   = "WAYBILL_CRASH_FAULTS" // comma-separated
	variableLogs     = "WAYBILL_CRASH_LOGS"
	variableOther    = "WAYBILL_CRASH_OTHER" // the program of another version, which every second forwarder runs
)

const (
	lease     = 2 * time.Second
	threshold = 16
	timeout   = 3 * time.Second
	// checkpoint is how long a checkpoint may take beside other suites, which use all of the machine.
	checkpoint = 3 * time.Second
	sequences  = 2
)

var stepsOfForwarders = steps(failpoint.Checkpoint, failpoint.Renewal, failpoint.Park, failpoint.Resume, failpoint.Lease, failpoint.Release,
	failpoint.Heartbeat, failpoint.Leave, failpoint.Declaration, failpoint.Withdrawal, failpoint.Eviction, failpoint.WantLanes,
	failpoint.Recut, failpoint.WantTypes, failpoint.Route, failpoint.Prune)

func steps(of ...failpoint.Step) (names []string) {
	for _, s := range of {
		names = append(names, string(s))
	}
	return names
}

func TestForwardersKeepTheirPromisesThroughCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	testCrashes(t, crashtest.PostgreSQL)
}

func TestForwardersKeepTheirPromisesOnMySQLThroughCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	testCrashes(t, crashtest.MySQL)
}

// TestAFleetKeepsItsPromisesThroughCrashes has a control database, in another schema, which assigns the database to one of
// the forwarders.
func TestAFleetKeepsItsPromisesThroughCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	var migrated sync.Once
	report, err := crashtest.Run(t.Context(), crashtest.Config{
		Forwarder: program(t, func(file, dsn, endpoint string) {
			control := dsn + "&search_path=control"
			configure(t, file, dsn, endpoint, "fleet: {control: "+strconv.Quote(control)+"}\n")
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			text = bytes.Replace(text, []byte("database: "), []byte("databases:\n  shop: "), 1)
			require.NoError(t, os.WriteFile(file, text, 0o600))
			migrated.Do(func() {
				db, err := postgres.OpenDB(dsn)
				require.NoError(t, err)
				_, err = db.ExecContext(t.Context(), `CREATE SCHEMA control`)
				require.NoError(t, errors.Join(err, db.Close()))
				migrate := exec.Command(binary, "migrate", "--in", "control", "-c", file)
				migrate.Env = []string{}
				output, err := migrate.CombinedOutput()
				require.NoError(t, err, "%s", output)
			})
		}),
		Lease: lease, Threshold: threshold, Checkpoint: checkpoint, Duration: duration(t), Gap: 500 * time.Millisecond, Faults: faults(),
		Steps: steps(failpoint.Lease, failpoint.Release, failpoint.Heartbeat, failpoint.Leave, failpoint.Create), Seed: seed(t), Log: t.Output(),
	})
	t.Log(report)
	require.NoError(t, err)
	require.Positive(t, report.Committed)
}

func testCrashes(t *testing.T, database crashtest.Database) {
	t.Helper()
	c := crashtest.Config{
		Database:   database,
		Forwarder:  waybillForward(t),
		Lease:      lease,
		Threshold:  threshold,
		Checkpoint: checkpoint,
		Duration:   duration(t),
		Gap:        500 * time.Millisecond,
		Faults:     faults(),
		Sequences:  sequences,
		Steps:      stepsOfForwarders,
		Reload:     reload,
		Acts:       people(t),
		Seed:       seed(t),
		Log:        t.Output(),
	}
	report, err := crashtest.Run(t.Context(), c)
	t.Log(report)
	if errors.Is(err, mysqltest.ErrNoServer) && os.Getenv(mysqltest.Variable) == "" {
		t.Skip(err)
	}
	require.NoError(t, err, "replay the faults with %s=%d", variableSeed, report.Seed)
	require.Positive(t, report.Committed)
	require.Positive(t, report.RolledBack)
	require.Positive(t, report.Prepared)
	require.Positive(t, report.Failures)
	require.NotEmpty(t, report.Faults)
}

// TestCollectionsLoseNothingThroughCrashes collects the notifications of several keys, which come from all lanes.
func TestCollectionsLoseNothingThroughCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	const size = 10
	report, err := crashtest.Run(t.Context(), crashtest.Config{
		Forwarder: program(t, func(file, dsn, endpoint string) {
			configure(t, file, dsn, endpoint+crashtest.Envelopes, "")
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			text = bytes.Replace(text, []byte(", timeout: "), []byte(", format: envelope, timeout: "), 1)
			text = bytes.Replace(text, []byte("    retry: "), fmt.Appendf(nil, "    collect: {by: '\"g\" + string(len(key) %% 7)', wait: 100ms, max_wait: 500ms, size: %d}\n    retry: ", size), 1)
			require.NoError(t, os.WriteFile(file, text, 0o600))
		}),
		Lease: lease, Threshold: threshold * size, Checkpoint: checkpoint, Duration: duration(t), Gap: 500 * time.Millisecond, Faults: faults(),
		Sequences: sequences, Steps: append(steps(failpoint.Collect), stepsOfForwarders...), Reload: reload, Acts: people(t), Seed: seed(t), Log: t.Output(),
	})
	t.Log(report)
	require.NoError(t, err, "replay the faults with %s=%d", variableSeed, report.Seed)
	require.Positive(t, report.Committed)
}

// waybillForward returns commands of the real program.
func waybillForward(t *testing.T) func(dsn, endpoint string) *exec.Cmd {
	return program(t, func(file, dsn, endpoint string) { configure(t, file, dsn, endpoint, "") })
}

// program returns commands of the real program with the configurations that configure writes.
func program(t *testing.T, configure func(file, dsn, endpoint string)) func(dsn, endpoint string) *exec.Cmd {
	folder := os.Getenv(variableLogs)
	if folder == "" {
		folder = t.TempDir()
	}
	var count atomic.Int64
	return func(dsn, endpoint string) *exec.Cmd {
		name := filepath.Join(folder, fmt.Sprintf("forwarder-%03d", count.Add(1)))
		configure(name+".yaml", dsn, endpoint)
		log, err := os.Create(name + ".log")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, log.Close()) })
		command := exec.Command(binary, "forward", "-c", name+".yaml")
		if other := os.Getenv(variableOther); other != "" && count.Load()%2 == 0 {
			command = exec.Command(other, "forward", "-c", name+".yaml")
		}
		command.Env = []string{} // without the developer's environment
		command.Stderr = log
		return command
	}
}

// configure writes the configuration of a forwarder, whose sinks also get what more says.
func configure(t *testing.T, file, dsn, endpoint string, more string, also ...string) {
	t.Helper()
	config := fmt.Sprintf(`
database: %[1]q
outbox: {lanes: 4, retention: 2s}
forwarder: {name: %[2]q, lease: %[3]s, shutdown_timeout: 10s}
sinks:
  recorder:
    kind: http
    with: {url: %[4]q, timeout: %[5]s}
    parallelism: {threshold: %[6]d}
    retry: {max_attempts: 1000, initial: 50ms, max: 1s}
%[7]s
routes:
  "crash.*": [%[8]s]
`, dsn, strings.TrimSuffix(filepath.Base(file), ".yaml"), lease, endpoint, timeout, threshold, more, strings.Join(append(also, "recorder"), ", "))
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
}

var (
	lanesOf = regexp.MustCompile(`lanes: \d+`)
	routeOf = regexp.MustCompile(`"(crash\.)?\*": `)
)

// reload gives a forwarder another number of lanes, and the same types by another route.
func reload(forwarder *exec.Cmd, random *rand.Rand) error {
	file := forwarder.Args[len(forwarder.Args)-1]
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text = lanesOf.ReplaceAll(text, fmt.Appendf(nil, "lanes: %d", []int{2, 4, 8}[random.IntN(3)]))
	text = routeOf.ReplaceAll(text, fmt.Appendf(nil, "%q: ", []string{"crash.*", "*"}[random.IntN(2)]))
	return os.WriteFile(file, text, 0o600)
}

// people are what people do with the program.
func people(t *testing.T) []crashtest.Act {
	file := filepath.Join(t.TempDir(), "people.yaml")
	configure(t, file, "postgres://set.by.the.environment/", "http://127.0.0.1:1", "")
	command := func(args ...string) func(dsn string) *exec.Cmd {
		return func(dsn string) *exec.Cmd {
			c := exec.Command(binary, append(args, "-c", file)...)
			c.Env = []string{"WAYBILL_DATABASE=" + dsn}
			return c
		}
	}
	ends := []failpoint.Step{failpoint.BeginAction, failpoint.EndAction}
	return []crashtest.Act{
		{Command: command("pause", "recorder"), Undo: command("resume", "recorder"), Steps: steps(append(ends, failpoint.Pause)...)},
		{Command: command("replay", "--sink", "recorder", "--since", "1s", "--yes"), Steps: steps(append(ends, failpoint.Replay)...)},
		{Command: command("parked", "requeue", "--all", "--state", "retrying", "--yes"), Steps: steps(append(ends, failpoint.Requeue)...)},
		{Command: command("parked", "reroute", "--yes"), Steps: steps(append(ends, failpoint.Reroute)...)},
		{Command: command("parked", "discard", "--all", "--yes"), Steps: steps(append(ends, failpoint.Discard)...)}, // nothing is dead
	}
}

func faults() (kinds []crashtest.Kind) {
	for kind := range strings.SplitSeq(os.Getenv(variableFaults), ",") {
		if kind != "" {
			kinds = append(kinds, crashtest.Kind(kind))
		}
	}
	return kinds
}

func seed(t *testing.T) uint64 {
	text := os.Getenv(variableSeed)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, variableSeed)
	return n
}

func duration(t *testing.T) time.Duration {
	text := os.Getenv(variableDuration)
	if text == "" {
		return 18 * time.Second
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err, variableDuration)
	return d
}
