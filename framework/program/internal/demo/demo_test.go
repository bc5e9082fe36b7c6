package demo_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/program/internal/demo"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// short returns the configuration of a short demo.
func short() demo.Config {
	return demo.Config{For: time.Second, Rate: demo.DefaultRate, Drain: demo.DefaultDrain, JSON: true}
}

// run runs a demo and returns its report.
func run(t *testing.T, ctx context.Context, c demo.Config) demo.Report {
	t.Helper()
	var stderr bytes.Buffer
	defer func() {
		if t.Failed() {
			t.Log(stderr.String())
		}
	}()
	return runWith(t, ctx, c, &stderr)
}

func runWith(t *testing.T, ctx context.Context, c demo.Config, stderr io.Writer) demo.Report {
	t.Helper()
	var stdout bytes.Buffer
	require.NoError(t, demo.Run(ctx, c, &stdout, stderr), "%s", &stdout)
	var report demo.Report
	decoder := json.NewDecoder(&stdout)
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&report))
	return report
}

// requireDelivered checks that notifications were delivered and none is missing.
func requireDelivered(t *testing.T, r demo.Report) {
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
func requireNothingLost(t *testing.T, r demo.Report) {
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

func TestItDeliversOnPostgreSQLAndLeavesOtherTablesAlone(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	db, err := sql.Open("postgres", dsn)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), `
		CREATE TABLE outbox (id text);
		CREATE TABLE waybill_demonstration (id text);
		CREATE TABLE waybill_demo_orders (id text); -- an earlier demo's`)
	require.NoError(t, err)

	c := short()
	c.Database = dsn
	report := run(t, t.Context(), c)
	requireDelivered(t, report)
	require.Equal(t, "PostgreSQL", report.Database)

	var tables []string
	rows, err := db.QueryContext(t.Context(), `SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		tables = append(tables, name)
	}
	require.NoError(t, rows.Err())
	require.Equal(t, []string{"outbox", "waybill_demonstration"}, tables)
}

func TestItDeliversOnMySQLAndLeavesOtherTablesAlone(t *testing.T) {
	t.Parallel()
	c := short()
	c.Database = mysqltest.URL(t)
	db, err := mysql.OpenDB(c.Database)
	require.NoError(t, err)
	defer db.Close()
	for _, table := range []string{"outbox", "waybill_demonstration", "waybill_demo_orders"} {
		_, err = db.ExecContext(t.Context(), `CREATE TABLE `+table+` (id INT)`)
		require.NoError(t, err)
	}
	report := run(t, t.Context(), c)
	requireDelivered(t, report)
	require.Equal(t, "MySQL", report.Database)
	var tables string
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT GROUP_CONCAT(TABLE_NAME ORDER BY 1) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()`).Scan(&tables))
	require.Equal(t, "outbox,waybill_demonstration", tables)
}

func TestTwoDemosDoNotShareADatabase(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	db, err := sql.Open("postgres", dsn)
	require.NoError(t, err)
	defer db.Close()
	holder, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer holder.Close()
	_, err = holder.ExecContext(t.Context(), `SELECT pg_advisory_lock($1)`, int64(0x77617962696c6c))
	require.NoError(t, err)

	c := short()
	c.Database = dsn
	var stdout, stderr bytes.Buffer
	require.ErrorContains(t, demo.Run(t.Context(), c, &stdout, &stderr), "another demo is running in this database")
}

func TestAClosedShopDeliversWhatItCommitted(t *testing.T) {
	t.Parallel()
	c := short()
	c.For, c.Database = time.Hour, postgrestest.DSN(t)
	db, err := sql.Open("postgres", c.Database)
	require.NoError(t, err)
	defer db.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for orders := 0; orders == 0 && ctx.Err() == nil; time.Sleep(time.Millisecond) {
			_ = db.QueryRow(`SELECT count(*) FROM waybill_demo_orders`).Scan(&orders) // fails until the table exists
		}
		stop()
	}()
	requireNothingLost(t, run(t, ctx, c))
}

func TestRateZeroMeansAsFastAsPossible(t *testing.T) {
	t.Parallel()
	c := short()
	c.Rate = 0
	requireDelivered(t, run(t, t.Context(), c))
}

func TestItDeliversToTheUsersKafkaAndRemovesItsTopic(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t, kfake.SeedTopics(1, "orders"))
	c := short()
	c.Kafka = cluster.Brokers
	requireDelivered(t, run(t, t.Context(), c))
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Brokers...))
	require.NoError(t, err)
	defer client.Close()
	metadata, err := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), client)
	require.NoError(t, err)
	require.Len(t, metadata.Topics, 1)
	require.Equal(t, "orders", *metadata.Topics[0].Topic)
}

func TestReceiptsOfTheUsersMailServerAreCounted(t *testing.T) {
	t.Parallel()
	server, err := smtptest.Start(smtptest.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	c := short()
	c.SMTP = server.URL()
	report := run(t, t.Context(), c)
	requireDelivered(t, report)
	require.Equal(t, "email", report.Sinks[0].Sink)
	require.Equal(t, "receipts", report.Sinks[0].Counted)
	require.Equal(t, server.Count(), report.Sinks[0].Delivered)

	text, err := server.Messages()[0].Text()
	require.NoError(t, err)
	require.Regexp(t, `^Hello Customer \d+,\n\nGood to have you here\.\n$`, text, "the first mail")
}

func TestDeliveriesToAnUnreachableSinkAreMissing(t *testing.T) {
	t.Parallel()
	server, err := smtptest.Start(smtptest.Config{})
	require.NoError(t, err)
	c := short()
	c.SMTP, c.Drain = server.URL(), time.Second
	require.NoError(t, server.Close())

	var stdout, stderr bytes.Buffer
	require.ErrorIs(t, demo.Run(t.Context(), c, &stdout, &stderr), demo.ErrFailed)
	var report demo.Report
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &report))
	require.False(t, report.OK)
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
	require.NoError(t, demo.Run(t.Context(), c, &stdout, &stderr), "%s%s", &stdout, &stderr)
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
	err := demo.Config{For: -time.Second, Observe: "0.0.0.0:8090", Rate: -1, Database: "sqlite:x.db", Kafka: []string{"nowhere"}, SMTP: "http://localhost"}.Validate()
	for _, mistake := range []string{
		"--for is -1s", "--observe is \"0.0.0.0:8090\"", "--rate is -1", "--drain is 0s", "--database takes the address of a server", `--kafka: brokers: "nowhere"`, `--smtp: smtp: starts with "http"`,
	} {
		require.ErrorContains(t, err, mistake)
	}
	require.NoError(t, short().Validate())
}
