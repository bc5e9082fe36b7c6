package forwarder_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/sinks"
)

// The tests in this file make PostgreSQL itself fail, in real time. The forwarder must wait, log the
// failure once, and continue without loss.

func TestAForwarderSurvivesFaultsOfItsDatabase(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		begin func(t *testing.T, w *faulty) (end func())
		hint  string        // logged once
		lease time.Duration // longer than the tries take, so that a lane is not given up meanwhile
	}{
		"default_transaction_read_only": {
			begin: func(_ *testing.T, w *faulty) func() {
				w.set("default_transaction_read_only", "on")
				return func() { w.set("default_transaction_read_only", "off") }
			},
			hint: "default_transaction_read_only",
		},
		"a lock on the cursors, with lock_timeout": {
			begin: func(t *testing.T, w *faulty) func() {
				w.set("lock_timeout", "'50ms'")
				return lock(t, w)
			},
			hint: "lock_timeout",
		},
		"a lock on the cursors, with statement_timeout": {
			begin: func(t *testing.T, w *faulty) func() {
				w.set("statement_timeout", "'1s'") // long beside the statements of a busy machine
				return lock(t, w)
			},
			hint:  "statement_timeout",
			lease: 20 * time.Second,
		},
		"row-level security, enabled while the forwarder runs": {
			begin: func(t *testing.T, w *faulty) func() {
				w.exec(`ALTER TABLE outbox ENABLE ROW LEVEL SECURITY`)
				w.publish("hidden", 20)
				eventually(t, func() bool { return strings.Contains(w.log(), "BYPASSRLS") }, "the hint is logged")
				w.exec(`ALTER TABLE outbox_parked ENABLE ROW LEVEL SECURITY`)
				return func() { w.exec(`ALTER ROLE forwarder BYPASSRLS`) }
			},
			hint: "BYPASSRLS",
		},
		"no free connection": {
			begin: func(t *testing.T, w *faulty) func() {
				w.exec(`ALTER ROLE forwarder CONNECTION LIMIT 0`)
				w.endSessions()
				return func() { w.exec(`ALTER ROLE forwarder CONNECTION LIMIT -1`) }
			},
			hint: "no connection left",
		},
		"a full disk for the parked table, simulated by a trigger": {
			begin: func(t *testing.T, w *faulty) func() { return refuse(w, "53100") },
			hint:  "disk is full",
		},
		"serialization failures, simulated by a trigger": {
			begin: func(t *testing.T, w *faulty) func() { return refuse(w, "40001") },
			hint:  "the write is tried again",
		},
		"a server that is down": {
			begin: func(t *testing.T, w *faulty) func() {
				require.NoError(t, w.server.Down(postgrestest.Fast))
				return func() { require.NoError(t, w.server.Up()) }
			},
			hint: "connection refused",
		},
		"a crash": {
			begin: func(t *testing.T, w *faulty) func() {
				require.NoError(t, w.server.Down(postgrestest.Immediate))
				return func() { require.NoError(t, w.server.Up()) }
			},
			hint: "connection refused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFaulty(t, startPrivate(t))
			w.exec(`CREATE ROLE forwarder LOGIN`)
			w.exec(`GRANT ALL ON ALL TABLES IN SCHEMA public TO forwarder`)
			w.exec(`GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO forwarder`)
			stop := w.forward(strings.Replace(w.server.DSN(), "postgres@", "forwarder@", 1), leased(cmp.Or(fault.lease, 2*time.Second)))
			w.publish("before", 20)
			w.settle()

			end := fault.begin(t, w)
			w.awaitFailures()
			end()
			w.publish("after", 20)
			w.settle()
			eventually(t, func() bool { return strings.Contains(w.log(), "works again") }, "what failed works again")
			stop()
			require.Equal(t, 1, w.logged(fault.hint), "the hint is logged once:\n%s", w.log())
			require.Zero(t, w.repeatedMarks())
		})
	}
}

