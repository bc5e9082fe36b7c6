package doctor

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/capture"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// Each check has at least one test that breaks what it checks.

func TestWhatIsBrokenInEitherDatabaseIsFound(t *testing.T) {
	t.Parallel()
	member := func(x *fixture, owner string, running store.Running) {
		x.Helper()
		require.NoError(x, x.examined.Heartbeat(x.Context(), store.Member{Owner: owner, Sinks: []string{"partner"}, Running: running}, time.Hour))
	}
	for name, c := range map[string]struct {
		id     string
		broken func(x *fixture)
		want   Status
		text   string
	}{
		"index": {"indexes", func(x *fixture) { x.exec(`DROP INDEX outbox_parked_due`) }, Warn, "outbox_parked_due is missing"},
		"retention, kept": {"retention", func(x *fixture) {
			x.forward()()
			x.publish("order.placed", 100*time.Hour)
		}, Warn, "partner keeps rows from offset 1 on, 4 days old: not settled"},
		"retention, not removed": {"retention", func(x *fixture) { x.publish("order.placed", 100*time.Hour) }, Warn, "no forwarder removes it"},
		"versions": {"forwarders", func(x *fixture) {
			member(x, "a", store.Running{Version: "v1"})
			member(x, "b", store.Running{Version: "v2"})
		}, Warn, `2 forwarders; their versions differ: v1 \(a\), v2 \(b\)`},
		"settings": {"forwarders", func(x *fixture) {
			member(x, "a", store.Running{Settings: "abc"})
			member(x, "b", store.Running{})
		}, Warn, `configurations differ: not reported \(b\), abc \(a\)`},
		"lanes": {"lanes", func(x *fixture) {
			x.forward()()
			x.exec(`UPDATE outbox_cursors SET lease_until = $1`, ago(time.Hour))
		}, Fail, `0 forwarders; lanes without a forwarder: _unrouted: 1, for 1h0m; partner: 1, for 1h0m`},
		"too many lanes": {"lanes", func(x *fixture) {
			_, err := x.examined.Cut(x.Context(), "partner", 200, "")
			require.NoError(x, err)
			x.exec(`UPDATE outbox_cursors SET owner = 'a', lease_until = $1`, ago(-time.Hour))
		}, Warn, "partner has more than 128 lanes for 0 forwarders: each reads its backlog by itself"},
		"sink that is gone": {"lanes", func(x *fixture) {
			x.forward()()
			x.exec(`UPDATE outbox_cursors SET lease_until = $1 WHERE sink = 'partner'`, ago(time.Hour))
			x.Forwarder.Sinks = map[string]forwarder.Sink{"other": {}}
		}, Warn, "any more: partner"},
		"slow checkpoints":   {"lease", func(x *fixture) { member(x, "a", store.Running{Checkpoint: 4 * time.Second}) }, Warn, "a checkpoint of a took 4s; the lease is 15s"},
		"slower checkpoints": {"lease", func(x *fixture) { member(x, "a", store.Running{Checkpoint: 14 * time.Second}) }, Fail, "took 14s"},
		"lag": {"lag", func(x *fixture) {
			x.forward()()
			x.publish("order.placed", 10*time.Minute)
		}, Warn, "partner from offset 1 on, 10m old"},
		"overdue": {"overdue", func(x *fixture) { x.park("partner", "retrying", "a", ago(10*time.Minute)) }, Warn, "partner: 1, for up to 10m"},
		"dead": {"dead", func(x *fixture) {
			x.park("partner", "dead", "a", nil)
			x.park("partner", "dead", "b", nil)
		}, Warn, "dead: partner: 2$"},
		"halted": {"halted-keys", func(x *fixture) {
			x.park("partner", "dead", "a", nil)
			x.park("partner", "dead", "a", nil)
			x.park("partner", "dead", "", nil)
			x.Forwarder.Sinks["partner"] = forwarder.Sink{OnDead: forwarder.OnDeadHalt}
		}, Warn, "halted: partner: 1 of its keys"},
		"no configuration": {"halted-keys", func(x *fixture) { x.Forwarder = nil }, Skip, "no configuration says"},
		"unrouted":         {"unrouted", func(x *fixture) { x.park(store.SinkUnrouted, "dead", "a", nil) }, Warn, "_unrouted: 1 without a route"},
		"hooks": {"hooks", func(x *fixture) {
			x.park("partner", "settling", "a", ago(0))
			x.exec(`UPDATE outbox_parked SET hook_failures = 3, hook_error = 'no such ledger'`)
		}, Warn, "a hook fails for partner: 1"},
		"type": {"types", func(x *fixture) {
			x.publish("order.moved", 0)
			x.publish("order.placed", 0)
			x.exec(`UPDATE outbox SET version = 7 WHERE type = 'order.placed'`)
		}, Warn, `cannot decode order.moved v1 \(1\); order.placed v7 \(1\)`},
		"no types": {"types", func(x *fixture) { x.Forwarder.Types = nil }, Skip, "no types registered"},
		"schedule": {"schedules", func(x *fixture) {
			require.NoError(x, x.examined.AddSchedule(x.Context(), "daily"))
			x.exec(`UPDATE outbox_schedules SET next_tick = $1`, ago(time.Hour))
			x.Schedules = []string{"daily", "weekly"}
		}, Warn, "daily has been due for 1h0m; weekly has never run"},
		"alerts that no forwarder judges": {"alerts", func(x *fixture) { x.Alerts.To = route.To("partner") }, Warn, "no forwarder has looked"},
		"an alert for no one": {"alerts", func(x *fixture) {
			x.Alerts.To = route.To("partner")
			require.NoError(x, x.examined.AddSchedule(x.Context(), store.ScheduleAlerts))
			x.exec(`UPDATE outbox_schedules SET spec = '{"raised": {"dead partner": {"sink": "partner", "text": "partner: 1 delivery dead"}}}'`)
		}, Warn, "names only the sink that the alert is about: partner: 1 delivery dead"},
		"sinks": {"sinks", func(x *fixture) {
			x.Forwarder.Sinks["closed"] = forwarder.Sink{Sink: dialing{address: "127.0.0.1:1"}}
		}, Fail, "closed: .*refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(x *fixture) {
				if c.want != Skip && name != "no configuration" {
					require.Equal(x, OK, x.examine(c.id).Status, "before")
				}
				c.broken(x)
				x.has(c.id, c.want, c.text)
			})
		})
	}
}

