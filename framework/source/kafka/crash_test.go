//go:build kafka

package kafka_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/crashtest"
	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

const (
	crashLease     = 2 * time.Second
	crashThreshold = 16
	crashTime      = 40 * time.Second
	// crashCheckpoint is how long a checkpoint may take beside other suites, which use all of the machine.
	crashCheckpoint = 3 * time.Second
)

// TestTheSecondStageKeepsItsPromisesThroughCrashes forwards an outbox to Kafka, and from there to HTTP.
// Meanwhile forwarders are killed, stopped for longer than their leases and disconnected from their
// database, the broker restarts, and another topic gets more partitions.
func TestTheSecondStageKeepsItsPromisesThroughCrashes(t *testing.T) {
	cluster := kafkatest.Real(t)
	two := &stages{t: t, cluster: cluster, topic: cluster.CreateTopic(t, 6, nil), growing: newGrowing(t, cluster), folder: t.TempDir(), binary: filepath.Join(t.TempDir(), "waybill")}
	output, err := exec.Command("go", "build", "-tags", "failpoint", "-o", two.binary, "github.com/waybill-go/waybill/cmd/waybill").CombinedOutput()
	require.NoError(t, err, "%s", output)

	var harm sync.WaitGroup
	harm.Go(func() { // on a busy machine it ends in the calm, which lasts until all records have arrived
		for range 2 {
			if !pace.Sleep(t.Context(), crashTime/6) {
				return
			}
			cluster.Stop(t)
			cluster.Start(t)
		}
	})
	growing, end := context.WithTimeout(t.Context(), crashTime)
	defer end()
	harm.Go(func() { two.growing.run(growing, t, cluster) })
	report, err := crashtest.Run(t.Context(), crashtest.Config{
		Forwarder: two.second, Upstream: two.between, Lease: crashLease, Threshold: crashThreshold, Checkpoint: crashCheckpoint, Duration: crashTime, Gap: time.Second, Calm: 2 * time.Minute, Log: t.Output(),
		RecordTimes: true, Sequences: 2, Steps: []string{string(failpoint.Grow), string(failpoint.Lease), string(failpoint.Checkpoint), string(failpoint.Park), string(failpoint.Resume)},
	})
	harm.Wait()
	t.Log(report)
	require.NoError(t, err)
	require.Positive(t, report.Committed)
	require.NotEmpty(t, report.Faults)
	require.NoError(t, two.growing.arrived())
	require.Greater(t, len(two.growing.written), firstPartitions, "partitions were added")
	t.Logf("%d records in %d partitions of the topic that has grown", len(two.growing.came), len(two.growing.written))
}

// stages are the two stages of a crash test.
type stages struct {
	t              *testing.T
	cluster        *kafkatest.Cluster
	topic          string
	growing        *growing
	folder, binary string
	begun          sync.Once
	forwarders     atomic.Int64
}

// second returns the command of a forwarder of the second stage. The first call starts the first stage.
func (s *stages) second(dsn, endpoint string) *exec.Cmd {
	name := fmt.Sprintf("forwarder-%03d", s.forwarders.Add(1))
	config := s.write(name, fmt.Sprintf(`
database: %q
outbox: {prefix: second, payload: bytea}
source: {kafka: {brokers: [%q], topics: [%q, %q]}}
forwarder: {name: %s, lease: %s, shutdown_timeout: 10s}
sinks:
  recorder:
    kind: http
    with: {url: %q, timeout: 3s}
    parallelism: {threshold: %d}
    retry: {max_attempts: 1000, initial: 50ms, max: 1s}
  grown: {kind: http, with: {url: %q, timeout: 3s}, retry: {max_attempts: 1000, initial: 50ms, max: 1s}}
routes: {"crash.*": [recorder], "growing.*": [grown]}
`, dsn, s.cluster.Brokers[0], s.topic, s.growing.topic, name, crashLease, endpoint, crashThreshold, s.growing.receiver.URL))
	s.begun.Do(func() {
		output, err := exec.Command(s.binary, "migrate", "-c", config).CombinedOutput()
		require.NoError(s.t, err, "%s", output)
		s.first(dsn)
	})
	return s.command(name, "forward", "-c", config)
}

// first forwards the outbox to Kafka until the test ends.
func (s *stages) first(dsn string) {
	config := s.write("first", fmt.Sprintf(`
database: %q
sinks: {log: {kind: kafka, with: {brokers: [%q], topic: %q}, retry: {max_attempts: 1000, initial: 50ms, max: 1s}}}
routes: {"crash.*": [log]}
`, dsn, s.cluster.Brokers[0], s.topic))
	command := s.command("first", "forward", "-c", config)
	require.NoError(s.t, command.Start())
	s.t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGKILL) // its database no longer exists
		_ = command.Wait()
	})
}

// between returns how often each notification is in the topic, once everything of the other topic has
// arrived.
func (s *stages) between(context.Context) (map[string]int, error) {
	if err := s.growing.arrived(); err != nil {
		return nil, err
	}
	times := make(map[string]int)
	for _, r := range s.cluster.ConsumeAll(s.t, s.topic, 0) {
		for _, h := range r.Headers {
			if h.Key == "id" {
				times[string(h.Value)]++
			}
		}
	}
	return times, nil
}

func (s *stages) write(name, config string) (path string) {
	path = filepath.Join(s.folder, name+".yaml")
	require.NoError(s.t, os.WriteFile(path, []byte(config), 0o600))
	return path
}

func (s *stages) command(name string, args ...string) *exec.Cmd {
	log, err := os.Create(filepath.Join(s.folder, name+".log"))
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		require.NoError(s.t, log.Close())
		if text, err := os.ReadFile(log.Name()); err == nil && s.t.Failed() {
			s.t.Logf("%s ends with %s", name, text[max(0, len(text)-20_000):])
		}
	})
	command := exec.Command(s.binary, args...)
	command.Env, command.Stderr = []string{}, log
	return command
}