// lock locks the rows of the cursors until it is released.
func lock(t *testing.T, w *faulty) (end func()) {
	t.Helper()
	tx, err := w.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), `SET LOCAL lock_timeout = 0; SELECT FROM outbox_cursors FOR UPDATE`)
	require.NoError(t, err)
	w.publish("locked", 1) // so a checkpoint waits for the lock
	return func() {
		w.set("lock_timeout", "0")
		w.set("statement_timeout", "0")
		require.NoError(t, tx.Commit())
	}
}

// refuse makes all writes of cursors fail with an error code.
func refuse(w *faulty, code string) (end func()) {
	w.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE EXCEPTION 'refused by the test' USING ERRCODE = '` + code + `'; END $$`)
	w.exec(`CREATE TRIGGER refuse BEFORE UPDATE ON outbox_cursors FOR EACH ROW EXECUTE FUNCTION refuse()`)
	return func() { w.exec(`DROP TRIGGER refuse ON outbox_cursors`) }
}

func TestACheckpointThatADeadlockAbortsIsWrittenAgain(t *testing.T) {
	t.Parallel()
	w := newFaulty(t, startPrivate(t))
	w.set("deadlock_timeout", "'100ms'")
	var begun atomic.Bool
	release := make(chan struct{})
	stop := w.forward(w.server.DSN(), func(c *forwarder.Config) {
		c.Lease = 2 * time.Minute
		sink := c.Sinks["sink"]
		sink.Sink = sinks.Func(func(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
			if d.Attempt == 1 {
				return "", errors.New("not yet")
			}
			begun.Store(true)
			<-release
			return w.Deliver(ctx, d)
		})
		sink.Retry = forwarder.Retry{Initial: time.Millisecond}
		c.Sinks["sink"] = sink
	})
	w.publish("parked", 1)
	eventually(t, begun.Load, "the retry begins")

	// The other transaction locks the parked row, then the cursor; the checkpoint locks the cursor, then
	// the parked row. The checkpoint waits for an older lock of the row first, and looks for deadlocks again when
	// it waits for the other transaction, which does not look.
	lockRow := func() *sql.Tx {
		tx, err := w.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback() })
		_, err = tx.ExecContext(t.Context(), `SET LOCAL deadlock_timeout = '1h'; SELECT FROM outbox_parked FOR SHARE`)
		require.NoError(t, err)
		return tx
	}
	waits := func(session string) {
		t.Helper()
		eventually(t, func() (waits bool) {
			err := w.db.QueryRowContext(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND `+session+`)`).Scan(&waits)
			return err == nil && waits
		}, session+" waits for a lock")
	}
	older, other := lockRow(), lockRow()
	close(release)
	waits(`application_name = 'forwarder'`)
	updated := make(chan error, 1)
	go func() {
		_, err := other.ExecContext(t.Context(), `UPDATE outbox_cursors SET paused = paused`)
		updated <- err
	}()
	waits(`query LIKE 'UPDATE outbox_cursors SET paused%'`)
	require.NoError(t, older.Commit())
	require.NoError(t, <-updated, "the server should abort the checkpoint")
	require.NoError(t, other.Commit())

	w.settle()
	stop()
	require.Equal(t, 1, w.logged("40P01"), w.log())
	require.Zero(t, w.repeatedMarks())
	require.Equal(t, 1, w.times()["parked0000"])
}

func TestASilentNetworkCausesNoRepeats(t *testing.T) {
	t.Parallel()
	w := newFaulty(t, startPrivate(t))
	p := postgrestest.StartProxy(t, w.server.DSN())
	stop := w.forward(p.DSN())
	w.publish("before", 20)
	w.settle()
	p.Swallow()
	w.publish("silent", 20)
	w.awaitFailures()
	p.Forward()
	w.settle() // statements that wait for the silent server time out
	stop()
	require.Zero(t, w.repeatedMarks())
	for _, text := range []string{"does not answer", "works again"} {
		require.Contains(t, w.log(), text)
	}
}