// dialing is a sink whose health check dials an address.
type dialing struct {
	taking
	address string
}

func (d dialing) CheckHealth(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", d.address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// panicking is a sink whose health check panics.
type panicking struct{ taking }

func (panicking) CheckHealth(context.Context) error { panic("a nil map") }

func TestASinkThatPanicsIsUnhealthy(t *testing.T) {
	t.Parallel()
	require.EqualError(t, CheckHealth(t.Context(), panicking{}, time.Minute), "panic: a nil map")
}

func TestWhatIsBrokenInPostgreSQLIsFound(t *testing.T) {
	t.Parallel()
	parameter := func(name, value string) func(x *fixture) {
		return func(x *fixture) {
			u, err := url.Parse(x.dsn)
			require.NoError(x, err)
			q := u.Query()
			q.Set(name, value)
			u.RawQuery = q.Encode()
			x.reopen(u.String())
		}
	}
	for name, c := range map[string]struct {
		id     string
		broken func(x *fixture)
		want   Status
		text   string
		fix    string
	}{
		"sequence cache": {"log", func(x *fixture) { x.exec(`ALTER SEQUENCE outbox_offset_seq CACHE 10`) }, Fail, "caches 10", `^ALTER SEQUENCE .* CACHE 1 `},
		"truncated": {"history", func(x *fixture) {
			x.publish("order.placed", 0)
			x.forward()()
			x.exec(`TRUNCATE outbox RESTART IDENTITY`)
		}, Warn, "partner: .*the log was truncated", "forwarder"},
		"read-only":        {"primary", parameter("default_transaction_read_only", "on"), Fail, "default_transaction_read_only is on", `^ALTER ROLE "postgres" SET`},
		"commits":          {"durability", parameter("synchronous_commit", "off"), Warn, "synchronous_commit is off", "ALTER ROLE"},
		"clock":            {"clock", func(x *fixture) { x.now = func() time.Time { return time.Now().Add(-5 * time.Second) } }, Warn, "are 5s apart", "NTP"},
		"clock by a lease": {"clock", func(x *fixture) { x.now = func() time.Time { return time.Now().Add(time.Minute) } }, Fail, "as long as the lease", "NTP"},
		"held": {"held-transactions", func(x *fixture) {
			tx := inTx(x, `INSERT INTO outbox (type, payload) VALUES ('order.placed', '{}')`)
			x.HeldAfter = time.Millisecond
			_, err := tx.ExecContext(x.Context(), `SELECT pg_sleep(0.01)`)
			require.NoError(x, err)
		}, Warn, `1 open for more than 1ms: pid \d+ of an unnamed application, idle in transaction, for .*: SELECT pg_sleep`, `^SELECT pg_terminate_backend\(\d+\);$`},
		"prepared": {"prepared-transactions", func(x *fixture) {
			tx := inTx(x, `INSERT INTO outbox (type, payload) VALUES ('order.placed', '{}')`)
			_, err := tx.ExecContext(x.Context(), `PREPARE TRANSACTION `+pq.QuoteLiteral(x.Name()))
			require.NoError(x, err)
			require.Error(x, tx.Commit()) // the transaction has ended
			x.Cleanup(func() {
				_, err := x.DB.ExecContext(context.WithoutCancel(x.Context()), `ROLLBACK PREPARED `+pq.QuoteLiteral(x.Name()))
				require.NoError(x, err)
			})
			x.HeldAfter = time.Nanosecond
		}, Warn, "1 prepared", "^ROLLBACK PREPARED 'Test"},
		"statement_timeout": {"timeouts", parameter("statement_timeout", "14000"), Warn, `statement_timeout is 14s: below the lease \(15s\)`, `SET statement_timeout = '15s'`},
		"idle timeout":      {"timeouts", parameter("idle_in_transaction_session_timeout", "100"), Warn, "idle_in_transaction_session_timeout is 100ms", "ALTER ROLE"},
		"lock_timeout":      {"timeouts", parameter("lock_timeout", "100"), Warn, "lock_timeout is 100ms", "ALTER ROLE"},
		"connections": {"connections", func(x *fixture) {
			x.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I CONNECTION LIMIT 5', current_database()); END $$`)
		}, Warn, `the database's CONNECTION LIMIT leaves \d of 5: one more forwarder needs 10`, "forwarder.connections"},
		"transaction ids":         {"transaction-ids", func(x *fixture) { x.ids = 1 }, Fail, `\d+ of about 2147483648 transaction ids`, "FREEZE"},
		"half of transaction ids": {"transaction-ids", func(x *fixture) { x.ids = ageOfIDs(x)*2/3 + 1 }, Warn, `\d+ of about`, "FREEZE"},
		"dead tuples": {"dead-tuples", func(x *fixture) {
			x.dead = 50
			x.exec(`ALTER TABLE outbox_parked SET (autovacuum_enabled = false)`)
			for range 60 {
				x.park("partner", "dead", "a", nil)
			}
			x.exec(`DELETE FROM outbox_parked`)
			require.Eventually(x, func() bool { return x.examine("dead-tuples").Status == Warn }, patience, 100*time.Millisecond, "the server counts dead rows with a delay")
		}, Warn, `"outbox_parked" has \d+ dead rows`, `^VACUUM`},
		"creators": {"creators", func(x *fixture) { x.exec(`GRANT CREATE ON SCHEMA public TO PUBLIC`) }, Warn, `^PUBLIC may create functions in the schema "public"`,
			`^REVOKE CREATE ON SCHEMA "public" FROM PUBLIC;$`},
		"invalid index": {"indexes", func(x *fixture) {
			x.exec(`UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'outbox_parked_key'::regclass`)
		}, Warn, "outbox_parked_key is invalid", "^REINDEX INDEX CONCURRENTLY"},
		"primary key": {"indexes", func(x *fixture) { x.exec(`ALTER TABLE outbox_inbox DROP CONSTRAINT outbox_inbox_pkey`) }, Warn, `"outbox_inbox" has no primary key`, "^ALTER TABLE"},
		"renamed column": {"captures", func(x *fixture) {
			x.exec(`CREATE TABLE orders (id int PRIMARY KEY, total int)`)
			require.NoError(x, capture.Add(x.Context(), x.DB, postgres.Config{}, capture.Capture{Table: "orders", Key: "id", Columns: []string{"id", "total"}}))
			x.has("captures", OK, "1 captured table")
			x.exec(`ALTER TABLE orders RENAME total TO amount`)
		}, Fail, `orders has no column "total" any more`, "migrate --capture"},
		"disabled trigger": {"captures", func(x *fixture) {
			x.exec(`CREATE TABLE orders (id int PRIMARY KEY, total int)`)
			require.NoError(x, capture.Add(x.Context(), x.DB, postgres.Config{}, capture.Capture{Table: "orders", Key: "id", Columns: []string{"total"}}))
			x.exec(`ALTER TABLE orders DISABLE TRIGGER USER`)
		}, Fail, `triggers of .*orders are switched off`, "uncapture"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := onPostgres(t, true)
			require.Equal(t, OK, x.examine(c.id).Status, "before")
			c.broken(x)
			require.Regexp(t, c.fix, x.has(c.id, c.want, c.text).Fix)
		})
	}
}

