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
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// Each check has one case at least that breaks on purpose what it looks at.

func TestWhatIsBrokenInEitherDatabaseIsFound(t *testing.T) {
	t.Parallel()
	member := func(p *patient, owner string, running store.Running) {
		p.Helper()
		require.NoError(p, p.ours.Heartbeat(p.Context(), store.Member{Owner: owner, Sinks: []string{"partner"}, Running: running}, time.Hour))
	}
	for name, c := range map[string]struct {
		id     string
		broken func(p *patient)
		want   Status
		text   string
	}{
		"index": {"indexes", func(p *patient) { p.exec(`DROP INDEX outbox_parked_due`) }, Warn, "outbox_parked_due is missing"},
		"retention, kept": {"retention", func(p *patient) {
			p.forward()()
			p.publish("order.placed", 100*time.Hour)
		}, Warn, "partner keeps rows from offset 1 on, of 4 days ago: not settled"},
		"retention, not removed": {"retention", func(p *patient) { p.publish("order.placed", 100*time.Hour) }, Warn, "no forwarder removes it"},
		"versions": {"forwarders", func(p *patient) {
			member(p, "a", store.Running{Version: "v1"})
			member(p, "b", store.Running{Version: "v2"})
		}, Warn, "2 forwarders; they are of different versions: v1 of a, v2 of b"},
		"settings": {"forwarders", func(p *patient) {
			member(p, "a", store.Running{Settings: "abc"})
			member(p, "b", store.Running{})
		}, Warn, `different configurations: \(not said\) of b, abc of a`},
		"lanes": {"lanes", func(p *patient) {
			p.forward()()
			p.exec(`UPDATE outbox_cursors SET lease_until = $1`, ago(time.Hour))
		}, Fail, `0 forwarders; lanes without one: _unrouted: 1, for 1h0m; partner: 1, for 1h0m`},
		"sink that is gone": {"lanes", func(p *patient) {
			p.forward()()
			p.exec(`UPDATE outbox_cursors SET lease_until = $1 WHERE sink = 'partner'`, ago(time.Hour))
			p.Forwarder.Sinks = map[string]forwarder.Sink{"other": {}}
		}, Warn, "has partner any more"},
		"slow checkpoints":   {"lease", func(p *patient) { member(p, "a", store.Running{Checkpoint: 4 * time.Second}) }, Warn, "a checkpoint of a took 4s; the lease is 15s"},
		"slower checkpoints": {"lease", func(p *patient) { member(p, "a", store.Running{Checkpoint: 14 * time.Second}) }, Fail, "took 14s"},
		"lag": {"lag", func(p *patient) {
			p.forward()()
			p.publish("order.placed", 10*time.Minute)
		}, Warn, "partner from offset 1 on, of 10m"},
		"overdue": {"overdue", func(p *patient) { p.park("partner", "retrying", "a", ago(10*time.Minute)) }, Warn, "partner: 1, for up to 10m"},
		"dead": {"dead", func(p *patient) {
			p.park("partner", "dead", "a", nil)
			p.park("partner", "dead", "b", nil)
		}, Warn, "dead: partner: 2$"},
		"halted": {"halted-keys", func(p *patient) {
			p.park("partner", "dead", "a", nil)
			p.park("partner", "dead", "a", nil)
			p.park("partner", "dead", "", nil)
			p.Forwarder.Sinks["partner"] = forwarder.Sink{OnDead: forwarder.OnDeadHalt}
		}, Warn, "halted: partner: 1 of its keys"},
		"no configuration": {"halted-keys", func(p *patient) { p.Forwarder = nil }, Skip, "without a configuration"},
		"unrouted":         {"unrouted", func(p *patient) { p.park(store.SinkUnrouted, "dead", "a", nil) }, Warn, "_unrouted: 1 without a route"},
		"hooks": {"hooks", func(p *patient) {
			p.park("partner", "settling", "a", ago(0))
			p.exec(`UPDATE outbox_parked SET hook_failures = 3, hook_error = 'no such ledger'`)
		}, Warn, "a hook fails for partner: 1, such as: no such ledger"},
		"type": {"types", func(p *patient) {
			p.publish("order.moved", 0)
			p.publish("order.placed", 0)
			p.exec(`UPDATE outbox SET version = 7 WHERE type = 'order.placed'`)
		}, Warn, `cannot decode order.moved v1 \(1\); order.placed v7 \(1\)`},
		"no types": {"types", func(p *patient) { p.Forwarder.Types = nil }, Skip, "no types of its own"},
		"schedule": {"schedules", func(p *patient) {
			require.NoError(p, p.ours.AddSchedule(p.Context(), "daily"))
			p.exec(`UPDATE outbox_schedules SET next_tick = $1`, ago(time.Hour))
			p.Schedules = []string{"daily", "weekly"}
		}, Warn, "daily is due for 1h0m; weekly was never run"},
		"sinks": {"sinks", func(p *patient) {
			p.Forwarder.Sinks["closed"] = forwarder.Sink{Sink: dialing{address: "127.0.0.1:1"}}
		}, Fail, "closed: .*refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(p *patient) {
				if c.want != Skip && name != "no configuration" {
					require.Equal(p, OK, p.examine(c.id).Status, "before")
				}
				c.broken(p)
				p.has(c.id, c.want, c.text)
			})
		})
	}
}

