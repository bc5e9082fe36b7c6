package program

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/sinks"
)

// scheduling is a configuration with a schedule.
func (o outbox) scheduling(url, when string) string {
	return fmt.Sprintf(`
database: %q
sinks: {partner: {kind: http, with: {url: %q}}}
routes: {"report.*": [partner]}
schedules: {report: {%s, type: report.due, payload: {at: "{{tick}}"}}}
`, o.address, url, when)
}

func TestForwardersPublishEachTickOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		destination := newReceiver(t)
		file := writeFile(t, o.scheduling(destination.URL, "every: 1s, missed: all"))
		forwarders := []*forwarding{startForward(t, "-c", file), startForward(t, "-c", file)}
		require.Eventually(t, func() bool { return o.countTicks(t) >= 3 }, patience, 20*time.Millisecond)
		for _, f := range forwarders {
			r := f.end(t)
			require.Zero(t, r.code, r.stderr)
			require.NotContains(t, r.stderr, "level=ERROR")
		}
		rows, err := o.db.QueryContext(t.Context(), `SELECT metadata FROM outbox ORDER BY "offset"`)
		require.NoError(t, err)
		defer rows.Close()
		var last time.Time
		for rows.Next() {
			var text []byte
			var metadata map[string]string
			require.NoError(t, rows.Scan(&text))
			require.NoError(t, json.Unmarshal(text, &metadata))
			require.Equal(t, "report", metadata["schedule"])
			tick, err := time.Parse(time.RFC3339, metadata["tick"])
			require.NoError(t, err)
			if !last.IsZero() {
				require.Equal(t, last.Add(time.Second), tick, "each once, in order")
			}
			last = tick
		}
		require.NoError(t, rows.Err())
	})
}

func (o outbox) countTicks(t *testing.T) int { return o.count(t, `SELECT count(*) FROM outbox`) }

func TestSIGHUPTakesEffectWhileTheProgramWaitsForItsDatabase(t *testing.T) {
	t.Parallel()
	database := postgrestest.DSN(t)
	require.Zero(t, waybill(t, "migrate", "--database", database).code)
	proxy := postgrestest.StartProxy(t, database)
	require.NoError(t, proxy.Retarget("postgres://127.0.0.1:1/nothing"))
	destination := newReceiver(t)
	o := outbox{address: proxy.DSN()}
	file := writeFile(t, o.scheduling(destination.URL, `cron: "@yearly"`))
	f := start(t, "forward", "-c", file)
	f.awaitLine(t, "the database cannot be reached")
	require.NoError(t, os.WriteFile(file, []byte(o.scheduling(destination.URL, "every: 1s")), 0o600))
	f.signal(t, syscall.SIGHUP)
	require.NoError(t, proxy.Retarget(database))
	f.awaitLine(t, "schedules=true")
	destination.await(t, 1)
	f.signal(t, syscall.SIGTERM)
	require.Zero(t, f.wait())
}

// hangingUp is the variable that makes the test program one whose sinks of the kind hangs-up send it a SIGHUP when the
// first of them is configured.
const hangingUp = "WAYBILL_TEST_HANGS_UP"

func hangUp() int {
	var once sync.Once
	kind := sinks.NewKind("hangs-up", "nowhere", func(sinks.Instance, struct{}) (sinks.Sink, error) {
		once.Do(func() { _ = syscall.Kill(os.Getpid(), syscall.SIGHUP) })
		return sinks.Func(func(context.Context, *notification.Delivery) (notification.Receipt, error) { return "", nil }), nil
	})
	return Run(context.Background(), Call{os.Args[1:], nil, os.Stdout, os.Stderr}, Kinds(kind))
}

func TestSIGHUPWhileTheConfigurationIsReadIsAppliedAfterwards(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.migrate(t)
	file := writeFile(t, fmt.Sprintf("database: %q\nsinks: {a: {kind: hangs-up}}\nroutes: {x: [a]}\n", o.address))
	f := startCommand(t, exec.Command(os.Args[0], "forward", "-c", file), []string{hangingUp + "=1"})
	f.awaitLine(t, "the configuration is unchanged")
	f.kill(t)
}

func TestSIGHUPAppliesChangedSchedules(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		destination := newReceiver(t)
		file := writeFile(t, o.scheduling(destination.URL, `cron: "@yearly"`))
		f := start(t, "forward", "-c", file)
		require.Eventually(t, func() bool {
			return o.count(t, `SELECT count(*) FROM outbox_schedules WHERE spec = '@yearly UTC'`) == 1
		}, patience, 20*time.Millisecond)
		require.NoError(t, os.WriteFile(file, []byte(o.scheduling(destination.URL, `cron: "0 0 31 2 *"`)), 0o600))
		f.signal(t, syscall.SIGHUP)
		f.awaitLine(t, "is never due")
		require.NoError(t, os.WriteFile(file, []byte(o.scheduling(destination.URL, "every: 1s")), 0o600))
		f.signal(t, syscall.SIGHUP)
		f.awaitLine(t, "schedules=true")
		destination.await(t, 1)
		f.signal(t, syscall.SIGTERM)
		require.Zero(t, f.wait())
	})
}