func ageOfIDs(x *fixture) (n int64) {
	x.Helper()
	require.NoError(x, x.DB.QueryRowContext(x.Context(), `SELECT max(age(datfrozenxid)) FROM pg_database WHERE datallowconn`).Scan(&n))
	return n
}

// These tests change the whole server, so they are not parallel: they run before the parallel tests.

func TestASlotWithoutAReaderIsFound(t *testing.T) {
	x := onPostgres(t, true)
	x.has("replication-slots", OK, "0 slots,")
	x.exec(`SELECT pg_create_physical_replication_slot('abandoned', true)`)
	defer x.exec(`SELECT pg_drop_replication_slot('abandoned')`)
	f := x.has("replication-slots", Warn, "abandoned has no reader and keeps")
	require.Equal(t, `SELECT pg_drop_replication_slot('abandoned');`, f.Fix)
}

func TestAServerThatMayLoseDataIsFound(t *testing.T) {
	x := onPostgres(t, true)
	x.has("durability", OK, "fsync and full_page_writes are on")
	for _, name := range []string{"fsync", "full_page_writes"} {
		set := func(value string) {
			x.exec(`ALTER SYSTEM SET ` + name + ` = ` + value)
			x.exec(`SELECT pg_reload_conf()`)
		}
		set("off")
		require.Eventually(t, func() bool { return x.examine("durability").Status == Fail }, patience, 10*time.Millisecond)
		f := x.has("durability", Fail, "^"+name+" is off")
		require.Contains(t, f.Fix, "ALTER SYSTEM SET "+name+" = on;")
		set("on")
		require.Eventually(t, func() bool { return x.examine("durability").Status == OK }, patience, 10*time.Millisecond)
	}
}