// dialing is a sink that asks its destination.
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

// panicking is a sink whose author did not think of everything.
type panicking struct{ taking }

func (panicking) CheckHealth(context.Context) error { panic("a nil map") }

func TestASinkThatPanicsIsNotWell(t *testing.T) {
	t.Parallel()
	require.EqualError(t, CheckHealth(t.Context(), panicking{}, time.Minute), "panic: a nil map")
}

func TestWhatIsBrokenInPostgreSQLIsFound(t *testing.T) {
	t.Parallel()
	parameter := func(name, value string) func(p *patient) {
		return func(p *patient) {
			u, err := url.Parse(p.dsn)
			require.NoError(p, err)
			q := u.Query()
			q.Set(name, value)
			u.RawQuery = q.Encode()
			p.reopen(u.String())
		}
	}
	for name, c := range map[string]struct {
		id     string
		broken func(p *patient)
		want   Status
		text   string
		fix    string
	}{
		"sequence cache": {"log", func(p *patient) { p.exec(`ALTER SEQUENCE outbox_offset_seq CACHE 10`) }, Fail, "caches 10", `^ALTER SEQUENCE .* CACHE 1 `},
		"truncated": {"history", func(p *patient) {
			p.publish("order.placed", 0)
			p.forward()()
			p.exec(`TRUNCATE outbox RESTART IDENTITY`)
		}, Warn, "partner: .*the log was truncated", "forwarder"},
		"read-only":        {"primary", parameter("default_transaction_read_only", "on"), Fail, "default_transaction_read_only is on", `^ALTER ROLE "postgres" SET`},
		"commits":          {"durability", parameter("synchronous_commit", "off"), Warn, "synchronous_commit is off", "ALTER ROLE"},
		"clock":            {"clock", func(p *patient) { p.now = func() time.Time { return time.Now().Add(-5 * time.Second) } }, Warn, "are 5s apart", "NTP"},
		"clock by a lease": {"clock", func(p *patient) { p.now = func() time.Time { return time.Now().Add(time.Minute) } }, Fail, "as long as the lease", "NTP"},
		"held": {"held-transactions", func(p *patient) {
			tx := inTx(p, `INSERT INTO outbox (type, payload) VALUES ('order.placed', '{}')`)
			p.HeldAfter = time.Millisecond
			_, err := tx.ExecContext(p.Context(), `SELECT pg_sleep(0.01)`)
			require.NoError(p, err)
		}, Warn, `1 open for more than 1ms: pid \d+ of an unnamed application, idle in transaction, for .*: SELECT pg_sleep`, `^SELECT pg_terminate_backend\(\d+\);$`},
		"prepared": {"prepared-transactions", func(p *patient) {
			tx := inTx(p, `INSERT INTO outbox (type, payload) VALUES ('order.placed', '{}')`)
			_, err := tx.ExecContext(p.Context(), `PREPARE TRANSACTION `+pq.QuoteLiteral(p.Name()))
			require.NoError(p, err)
			require.Error(p, tx.Commit()) // it has ended
			p.Cleanup(func() {
				_, err := p.DB.ExecContext(context.WithoutCancel(p.Context()), `ROLLBACK PREPARED `+pq.QuoteLiteral(p.Name()))
				require.NoError(p, err)
			})
			p.HeldAfter = time.Nanosecond
		}, Warn, "1 prepared", "^ROLLBACK PREPARED 'Test"},
		"statement_timeout": {"timeouts", parameter("statement_timeout", "2000"), Warn, `statement_timeout is 2s: below the lease \(15s\)`, `SET statement_timeout = '15s'`},
		"idle timeout":      {"timeouts", parameter("idle_in_transaction_session_timeout", "100"), Warn, "idle_in_transaction_session_timeout is 100ms", "ALTER ROLE"},
		"lock_timeout":      {"timeouts", parameter("lock_timeout", "100"), Warn, "lock_timeout is 100ms", "ALTER ROLE"},
		"connections": {"connections", func(p *patient) {
			p.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I CONNECTION LIMIT 5', current_database()); END $$`)
		}, Warn, `the database's CONNECTION LIMIT leaves \d of 5: one more forwarder needs 9`, "forwarder.connections"},
		"transaction ids":         {"transaction-ids", func(p *patient) { p.ids = 1 }, Fail, `\d+ of about 2147483648 transactions`, "FREEZE"},
		"half of transaction ids": {"transaction-ids", func(p *patient) { p.ids = ageOfIDs(p)*2/3 + 1 }, Warn, `\d+ of about`, "FREEZE"},
		"dead tuples": {"dead-tuples", func(p *patient) {
			p.dead = 50
			p.exec(`ALTER TABLE outbox_parked SET (autovacuum_enabled = false)`)
			for range 60 {
				p.park("partner", "dead", "a", nil)
			}
			p.exec(`DELETE FROM outbox_parked`)
			require.Eventually(p, func() bool { return p.examine("dead-tuples").Status == Warn }, patience, 100*time.Millisecond, "the server counts with a delay")
		}, Warn, `"outbox_parked" has \d+ dead rows`, `^VACUUM`},
		"invalid index": {"indexes", func(p *patient) {
			p.exec(`UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'outbox_parked_key'::regclass`)
		}, Warn, "outbox_parked_key is invalid", "^REINDEX INDEX CONCURRENTLY"},
		"primary key": {"indexes", func(p *patient) { p.exec(`ALTER TABLE outbox_inbox DROP CONSTRAINT outbox_inbox_pkey`) }, Warn, `"outbox_inbox" has no primary key`, "^ALTER TABLE"},
		"renamed column": {"captures", func(p *patient) {
			p.exec(`CREATE TABLE orders (id int PRIMARY KEY, total int)`)
			require.NoError(p, postgres.AddCapture(p.Context(), p.DB, postgres.Config{}, postgres.Capture{Table: "orders", Key: "id", Columns: []string{"id", "total"}}))
			p.has("captures", OK, "1 captured table")
			p.exec(`ALTER TABLE orders RENAME total TO amount`)
		}, Fail, `orders has no column "total" any more`, "migrate --capture"},
		"disabled trigger": {"captures", func(p *patient) {
			p.exec(`CREATE TABLE orders (id int PRIMARY KEY, total int)`)
			require.NoError(p, postgres.AddCapture(p.Context(), p.DB, postgres.Config{}, postgres.Capture{Table: "orders", Key: "id", Columns: []string{"total"}}))
			p.exec(`ALTER TABLE orders DISABLE TRIGGER USER`)
		}, Fail, `triggers of .*orders are switched off`, "uncapture"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := onPostgres(t, true)
			require.Equal(t, OK, p.examine(c.id).Status, "before")
			c.broken(p)
			require.Regexp(t, c.fix, p.has(c.id, c.want, c.text).Fix)
		})
	}
}

