package crashtest_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/crashtest"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
)

// These variables make a run longer, repeat a run, and keep the forwarders' logs.
const (
	variableSeed     = "WAYBILL_CRASH_SEED"
	variableDuration = "WAYBILL_CRASH_DURATION"
	variableFaults   = "WAYBILL_CRASH_FAULTS" // comma-separated
	variableLogs     = "WAYBILL_CRASH_LOGS"
)

const (
	lease     = 2 * time.Second
	threshold = 16
	timeout   = 3 * time.Second
	// checkpoint is how long a checkpoint may take beside other suites, which use all of the machine.
	checkpoint = 3 * time.Second
)

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

// waybillForward returns commands of the real program.
func waybillForward(t *testing.T) func(dsn, endpoint string) *exec.Cmd {
	folder := os.Getenv(variableLogs)
	if folder == "" {
		folder = t.TempDir()
	}
	var count atomic.Int64
	return func(dsn, endpoint string) *exec.Cmd {
		name := filepath.Join(folder, fmt.Sprintf("forwarder-%03d", count.Add(1)))
		config := fmt.Sprintf(`
database: %q
outbox: {lanes: 4}
forwarder: {name: %q, lease: %s, shutdown_timeout: 10s}
sinks:
  recorder:
    kind: http
    with: {url: %q, timeout: %s}
    parallelism: {threshold: %d}
    retry: {max_attempts: 1000, initial: 50ms, max: 1s}
routes:
  "crash.*": [recorder]
`, dsn, filepath.Base(name), lease, endpoint, timeout, threshold)
		require.NoError(t, os.WriteFile(name+".yaml", []byte(config), 0o600))
		log, err := os.Create(name + ".log")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, log.Close()) })
		command := exec.Command(binary, "forward", "-c", name+".yaml")
		command.Env = []string{} // without the developer's environment
		command.Stderr = log
		return command
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