func TestAStandbyIsFound(t *testing.T) {
	x := onPostgres(t, true)
	s, err := server()
	require.NoError(t, err)
	standby, err := s.Standby(t.Context())
	require.NoError(t, err)
	primary := x.DB
	defer func() {
		require.NoError(t, standby.Stop())
		require.Eventually(t, func() bool { // the primary notices the end of the standby with a delay
			var slots int
			_, err := primary.ExecContext(t.Context(), `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active`)
			require.NoError(t, err)
			require.NoError(t, primary.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_replication_slots`).Scan(&slots))
			return slots == 0
		}, patience, 10*time.Millisecond)
	}()
	u, err := url.Parse(x.dsn)
	require.NoError(t, err)
	there, err := url.Parse(standby.DSN())
	require.NoError(t, err)
	u.Host = there.Host
	x.reopen(u.String())
	f := x.has("primary", Fail, "the server is a standby")
	require.Contains(t, f.Fix, "target_session_attrs=read-write")
	for _, f := range run(t.Context(), x.Subject, x.Options, x.limits) {
		require.NotEmpty(t, f.Text, "%+v", f)
	}
}

func TestATransactionPoolerIsFound(t *testing.T) {
	t.Parallel()
	x := onPostgres(t, true)
	x.has("pooler", OK, "there is no transaction pooler")
	x.has("listen", OK, "came back")
	pooled, err := postgrestest.StartPooler(t, x.dsn, 3)
	if errors.Is(err, postgrestest.ErrNoProgram) {
		t.Skip(err)
	}
	require.NoError(t, err)
	x.reopen(pooled)
	require.Contains(t, x.has("pooler", Warn, "a transaction pooler is in front").Fix, "forwarder.listen: false")
	x.Timeout = 5 * time.Second // connecting takes less
	x.has("listen", Warn, "no NOTIFY came back")
	x.Timeout = time.Minute
	x.PostgreSQL.Listen, x.PostgreSQL.ListenDSN = "", func(context.Context) (string, error) { return pooled, nil }
	x.has("pooler", Warn, "the forwarder listens through it")
	x.PostgreSQL.ListenDSN = nil
	x.has("pooler", OK, "only polls")
	x.has("listen", OK, "only polls")
}

func TestMissingPartitionsAreFound(t *testing.T) {
	t.Parallel()
	x := onPostgres(t, false)
	x.migrate(postgres.Config{PartitionRows: 10})
	x.has("partitions", OK, "4 partitions ahead of the log")
	for range 25 {
		x.publish("order.placed", 0)
	}
	x.has("partitions", Warn, "only 1 partition is ahead")
	for range 20 {
		x.publish("order.placed", 0)
	}
	x.has("partitions", Fail, "no partition is ahead")
	_, err := x.examined.(store.Partitioner).ExtendPartitions(t.Context())
	require.NoError(t, err)
	x.has("partitions", Warn, "the default partition has rows")
	x.has("indexes", OK, "")
	x.has("disk", OK, "the log has")
}

func TestWithoutPrivilegesChecksAreSkippedAndNameTheGrants(t *testing.T) {
	t.Parallel()
	x := onPostgres(t, true)
	owner := x.DB
	role := "doctor " + strings.ToLower(x.Name())
	quoted := pq.QuoteIdentifier(role)
	x.exec(`CREATE ROLE ` + quoted + ` LOGIN`)
	t.Cleanup(func() {
		_, err := owner.ExecContext(context.WithoutCancel(t.Context()), `DROP OWNED BY `+quoted+`; DROP ROLE `+quoted)
		require.NoError(t, err)
	})
	tx := inTx(x, `INSERT INTO outbox (type, payload) VALUES ('order.placed', '{}')`)
	u, err := url.Parse(x.dsn)
	require.NoError(t, err)
	u.User = url.User(role)
	x.reopen(u.String())

	statuses := func() (all map[string]Finding) {
		all = make(map[string]Finding)
		for _, f := range run(t.Context(), x.Subject, x.Options, x.limits) {
			all[f.ID] = f
		}
		return all
	}
	found := statuses()
	for id, f := range found {
		require.NotContains(t, []Status{Fail, Warn}, f.Status, "%s: %+v", id, f)
	}
	for _, id := range []string{"lanes", "dead", "types", "schedules", "retention", "disk", "privileges", "held-transactions"} {
		require.Equal(t, Skip, found[id].Status, "%+v", found[id])
		require.Contains(t, found[id].Fix, "TO "+quoted, "%+v", found[id])
	}
	require.Contains(t, found["lanes"].Fix, `ON TABLE "public"."outbox_cursors"`)

	grant := func(duty postgres.Duty) {
		t.Helper()
		text, err := postgres.Grants(postgres.Config{}, role, duty)
		require.NoError(t, err)
		_, err = owner.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	grant(postgres.Operator)
	_, err = owner.ExecContext(t.Context(), `GRANT pg_read_all_settings, pg_read_all_stats TO `+quoted)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	for id, f := range statuses() {
		if id != "privileges" {
			require.Equal(t, OK, f.Status, "%s: %+v", id, f)
		}
	}
	x.has("privileges", Skip, "the role does not have the privileges of a forwarder")
	x.Duty = postgres.Operator
	x.has("privileges", OK, "operator")

	grant(postgres.Forwarder)
	x.Duty = postgres.Forwarder
	x.has("privileges", OK, "forwarder")
	_, err = owner.ExecContext(t.Context(), `REVOKE DELETE ON outbox_receipts FROM `+quoted+`; REVOKE UPDATE ON outbox_forwarders FROM `+quoted)
	require.NoError(t, err)
	f := x.has("privileges", Fail, "lacks 2 privileges of a forwarder")
	_, err = owner.ExecContext(t.Context(), f.Fix)
	require.NoError(t, err, "the fix is SQL that runs")
	x.has("privileges", OK, "")

	for _, duty := range []postgres.Duty{postgres.Publisher, postgres.Consumer, postgres.Scheduler} {
		x.Duty = duty
		f := x.has("privileges", Fail, string(duty))
		_, err = owner.ExecContext(t.Context(), f.Fix)
		require.NoError(t, err)
		if duty == postgres.Publisher {
			_, err = owner.ExecContext(t.Context(), `REVOKE EXECUTE ON FUNCTION outbox_publish FROM PUBLIC, `+quoted)
			require.NoError(t, err)
			f := x.has("privileges", Fail, "lacks 1 privilege of a")
			_, err = owner.ExecContext(t.Context(), f.Fix)
			require.NoError(t, err)
		}
		x.has("privileges", OK, string(duty))
	}
}

func TestWhatIsBrokenInSQLiteIsFound(t *testing.T) {
	t.Parallel()
	opened := func(settings string) func(x *fixture) {
		return func(x *fixture) {
			db, err := sqlite.OpenDB(x.dsn)
			require.NoError(x, err)
			x.Cleanup(func() { _ = db.Close() })
			db.SetMaxOpenConns(1)
			_, err = db.ExecContext(x.Context(), settings)
			require.NoError(x, err)
			x.DB = db
		}
	}
	for name, c := range map[string]struct {
		id     string
		broken func(x *fixture)
		want   Status
		text   string
	}{
		"synchronous": {"durability", opened(`PRAGMA synchronous = NORMAL`), Warn, "synchronous is 1"},
		"no journal":  {"durability", func(x *fixture) { require.NoError(x, x.DB.Close()); opened(`PRAGMA journal_mode = OFF`)(x) }, Fail, "journal_mode is off"},
		"rollback journal": {"durability", func(x *fixture) {
			require.NoError(x, x.DB.Close())
			opened(`PRAGMA journal_mode = DELETE`)(x)
		}, Warn, "journal_mode is delete"},
		"busy timeout": {"timeouts", opened(`PRAGMA busy_timeout = 100`), Warn, "busy_timeout is 100ms"},
		"started again": {"history", func(x *fixture) {
			x.publish("order.placed", 0)
			x.forward()()
			x.exec(`DELETE FROM outbox`)
			x.exec(`UPDATE sqlite_sequence SET seq = 0 WHERE name = 'outbox'`)
		}, Warn, "the log was started again"},
		"not migrated": {"schema", func(x *fixture) { x.exec(`DROP TABLE outbox_migrations`) }, Fail, "not migrated"},
		"damaged": {"integrity", func(x *fixture) {
			for range 200 {
				x.publish("order.placed", 0)
			}
			x.exec(`PRAGMA wal_checkpoint(TRUNCATE)`)
			require.NoError(x, x.DB.Close())
			file, err := os.OpenFile(x.dsn, os.O_RDWR, 0)
			require.NoError(x, err)
			_, err = file.WriteAt([]byte(strings.Repeat("x", 3000)), 2*4096)
			require.NoError(x, errors.Join(err, file.Close()))
			opened(`SELECT 1`)(x)
		}, Fail, "."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := inSQLite(t)
			require.Equal(t, OK, x.examine(c.id).Status, "before")
			c.broken(x)
			x.has(c.id, c.want, c.text)
		})
	}
}

func TestAFileOnANetworkFileSystemIsRefused(t *testing.T) {
	t.Parallel()
	inSQLite(t).has("file-system", OK, "on a disk of this machine")
	v := judgeFileSystem("/mnt/outbox.db", 0x6969)
	require.Equal(t, Fail, v.status)
	require.Contains(t, v.text, "NFS")
}

func TestADiskThatFillsIsFound(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for _, c := range []struct {
		daily, free int64
		want        Status
	}{{0, 50 * gib, OK}, {0, 4 * gib, Warn}, {60 * gib, 50 * gib, Warn}, {0, gib, Fail}} {
		require.Equal(t, c.want, judgeDisk(gib, c.daily, c.free, 100*gib).status, "%+v", c)
	}
	onEach(t, func(x *fixture) {
		x.publish("order.placed", 10*time.Hour)
		x.has("disk", OK, `the log has .*iB, and .* are free; it grows by up to .*iB a day`)
		x.disk = func(string) (free, all int64, known bool) { return 1, 100, true }
		x.has("disk", Fail, "1 bytes of 100 bytes are free")
	})
}

func TestRowsThatNoReaderFindsAreFoundAndAppendedAgain(t *testing.T) {
	t.Parallel()
	x := inSQLite(t)
	require.Equal(t, OK, x.examine("log").Status)
	x.exec(`DROP TRIGGER outbox_values`) // as in a file of an earlier version
	x.exec(`INSERT INTO outbox ("offset", id, type, key, payload) VALUES (0, 'zero', 'a', 'k', '{}'), (-5, 'below', 'a', 'k', '{}')`)
	x.has("log", Fail, `2 rows have an offset below 1`)
	x.exec(x.examine("log").Fix)
	require.Equal(t, OK, x.examine("log").Status)
	var first string
	require.NoError(t, x.DB.QueryRowContext(t.Context(), `SELECT id FROM outbox WHERE "offset" = 1`).Scan(&first))
	require.Equal(t, "below", first)
}