func ageOfIDs(p *patient) (n int64) {
	p.Helper()
	require.NoError(p, p.DB.QueryRowContext(p.Context(), `SELECT max(age(datfrozenxid)) FROM pg_database WHERE datallowconn`).Scan(&n))
	return n
}

// What is of the whole server is tested before tests run in parallel.

func TestASlotThatNobodyReadsIsFound(t *testing.T) {
	p := onPostgres(t, true)
	p.has("replication-slots", OK, "0,")
	p.exec(`SELECT pg_create_physical_replication_slot('abandoned', true)`)
	defer p.exec(`SELECT pg_drop_replication_slot('abandoned')`)
	f := p.has("replication-slots", Warn, "abandoned is not read and keeps")
	require.Equal(t, `SELECT pg_drop_replication_slot('abandoned');`, f.Fix)
}

func TestAServerThatMayLoseDataIsFound(t *testing.T) {
	p := onPostgres(t, true)
	p.has("durability", OK, "fsync and full_page_writes are on")
	for _, name := range []string{"fsync", "full_page_writes"} {
		set := func(value string) {
			p.exec(`ALTER SYSTEM SET ` + name + ` = ` + value)
			p.exec(`SELECT pg_reload_conf()`)
		}
		set("off")
		require.Eventually(t, func() bool { return p.examine("durability").Status == Fail }, patience, 10*time.Millisecond)
		f := p.has("durability", Fail, "^"+name+" off")
		require.Contains(t, f.Fix, "ALTER SYSTEM SET "+name+" = on;")
		set("on")
		require.Eventually(t, func() bool { return p.examine("durability").Status == OK }, patience, 10*time.Millisecond)
	}
}

