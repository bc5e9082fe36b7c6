package crashtest_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/crashtest"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/internal/testserver"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// variableSoak is how long the soak test runs.
const variableSoak = "WAYBILL_SOAK"

// judgedSoak is the least length of a soak in which nothing may grow. The server is crashed so often that it vacuums
// rarely, and its tables take a third of that time to have their size.
const judgedSoak = time.Hour

// sampleEvery is the pause between two looks at what could grow.
const sampleEvery = 15 * time.Second

// sample is what could grow, in the forwarder that no fault ends, and in the database.
type sample struct {
	at                           time.Duration
	resident, goroutines, files  float64
	connections, logRows, parked int
	bytes                        int64 // of the outbox's tables and indexes
}

// TestNothingGrowsWhileForwardersWorkThroughFaults runs four forwarders with all faults, on PostgreSQL, to Kafka and HTTP.
func TestNothingGrowsWhileForwardersWorkThroughFaults(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv(variableSoak))
	if err != nil {
		t.Skipf("make soak sets %s to a duration", variableSoak)
	}
	cluster := kafkatest.Real(t)
	topic := cluster.CreateTopic(t, 6, map[string]string{"segment.ms": "60000", "retention.ms": "60000"})
	survivor := &watched{t: t, began: time.Now()}
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		for pace.Sleep(ctx, sampleEvery) {
			survivor.look(ctx)
		}
	})
	report, err := crashtest.Run(t.Context(), crashtest.Config{
		Forwarder: program(t, func(file, dsn, endpoint string) {
			more := fmt.Sprintf("  log: {kind: kafka, with: {brokers: [%q], topic: %q}, retry: {max_attempts: 100000, initial: 50ms, max: 1s}}\n", cluster.Brokers[0], topic)
			if strings.HasSuffix(endpoint, "/0") {
				more += "observe: {address: " + survivor.observed(dsn) + "}\n"
			}
			configure(t, file, dsn, endpoint, more, "log")
		}),
		Forwarders: 4, Survivor: true, Sequences: 2, Steps: stepsOfForwarders, Reload: reload, Acts: people(t),
		Lease: lease, Threshold: threshold, Checkpoint: checkpoint, Duration: length, Gap: 2 * time.Second, Calm: 5 * time.Minute, RecordTimes: true,
		Seed: seed(t), Log: t.Output(),
	})
	stop()
	watching.Wait()
	t.Log(report)
	t.Log(survivor)
	require.NoError(t, err)
	if length >= judgedSoak {
		survivor.requireFlat()
	}
}

// watched is the forwarder that no fault ends, and its database.
type watched struct {
	t     *testing.T
	began time.Time

	mu           sync.Mutex
	address, dsn string
	samples      []sample
}

// observed returns the address of the forwarder's metrics.
func (w *watched) observed(dsn string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	port, err := testserver.FreePort()
	require.NoError(w.t, err)
	w.address, w.dsn = fmt.Sprintf("127.0.0.1:%d", port), dsn
	return w.address
}

// look takes a sample, unless a fault prevents it.
func (w *watched) look(ctx context.Context) {
	w.mu.Lock()
	address, dsn := w.address, w.dsn
	w.mu.Unlock()
	s := sample{at: time.Since(w.began)}
	if address == "" || s.metrics(ctx, "http://"+address+"/metrics") != nil || s.database(ctx, dsn) != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.samples = append(w.samples, s)
}

func (s *sample) metrics(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	figures := map[string]*float64{"process_resident_memory_bytes": &s.resident, "go_goroutines": &s.goroutines, "process_open_fds": &s.files}
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if figure := figures[name]; figure != nil {
			if *figure, err = strconv.ParseFloat(text, 64); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *sample) database(ctx context.Context, dsn string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	db, err := postgres.OpenDB(dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()),
		(SELECT count(*) FROM outbox), (SELECT count(*) FROM outbox_parked),
		(SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relname LIKE 'outbox%')`).
		Scan(&s.connections, &s.logRows, &s.parked, &s.bytes)
}

// String returns a table of about twelve of the samples.
func (w *watched) String() string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "after\tmemory, MB\tgoroutines\tfiles\tconnections\trows of the log\tparked\ttables, MB\t")
	step := max(1, len(w.samples)/12)
	for i := 0; i < len(w.samples); i += step {
		s := &w.samples[i]
		fmt.Fprintf(table, "%s\t%.0f\t%.0f\t%.0f\t%d\t%d\t%d\t%.1f\t\n", s.at.Round(time.Second), s.resident/1e6, s.goroutines, s.files,
			s.connections, s.logRows, s.parked, float64(s.bytes)/1e6)
	}
	_ = table.Flush() // into a Builder
	return "\n" + b.String()
}

// requireFlat requires that the last third of the samples has hardly more than the second one, of everything. The first
// third warms up.
func (w *watched) requireFlat() {
	third := len(w.samples) / 3
	require.Positive(w.t, third, "too few samples")
	for name, of := range map[string]func(*sample) float64{
		"memory":      func(s *sample) float64 { return s.resident },
		"goroutines":  func(s *sample) float64 { return s.goroutines },
		"files":       func(s *sample) float64 { return s.files },
		"connections": func(s *sample) float64 { return float64(s.connections) },
		"tables":      func(s *sample) float64 { return float64(s.bytes) },
	} {
		mean := func(samples []sample) (sum float64) {
			for i := range samples {
				sum += of(&samples[i]) / float64(len(samples))
			}
			return sum
		}
		before, after := mean(w.samples[third:2*third]), mean(w.samples[2*third:])
		require.Less(w.t, after, 1.25*before, "%s: the last third has %.0f, the one before %.0f", name, after, before)
	}
}