func TestACheckpointInterruptedAtItsCommitTakesEffectOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		committed bool // before the connection is lost
		silent    bool // the network is silent for longer than the lease
	}{
		"the commit arrives":                                    {committed: true},
		"the commit does not arrive":                            {},
		"the commit arrives, and the network is silent":         {committed: true, silent: true},
		"the commit does not arrive, and the network is silent": {silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFaulty(t, startPrivate(t))
			p := postgrestest.StartProxy(t, w.server.DSN())
			var armed atomic.Bool
			stop := w.forward(p.DSN(), func(c *forwarder.Config) {
				if !test.silent {
					c.Lease = time.Minute
				}
				sink := c.Sinks["sink"]
				mark := sink.Hooks.Delivered
				sink.Hooks.Delivered = func(ctx context.Context, tx *sql.Tx, all []forwarder.Delivered) error {
					err := mark(ctx, tx, all)
					if armed.CompareAndSwap(true, false) {
						if test.committed {
							p.SwallowAnswersAt("COMMIT")
						} else {
							p.SwallowAt("COMMIT")
						}
					}
					return err
				}
				c.Sinks["sink"] = sink
			})
			w.publish("before", 1)
			w.settle()
			armed.Store(true)
			w.publish("cut", 1)
			switch {
			case test.silent:
				w.awaitFailures()
			case test.committed:
				w.settle()
			default:
				<-p.Swallowed()
			}
			p.Forward()
			if !test.silent {
				p.Sever()
			}
			w.publish("after", 1)
			w.settle()
			stop()
			if !test.silent {
				require.Equal(t, map[string]int{"before0000": 1, "cut0000": 1, "after0000": 1}, w.times())
			}
			for id, n := range w.times() {
				require.LessOrEqual(t, w.marks(id), n, id) // a repeated delivery is marked again
			}
		})
	}
}

// hanging does not answer queries for due deliveries.
type hanging struct{ *hooked }

func (h hanging) Due(ctx context.Context, _ store.DueQuery) ([]store.Parked, time.Time, error) {
	<-ctx.Done()
	return nil, time.Time{}, ctx.Err()
}

func TestAParkedTableThatDoesNotAnswerCostsNoLease(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		var s script
		lanes := make(map[int64]bool) // by the lease's epoch
		h := &hooked{appendable: o.store, db: o.db}
		h.checkpoint = func(_ context.Context, c store.Checkpoint, next func() error) error {
			lanes[c.Lease.Epoch] = true
			return next()
		}
		o.one(forwarder.Sink{Sink: &s}, over(hanging{h}), leased(15*time.Second))
		var want []string
		for _, id := range numbered("", 20) {
			o.append("t", "", id)
			want = append(want, id)
			pass(10 * time.Second)
		}
		pass(time.Minute)
		require.Len(t, lanes, 1, "leases")
		require.Equal(t, want, s.given())
	})
}

func TestAFailoverToAStandbyLosesNothing(t *testing.T) {
	t.Parallel()
	w := newFaulty(t, startPrivate(t))
	standby, err := w.server.Standby(t.Context())
	if errors.Is(err, postgrestest.ErrNoProgram) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Stop()) })
	ports := make([]string, 2)
	for i, s := range []*postgrestest.Server{w.server, standby} {
		u, err := url.Parse(s.DSN())
		require.NoError(t, err)
		ports[i] = u.Port()
	}
	hosts := "&host=127.0.0.1,127.0.0.1&port=" + strings.Join(ports, ",")

	// One forwarder names both hosts and asks for the writable one. The other was connected
	// to the standby and waits until it is writable.
	stop := w.forward("postgres://postgres@/postgres?sslmode=disable&target_session_attrs=read-write" + hosts)
	w.publish("before", 100)
	w.settle()
	other := &tally{}
	second := &faulty{tally: other, t: t, server: standby, db: w.db}
	stopSecond := second.forward(standby.DSN(), func(c *forwarder.Config) {
		c.Sinks = map[string]forwarder.Sink{"other": {Sink: other, Start: forwarder.StartOldest}}
		c.Routes = route.Routes{"*": route.To("other")}
	})
	second.awaitFailures()

	w.publish("pending", 100) // only some of it is settled when the primary stops
	require.NoError(t, w.server.Down(postgrestest.Fast))
	require.NoError(t, standby.Promote())
	w.db = openPlain(t, standby.DSN())
	w.publish("after", 100)
	w.settle()
	other.waitFor(t, w.expected...)
	stop()
	stopSecond()
	require.Zero(t, w.repeatedMarks())
	require.Equal(t, 1, second.logged("target_session_attrs=read-write"), second.log())
	require.Contains(t, second.log(), "works again")
}

func TestStricterIsolationLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			w := newFaulty(t, startPrivate(t))
			w.set("default_transaction_isolation", "'"+level+"'")
			var first atomic.Int64
			flaky := func(c *forwarder.Config) { // every third delivery is parked once
				sink := c.Sinks["sink"]
				sink.Sink = sinks.Func(func(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
					if d.Attempt == 1 && first.Add(1)%3 == 0 {
						return "", errors.New("not yet")
					}
					return w.Deliver(ctx, d)
				})
				sink.Retry = forwarder.Retry{Initial: time.Millisecond}
				c.Sinks["sink"], c.Lanes = sink, 4
				c.Lease = time.Minute // a lease that expires would cause repeats
			}
			stops := []func(){w.forward(w.server.DSN(), flaky), w.forward(w.server.DSN(), flaky)}
			for i := range 10 {
				w.publish(fmt.Sprintf("%d-", i), 30)
			}
			w.settle()
			for _, stop := range stops {
				stop()
			}
			require.Zero(t, w.repeatedMarks())
			for id, n := range w.times() {
				require.Equal(t, 1, n, id)
			}
		})
	}
}

// TestDeliveriesAreNotRepeatedThroughCrashesOfTheDatabase restarts PostgreSQL three times, a second
// apart, while 16 deliveries are in flight. The forwarder's process survives, so it knows what it has
// delivered.
func TestDeliveriesAreNotRepeatedThroughCrashesOfTheDatabase(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("this starts a separate server")
	}
	ctx := t.Context()
	server := startPrivate(t)
	o := openPostgres(t, outboxtest.Migrated(t, server.DSN()))
	const rows, restarts = 12_000, 3
	o.exec(fmt.Sprintf(`INSERT INTO outbox (id, type, key, payload) SELECT i::text, 't', (i %% 500)::text, '{}' FROM generate_series(1, %d) i`, rows))

	var log lines
	s := &script{answer: takes(2 * time.Millisecond)}
	f := o.one(forwarder.Sink{Sink: s}, leased(5*time.Second), log.logging, inRealTime)
	reaches := func(share int) {
		t.Helper()
		eventually(t, func() bool { return len(s.times()) >= rows*share/(restarts+1) }, "the backlog shrinks")
	}
	for i := range restarts {
		reaches(i + 1)
		require.NoError(t, server.Down(postgrestest.Immediate))
		time.Sleep(time.Second) // deliveries could begin during the outage
		require.NoError(t, server.Up())
	}
	eventually(t, func() bool { // everything is settled, so nothing is repeated later
		sample, err := o.store.Sample(ctx, store.SampleQuery{})
		return err == nil && len(s.times()) == rows && len(sample.Sinks) > 0 && sample.Sinks[len(sample.Sinks)-1].Pending == 0 && !sample.Sinks[len(sample.Sinks)-1].Estimated
	}, "everything is settled")
	f.end()
	require.NotContains(t, slices.Collect(maps.Values(s.times())), 2, "no delivery is repeated\n%s", strings.Join(log.with(""), "\n"))
}