func TestAStandbyIsFound(t *testing.T) {
	p := onPostgres(t, true)
	s, err := server()
	require.NoError(t, err)
	standby, err := s.Standby(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, standby.Stop()) }()
	u, err := url.Parse(p.dsn)
	require.NoError(t, err)
	there, err := url.Parse(standby.DSN())
	require.NoError(t, err)
	u.Host = there.Host
	p.reopen(u.String())
	f := p.has("primary", Fail, "the server is a standby")
	require.Contains(t, f.Fix, "target_session_attrs=read-write")
	for _, f := range run(t.Context(), p.Subject, p.Options, p.limits) {
		require.NotEmpty(t, f.Text, "%+v", f)
	}
}

func TestATransactionPoolerIsFound(t *testing.T) {
	t.Parallel()
	p := onPostgres(t, true)
	p.has("pooler", OK, "there is no transaction pooler")
	p.has("listen", OK, "came back")
	pooled, err := postgrestest.StartPooler(t, p.dsn, 3)
	if errors.Is(err, postgrestest.ErrNoProgram) {
		t.Skip(err)
	}
	require.NoError(t, err)
	p.reopen(pooled)
	require.Contains(t, p.has("pooler", Warn, "a transaction pooler stands").Fix, "forwarder.listen: false")
	p.Timeout = 3 * time.Second
	p.has("listen", Warn, "no NOTIFY came back")
	p.PostgreSQL.Listen = ""
	p.has("pooler", OK, "only polls")
	p.has("listen", OK, "only polls")
}

func TestPartitionsThatAreNotMadeAreFound(t *testing.T) {
	t.Parallel()
	p := onPostgres(t, false)
	p.migrate(postgres.Config{PartitionRows: 10})
	p.has("partitions", OK, "4 are ahead of the log")
	for range 25 {
		p.publish("order.placed", 0)
	}
	p.has("partitions", Warn, "only 1 is ahead")
	for range 20 {
		p.publish("order.placed", 0)
	}
	p.has("partitions", Fail, "none is ahead")
	_, err := p.ours.(store.Partitioner).ExtendPartitions(t.Context())
	require.NoError(t, err)
	p.has("partitions", Warn, "the default one has rows")
	p.has("indexes", OK, "")
	p.has("disk", OK, "the log has")
}

