package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// short returns the configuration of a short demo.
func short() Config {
	return Config{For: time.Second, Rate: DefaultRate, JSON: true}
}

// run runs a demo and returns its report.
func run(t *testing.T, ctx context.Context, c Config) Report {
	t.Helper()
	var stderr bytes.Buffer
	defer func() {
		if t.Failed() {
			t.Log(stderr.String())
		}
	}()
	return runWith(t, ctx, c, &stderr)
}

func runWith(t *testing.T, ctx context.Context, c Config, stderr io.Writer) Report {
	t.Helper()
	var stdout bytes.Buffer
	require.NoError(t, Run(ctx, c, &stdout, stderr), "%s", &stdout)
	var report Report
	decoder := json.NewDecoder(&stdout)
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&report))
	return report
}

// requireDelivered checks that notifications were delivered and none is missing.
func requireDelivered(t *testing.T, r Report) {
	t.Helper()
	requireNothingLost(t, r)
	require.NotZero(t, r.Transactions.Committed)
	require.NotZero(t, r.Notifications.RolledBack, "some notifications are rolled back")
	for _, s := range r.Sinks {
		require.NotZero(t, s.Expected, s.Sink)
		require.Positive(t, s.Latency.P50, s.Sink)
		require.GreaterOrEqual(t, s.Latency.P99, s.Latency.P50, s.Sink)
	}
}

// requireNothingLost checks that nothing is missing, even if nothing was published.
func requireNothingLost(t *testing.T, r Report) {
	t.Helper()
	require.True(t, r.OK)
	require.Len(t, r.Sinks, 3)
	for _, s := range r.Sinks {
		require.Equal(t, s.Expected, s.Delivered, s.Sink)
	}
}

func TestItDeliversOnSQLiteAndLeavesNothingBehind(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	t.Setenv("TMPDIR", t.TempDir())
	requireDelivered(t, run(t, t.Context(), short()))
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left)
	goleak.VerifyNone(t, ignore, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick")) // sarama never stops this goroutine
}

func TestAClosedShopDeliversWhatItCommitted(t *testing.T) {
	t.Parallel()
	c := short()
	c.For = time.Hour
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	d := newDemo(c, io.Discard, io.Discard)
	defer func() { require.NoError(t, d.close()) }()
	require.NoError(t, d.open(ctx))
	go func() {
		for committed := 0; committed == 0 && ctx.Err() == nil; time.Sleep(time.Millisecond) {
			committed, _ = d.ledger.count()
		}
		stop()
	}()
	report, err := d.play(ctx)
	require.NoError(t, err)
	requireNothingLost(t, report)
}

func TestRateZeroMeansAsFastAsPossible(t *testing.T) {
	t.Parallel()
	c := short()
	c.Rate = 0
	requireDelivered(t, run(t, t.Context(), c))
}

func TestDeliveriesToAnUnreachableSinkAreMissing(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	d := newDemo(short(), &stdout, &stderr)
	defer func() { require.NoError(t, d.close()) }()
	d.patience = time.Second
	require.NoError(t, d.open(t.Context()))
	require.NoError(t, d.receivers[mailSink].Close())
	d.receivers[mailSink].Close = func() error { return nil }
	report, err := d.play(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, report.conclude(true, &stdout), ErrFailed)
	mail := report.Sinks[0]
	require.Positive(t, mail.Expected)
	require.Zero(t, mail.Delivered)
	require.Equal(t, mail.Expected, mail.Missing.Count)
	require.Contains(t, stderr.String(), "sink is unavailable", "the reason is shown")
}

func TestTheReportIsPrintedForPeople(t *testing.T) {
	t.Parallel()
	c := short()
	c.JSON = false
	var stdout, stderr bytes.Buffer
	require.NoError(t, Run(t.Context(), c, &stdout, &stderr), "%s%s", &stdout, &stderr)
	require.Contains(t, stdout.String(), "On SQLite, at ")
	require.Contains(t, stdout.String(), "\nOK: every committed notification reached each of its sinks")
	require.Empty(t, stderr.String())
}

func TestTheDashboardShowsTheShopUntilItIsStopped(t *testing.T) {
	t.Parallel()
	c := short()
	c.For, c.Observe = 0, "127.0.0.1:0"
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	lines, stderr := io.Pipe()
	defer lines.Close()
	looked := make(chan error, 1)
	go func() {
		defer stop()
		looked <- lookAt(ctx, lines)
	}()
	r := runWith(t, ctx, c, stderr)
	require.NoError(t, <-looked)
	requireNothingLost(t, r)
}

// lookAt reads the dashboard's address from the output, and waits until the dashboard shows the shop's
// sinks.
func lookAt(ctx context.Context, stderr io.Reader) error {
	line, err := bufio.NewReader(stderr).ReadString('\n')
	if err != nil {
		return err
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	_, url, _ := strings.Cut(strings.TrimSpace(line), "The dashboard: ")
	for ctx.Err() == nil {
		response, err := http.Get(url)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || strings.Contains(string(text), "kafka") && strings.Contains(string(text), "mail") {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return ctx.Err()
}

func TestMistakesAreReportedAllAtOnce(t *testing.T) {
	t.Parallel()
	err := Config{For: -time.Second, Observe: "0.0.0.0:8090", Rate: -1}.Validate()
	for _, mistake := range []string{
		"--for is -1s", "--observe is \"0.0.0.0:8090\"", "--rate is -1",
	} {
		require.ErrorContains(t, err, mistake)
	}
	require.NoError(t, short().Validate())
}
