package bench

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/benchmarks/result"
)

func TestSettingsThatSpoilFiguresAreWarnings(t *testing.T) {
	t.Parallel()
	good := map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "autovacuum": "on", "debug_assertions": "off",
		"log_statement": "none", "log_min_duration_statement": "-1", "shared_buffers": "128MB",
	}
	for name, c := range map[string]struct{ setting, value, warns string }{
		"nothing":                   {"", "", ""},
		"fsync":                     {"fsync", "off", "fsync is off: commits do not wait for the disk"},
		"synchronous_commit":        {"synchronous_commit", "off", "synchronous_commit is off: commits do not wait"},
		"synchronous_commit, local": {"synchronous_commit", "local", ""},
		"a standby that replays":    {"synchronous_commit", "remote_apply", ""},
		"torn pages":                {"full_page_writes", "off", "full_page_writes is off"},
		"a debug build":             {"debug_assertions", "on", "built for debugging"},
		"a log of all statements":   {"log_statement", "all", "log_statement is all: the server logs statements"},
		"a log of slow statements":  {"log_min_duration_statement", "0", "log_min_duration_statement is 0"},
		"anything else":             {"shared_buffers", "1MB", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings := make(map[string]string)
			for key, value := range good {
				settings[key] = value
			}
			settings[c.setting] = c.value
			r := new(result.Result)
			warnOfSettings(r, settings, postgresExpectations)
			if c.warns == "" {
				require.Empty(t, r.Warnings)
				return
			}
			require.Len(t, r.Warnings, 1)
			require.Contains(t, r.Warnings[0], c.warns)
		})
	}
}

func TestABusyMachineIsAWarning(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		machine result.Machine
		stolen  float64
		warns   []string
	}{
		"nothing":       {result.Machine{Processors: 4, Busy: 0.05}, 0.01, nil},
		"busy":          {result.Machine{Processors: 4, Busy: 0.5}, 0, []string{"the machine is busy: other processes use 50 % of its processors; wait, or stop them"}},
		"stolen":        {result.Machine{Processors: 4}, 0.25, []string{"the host of this virtual machine is busy: it took away 25 % of the processors' time"}},
		"one processor": {result.Machine{Processors: 1}, 0, []string{"the program may use only one processor, which publishers, forwarder and receivers share"}},
	} {
		r := new(result.Result)
		warnOfMachine(r, c.machine, c.stolen)
		require.Equal(t, c.warns, r.Warnings, name)
	}
}

func TestTheLoadOfOtherProcessesIsMeasured(t *testing.T) {
	t.Parallel()
	var done atomic.Bool
	defer done.Store(true)
	go func() {
		for n := 0; !done.Load(); n++ { // keeps a processor busy
		}
	}()
	m := (&bench{watchFor: 300 * time.Millisecond}).inspectMachine(t.Context(), new(result.Result))
	require.Positive(t, m.Busy)
	require.LessOrEqual(t, m.Busy, 1.0)
	require.Positive(t, m.MemoryBytes)
}

func TestRunsThatAreFarApartAreAWarning(t *testing.T) {
	t.Parallel()
	r := &result.Result{Settings: result.Settings{Runs: 3}}
	near, apart := result.Case{Name: "near"}, result.Case{Name: "apart"}
	for _, v := range []float64{100, 101, 110} {
		near.Add(result.Figure{Quantity: throughput, Value: v})
	}
	for _, v := range []float64{100, 140, 200} {
		apart.Add(result.Figure{Quantity: throughput, Value: v})
	}
	r.Scenarios = []result.Scenario{{Name: "drain", Cases: []result.Case{near, apart}}}
	judge(r)
	require.True(t, r.OK)
	require.Len(t, r.Warnings, 1)
	require.Contains(t, r.Warnings[0], "1 of 2 cases (such as drain, apart: 100 to 200 notifications/s)")
	require.Equal(t, []float64{140, 100, 200}, []float64{r.Scenarios[0].Cases[1].Metrics[0].Median, r.Scenarios[0].Cases[1].Metrics[0].Min, r.Scenarios[0].Cases[1].Metrics[0].Max})
}

func TestABacklogThatDoesNotFitInMemoryIsAWarning(t *testing.T) {
	t.Parallel()
	of := func(rows float64) *result.Result {
		c := result.Case{Name: "noop"}
		c.Add(result.Figure{Quantity: rowsOf, Value: rows})
		r := &result.Result{Scenarios: []result.Scenario{{Name: "drain", Cases: []result.Case{c}}}}
		r.Settings = result.Settings{Runs: DefaultRuns, PayloadBytes: 350}
		r.Machine.MemoryBytes = 1e9
		judge(r)
		return r
	}
	require.Empty(t, of(900_000).Warnings)
	require.Equal(t, []string{"the backlog takes about 600 MB, and the machine has 1.0 GB of memory: each run reads different parts of it from the disk"},
		of(1_200_000).Warnings)
}