func TestARoleWithoutPrivilegesSkipsAndIsToldTheGrants(t *testing.T) {
	t.Parallel()
	p := onPostgres(t, true)
	owner := p.DB
	role := "doctor " + strings.ToLower(p.Name())
	quoted := pq.QuoteIdentifier(role)
	p.exec(`CREATE ROLE ` + quoted + ` LOGIN`)
	t.Cleanup(func() {
		_, err := owner.ExecContext(context.WithoutCancel(t.Context()), `DROP OWNED BY `+quoted+`; DROP ROLE `+quoted)
		require.NoError(t, err)
	})
	tx := inTx(p, `INSERT INTO outbox (type, payload) VALUES ('order.placed', '{}')`)
	u, err := url.Parse(p.dsn)
	require.NoError(t, err)
	u.User = url.User(role)
	p.reopen(u.String())

	statuses := func() (all map[string]Finding) {
		all = make(map[string]Finding)
		for _, f := range run(t.Context(), p.Subject, p.Options, p.limits) {
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
	p.has("privileges", Skip, "the role is not one of a forwarder")
	p.Duty = postgres.Operator
	p.has("privileges", OK, "operator")

	grant(postgres.Forwarder)
	p.Duty = postgres.Forwarder
	p.has("privileges", OK, "forwarder")
	_, err = owner.ExecContext(t.Context(), `REVOKE DELETE ON outbox_receipts FROM `+quoted+`; REVOKE UPDATE ON outbox_forwarders FROM `+quoted)
	require.NoError(t, err)
	f := p.has("privileges", Fail, "lacks 2 of those of a forwarder")
	_, err = owner.ExecContext(t.Context(), f.Fix)
	require.NoError(t, err, "the fix is SQL that runs")
	p.has("privileges", OK, "")

	for _, duty := range []postgres.Duty{postgres.Publisher, postgres.Consumer, postgres.Scheduler} {
		p.Duty = duty
		f := p.has("privileges", Fail, string(duty))
		_, err = owner.ExecContext(t.Context(), f.Fix)
		require.NoError(t, err)
		if duty == postgres.Publisher {
			_, err = owner.ExecContext(t.Context(), `REVOKE EXECUTE ON FUNCTION outbox_publish FROM PUBLIC, `+quoted)
			require.NoError(t, err)
			f := p.has("privileges", Fail, "lacks 1")
			_, err = owner.ExecContext(t.Context(), f.Fix)
			require.NoError(t, err)
		}
		p.has("privileges", OK, string(duty))
	}
}

func TestWhatIsBrokenInSQLiteIsFound(t *testing.T) {
	t.Parallel()
	opened := func(settings string) func(p *patient) {
		return func(p *patient) {
			db, err := sqlite.OpenDB(p.dsn)
			require.NoError(p, err)
			p.Cleanup(func() { _ = db.Close() })
			db.SetMaxOpenConns(1)
			_, err = db.ExecContext(p.Context(), settings)
			require.NoError(p, err)
			p.DB = db
		}
	}
	for name, c := range map[string]struct {
		id     string
		broken func(p *patient)
		want   Status
		text   string
	}{
		"synchronous": {"durability", opened(`PRAGMA synchronous = NORMAL`), Warn, "synchronous is 1"},
		"no journal":  {"durability", func(p *patient) { require.NoError(p, p.DB.Close()); opened(`PRAGMA journal_mode = OFF`)(p) }, Fail, "journal_mode is off"},
		"rollback journal": {"durability", func(p *patient) {
			require.NoError(p, p.DB.Close())
			opened(`PRAGMA journal_mode = DELETE`)(p)
		}, Warn, "journal_mode is delete"},
		"busy timeout": {"timeouts", opened(`PRAGMA busy_timeout = 100`), Warn, "busy_timeout is 100ms"},
		"started again": {"history", func(p *patient) {
			p.publish("order.placed", 0)
			p.forward()()
			p.exec(`DELETE FROM outbox`)
			p.exec(`UPDATE sqlite_sequence SET seq = 0 WHERE name = 'outbox'`)
		}, Warn, "the log was started again"},
		"not migrated": {"schema", func(p *patient) { p.exec(`DROP TABLE outbox_migrations`) }, Fail, "not migrated"},
		"damaged": {"integrity", func(p *patient) {
			for range 200 {
				p.publish("order.placed", 0)
			}
			p.exec(`PRAGMA wal_checkpoint(TRUNCATE)`)
			require.NoError(p, p.DB.Close())
			file, err := os.OpenFile(p.dsn, os.O_RDWR, 0)
			require.NoError(p, err)
			_, err = file.WriteAt([]byte(strings.Repeat("x", 3000)), 2*4096)
			require.NoError(p, errors.Join(err, file.Close()))
			opened(`SELECT 1`)(p)
		}, Fail, "."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := inSQLite(t)
			require.Equal(t, OK, p.examine(c.id).Status, "before")
			c.broken(p)
			p.has(c.id, c.want, c.text)
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
	onEach(t, func(p *patient) {
		p.publish("order.placed", 10*time.Hour)
		p.has("disk", OK, `the log has .*iB, and .* are free; it grows by up to .*iB a day`)
		p.disk = func(string) (free, all int64, known bool) { return 1, 100, true }
		p.has("disk", Fail, "1 bytes of 100 bytes are free")
	})
}