func TestSchedulesAreListedAndChanged(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		command := func(code int, args ...string) result {
			t.Helper()
			r := waybill(t, append(args, "--database", o.address)...)
			require.Equal(t, code, r.code, r.stdout+r.stderr)
			return r
		}
		require.Equal(t, "no schedules yet\n", command(0, "schedules").stdout)
		require.Equal(t, "[]\n", command(0, "schedules", "--json").stdout)
		require.Contains(t, command(exitFailed, "schedules", "pause", "report").stderr, `unknown schedule "report": the outbox has none yet`)
		require.Contains(t, command(exitUsage, "schedules", "pause").stderr, "name a schedule")
		require.Contains(t, command(exitUsage, "schedules", "pause", "a", "b").stderr, `unexpected argument "b"`)

		destination := newReceiver(t)
		f := startForward(t, "-c", writeFile(t, o.scheduling(destination.URL, `cron: "@yearly"`)))
		require.Eventually(t, func() bool { return o.count(t, `SELECT count(*) FROM outbox_schedules WHERE spec <> ''`) == 1 }, patience, 20*time.Millisecond)
		require.Regexp(t, `report +@yearly UTC +- +\d{4}-01-01 00:00:00Z +one +-`, command(0, "schedules").stdout)
		require.Equal(t, "paused report\n", command(0, "schedules", "pause", "report").stdout)
		require.Equal(t, "report was paused already\n", command(0, "schedules", "pause", "report").stdout)
		require.Regexp(t, `one +paused`, command(0, "schedules").stdout)
		require.Equal(t, "requested a tick of report\n", command(0, "schedules", "run", "report", "--by", "ada").stdout)
		destination.await(t, 1)
		require.JSONEq(t, `{"schedule": "report", "changed": true}`, command(0, "schedules", "resume", "report", "--json").stdout)
		require.Equal(t, "report was not paused\n", command(0, "schedules", "resume", "report").stdout)
		require.Contains(t, command(exitFailed, "schedules", "run", "repert").stderr, `unknown schedule "repert": the outbox has report`)
		r := f.end(t)
		require.Zero(t, r.code, r.stderr)

		var views []admin.ScheduleView
		require.NoError(t, json.Unmarshal([]byte(command(0, "schedules", "--json").stdout), &views))
		require.Len(t, views, 1)
		require.False(t, views[0].LastTick.IsZero())
		require.False(t, views[0].Late)
		_, err := o.db.ExecContext(t.Context(), `UPDATE outbox_schedules SET next_tick = '2001-02-03T04:05:06.000000Z'`)
		require.NoError(t, err)
		require.Contains(t, command(0, "schedules").stdout, "late: does a process run it?")
		require.Equal(t, "forgot report\n", command(0, "schedules", "forget", "report").stdout)
		require.Equal(t, "no schedules yet\n", command(0, "schedules").stdout)
		actions := command(0, "actions").stdout
		for _, want := range []string{"pause schedule", "resume schedule", "run schedule", "forget schedule", `"report"}`, "ada"} {
			require.Contains(t, actions, want)
		}
		require.NotContains(t, actions, "repert")
	})
}

func TestTheGrantsOfASchedulerAreSufficient(t *testing.T) {
	t.Parallel()
	for name, partitionRows := range map[string]string{"one table": "0", "partitioned": "10"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := databases["postgres"](t)
			r := waybill(t, "migrate", "--partition-rows", partitionRows, "--database", o.address)
			require.Zero(t, r.code, r.stderr)
			forwarder, scheduler, operator := o.role(t, "forwarder"), o.role(t, "scheduler"), o.role(t, "operator")
			// A forwarder with schedules has one role with both duties.
			_, err := o.db.ExecContext(t.Context(), `GRANT `+pq.QuoteIdentifier(roleOf(t, scheduler))+` TO `+pq.QuoteIdentifier(roleOf(t, forwarder)))
			require.NoError(t, err)
			destination := newReceiver(t)
			with := o
			with.address = forwarder
			f := startForward(t, "-c", writeFile(t, with.scheduling(destination.URL, "every: 1s")))
			destination.await(t, 2)
			r = f.end(t)
			require.Zero(t, r.code, r.stderr)
			require.NotContains(t, r.stderr, "permission denied")
			for _, args := range [][]string{{"pause", "report"}, {"run", "report"}, {"forget", "report"}} {
				r := waybill(t, append(append([]string{"schedules"}, args...), "--database", operator)...)
				require.Zero(t, r.code, r.stderr)
			}
			db, err := postgres.OpenDB(scheduler)
			require.NoError(t, err)
			defer db.Close()
			s, err := postgres.Open(t.Context(), db, postgres.Config{})
			require.NoError(t, err)
			free, err := s.Claim(t.Context(), db, store.Claim{Type: "report.due", Key: "today", Period: time.Hour}) // Make may return a unique notification
			require.NoError(t, err)
			require.True(t, free)
			for _, refused := range []string{`DELETE FROM outbox_schedules`, `SELECT payload FROM outbox`, `SELECT payload FROM outbox_parked`} {
				_, err := db.ExecContext(t.Context(), refused)
				require.ErrorContains(t, err, "permission denied", refused)
			}
		})
	}
}
