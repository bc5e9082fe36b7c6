package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
)

func TestEachNotificationReachesTheSinksOfItsType(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var events, mail script
		f := o.start(map[string]forwarder.Sink{"events": {Sink: &events}, "mail": {Sink: &mail}},
			route.Routes{"order.placed": route.To("events", "mail"), "customer.*": route.To("events")})
		o.append("order.placed", "k", "a")
		o.append("customer.moved", "k", "b")
		f.publish("stock.counted", "", "c")
		require.Equal(t, []string{"a", "b"}, events.given())
		require.Equal(t, []string{"a"}, mail.given())
		require.Equal(t, []string{"_unrouted dead c"}, o.parked(), "nothing is dropped silently")
	})
}

func TestUnroutedNotificationsCanBeIgnored(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		f := o.start(map[string]forwarder.Sink{"s": {Sink: &s}}, route.Routes{"known": route.To("s")},
			func(c *forwarder.Config) { c.Unrouted = forwarder.UnroutedIgnore })
		o.append("unknown", "", "a")
		f.publish("known", "", "b")
		require.Equal(t, []string{"b"}, s.given())
		require.Empty(t, o.parked())
	})
}

func TestKeysKeepTheirOrderWhileOthersRunInParallelUpToTheThreshold(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		last := make(map[string]string)
		var s script
		s.answer = func(_ context.Context, d *notification.Delivery) error {
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
			s.mu.Lock()
			defer s.mu.Unlock()
			if d.Key != "" {
				require.Less(t, last[d.Key], d.ID, "order of key %s", d.Key)
				last[d.Key] = d.ID
			}
			return nil
		}
		for i := range 600 {
			o.append("t", fmt.Sprintf("key%d", i%40), fmt.Sprintf("%05d", i))
			if i%10 == 0 {
				o.append("t", "", fmt.Sprintf("%05d-free", i))
			}
		}
		o.one(forwarder.Sink{Sink: &s, Parallelism: forwarder.Parallelism{Threshold: 8}})
		time.Sleep(time.Minute)
		require.Len(t, s.given(), 660)
		require.Zero(t, s.overlaps, "one key was in flight twice")
		require.Equal(t, 8, s.mostAtOnce())
	})
}

func TestASequentialSinkDeliversALargeBacklogOneAtATime(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		o.append("t", "", numbered("", 20)...)
		var s script
		mostAbove := 0
		left := 20
		s.answer = func(context.Context, *notification.Delivery) error {
			time.Sleep(10 * time.Millisecond)
			s.mu.Lock()
			defer s.mu.Unlock()
			if left > 5 {
				mostAbove = max(mostAbove, s.inFlight)
			}
			left--
			return nil
		}
		o.one(forwarder.Sink{Sink: &s, Parallelism: forwarder.Parallelism{Threshold: 5, Above: forwarder.AboveSequential}})
		time.Sleep(time.Minute)
		require.Len(t, s.given(), 20)
		require.Equal(t, 1, mostAbove, "while more than 5 are pending")
		require.Equal(t, 5, s.mostAtOnce(), "up to 5 are delivered at once")
	})
}

func TestAScheduledDeliveryWaitsForItsTimeAndBlocksNoOther(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		f := o.one(forwarder.Sink{Sink: &s})
		o.schedule("t", "k", "later", time.Now().Add(time.Hour))
		f.publish("t", "k", "now")
		require.Equal(t, []string{"now"}, s.given())
		require.Equal(t, []string{"sink scheduled later"}, o.parked())
		time.Sleep(59 * time.Minute)
		require.Empty(t, s.given())
		pass(time.Minute + 100*time.Millisecond)
		require.Equal(t, []string{"later"}, s.given())
		require.Empty(t, o.parked())
		require.Equal(t, 1, s.attempts["later"])
	})
}

func TestAScheduledDeliveryThatFallsDueWaitsBehindItsKey(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{answer: fails(errors.New("not now"), 1, "first")}
		f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Initial: time.Hour}})
		o.schedule("t", "k", "scheduled", time.Now().Add(time.Minute))
		f.publish("t", "k", "first", "second")
		require.Equal(t, []string{"first"}, s.given())
		time.Sleep(10 * time.Minute)
		require.Empty(t, s.given(), "due, but its key is blocked")
		pass(2 * time.Hour)
		require.Equal(t, []string{"first", "second", "scheduled"}, s.given())
		require.Empty(t, o.parked())
	})
}

func TestNothingIsRepeatedAfterAGracefulStop(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{answer: func(ctx context.Context, _ *notification.Delivery) error {
			return takesTime(ctx, time.Duration(1+rand.IntN(10))*time.Millisecond)
		}}
		ids := numbered("", 2000)
		o.append("t", "", ids...)
		var all []string
		for range 5 {
			f := o.one(forwarder.Sink{Sink: s})
			time.Sleep(30 * time.Millisecond)
			f.end()
			all = append(all, s.given()...)
			require.Empty(t, slices.DeleteFunc(slices.Collect(maps.Keys(o.owners())), func(owner string) bool { return owner == "" }), "leases are released")
		}
		require.Less(t, len(all), 2000, "the stops interrupted the backlog")
		o.deliver(time.Minute, forwarder.Sink{Sink: s})
		all = append(all, s.given()...)
		require.ElementsMatch(t, ids, all)
	})
}

func TestDeliveriesSettledOutOfOrderAreNotRepeated(t *testing.T) {
	for hanging, settled := range map[string]string{"0000": "2-100", "0010": "12-100"} {
		t.Run(hanging, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, o *outbox) {
				s := &script{answer: hangs(hanging)}
				ids := numbered("", 100)
				o.append("t", "", ids...)
				o.deliver(0, forwarder.Sink{Sink: s, Timeout: time.Hour}, stopsWithin(time.Second))
				require.ElementsMatch(t, ids, s.given())
				require.Empty(t, o.parked(), "a cancelled attempt does not count")
				require.Equal(t, settled, o.settled())

				s.mended.Store(true)
				o.deliver(0, forwarder.Sink{Sink: s})
				require.Equal(t, []string{hanging}, s.given())
				require.Equal(t, 1, s.attempts[hanging])
				require.Empty(t, o.settled())
			})
		})
	}
}

func TestAStopWaitsNoLongerThanTheShutdownTimeout(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		release := make(chan struct{})
		s.answer = func(context.Context, *notification.Delivery) error {
			<-release // ignores its context
			return nil
		}
		o.append("t", "", "stuck")
		f := o.one(forwarder.Sink{Sink: &s}, stopsWithin(5*time.Second))
		f.flush()
		began := time.Now()
		f.end()
		require.Less(t, time.Since(began), 10*time.Second)
		close(release)
	})
}

func TestOnDeliveredCommitsWithTheCheckpoint(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		o.exec(`CREATE TABLE users (id text PRIMARY KEY, status text)`)
		o.exec(`INSERT INTO users VALUES ('u1', 'pending'), ('u2', 'pending')`)
		var s script
		began := time.Now()
		f := o.one(forwarder.Sink{Sink: &s, Hooks: forwarder.Hooks{Delivered: func(ctx context.Context, tx *sql.Tx, delivered []forwarder.Delivered) error {
			for _, d := range delivered {
				require.Equal(t, notification.Receipt("taken"), d.Receipt)
				if _, err := tx.ExecContext(ctx, `UPDATE users SET status = 'sent' WHERE id = '`+d.ID+`'`); err != nil {
					return err
				}
			}
			if time.Since(began) < 2*time.Second {
				return errors.New("deadlock")
			}
			return nil
		}}})
		f.publish("t", "", "u1", "u2")
		require.Equal(t, 2, value[int](o, `SELECT count(*) FROM users WHERE status = 'pending'`), "the hook's failure rolled it back")
		pass(10 * time.Second)
		require.Equal(t, 2, value[int](o, `SELECT count(*) FROM users WHERE status = 'sent'`))
		require.ElementsMatch(t, []string{"u1", "u2"}, s.given(), "no delivery is repeated")
		require.Equal(t, 2, o.receipts())
	})
}

func TestARetryIsNotForgottenWhileACheckpointIsSlow(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		s.answer = func(_ context.Context, d *notification.Delivery) error {
			if d.ID == "fails" && d.Attempt == 1 {
				time.Sleep(500 * time.Millisecond) // until the other checkpoint is in progress
				return errors.New("not now")
			}
			return nil
		}
		slow := 2 * time.Second // longer than the pause before the retry
		o.one(forwarder.Sink{
			Sink: &s, Retry: forwarder.Retry{Initial: time.Second},
			Hooks: forwarder.Hooks{Delivered: func(context.Context, *sql.Tx, []forwarder.Delivered) error {
				time.Sleep(slow)
				slow = 0
				return nil
			}},
		})
		o.append("t", "", "fails", "goes through")
		pass(5 * time.Second) // the next comparison with the parked table would find it too
		require.Empty(t, o.parked())
		require.Equal(t, 2, s.attempts["fails"])
	})
}

func TestALostLeaseEndsTheWorkOnTheLane(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		cancelled := make(chan struct{}, 1)
		s.answer = func(ctx context.Context, d *notification.Delivery) error {
			if d.ID == "slow" {
				<-ctx.Done()
				cancelled <- struct{}{}
				return ctx.Err()
			}
			return nil
		}
		f := o.one(forwarder.Sink{Sink: &s, Timeout: time.Hour})
		f.publish("t", "", "slow")
		o.giveLeases("sink")
		f.publish("t", "", "quick") // the checkpoint notices that the lease is lost
		<-cancelled
		const position = `SELECT coalesce(CAST(position AS text), '') || settled FROM outbox_cursors WHERE sink = 'sink'`
		before := value[string](o, position)
		time.Sleep(time.Minute)
		require.Equal(t, before, value[string](o, position), "no checkpoint is written after the loss")
		require.Empty(t, o.parked())
	})
}

// Only PostgreSQL shows its transactions.
func TestNoTransactionIsOpenWhileASinkIsCalled(t *testing.T) {
	onlyPostgres(t, func(t *testing.T, o *outbox) {
		s := &script{answer: takes(time.Second)}
		f := o.one(forwarder.Sink{Sink: s})
		f.publish("t", "", numbered("", 20)...)
		require.Equal(t, 16, s.mostAtOnce())
		require.Zero(t, value[int](o, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL`))
		time.Sleep(10 * time.Second)
	})
}

// SQLite has one writer at a time.
func TestAnOpenTransactionDelaysNoOther(t *testing.T) {
	onlyPostgres(t, func(t *testing.T, o *outbox) {
		var s script
		f := o.one(forwarder.Sink{Sink: &s})
		open, err := o.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer open.Rollback()
		_, err = open.ExecContext(t.Context(), `INSERT INTO outbox (id, type, key, payload) VALUES ('late', 't', 'k', '{}')`)
		require.NoError(t, err)
		for i := range 5 {
			id := fmt.Sprintf("quick%d", i)
			f.publish("t", "k", id)
			require.Equal(t, []string{id}, s.given())
		}
		require.NoError(t, open.Commit())
		f.flush()
		require.Equal(t, []string{"late"}, s.given())
	})
}

// Every forwarder handles notifications without a route.
func TestAForwarderOfSomeSinksParksNotificationsWithoutARoute(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var a, b script
		f := o.start(map[string]forwarder.Sink{"a": {Sink: &a}, "b": {Sink: &b}}, route.Routes{"t": route.To("a", "b")},
			func(c *forwarder.Config) { c.Only = []string{"a"} })
		f.publish("u", "", "1")
		f.end()
		require.Equal(t, []string{"_unrouted dead 1"}, o.parked())
	})
}

func TestRunFailsOnErrorsThatWaitingCannotSolve(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		o.deliver(0, forwarder.Sink{Sink: &script{}})
		o.exec(`UPDATE outbox_cursors SET position = '{"of":"a newer program"}'`)
		f := o.one(forwarder.Sink{Sink: &script{}})
		require.ErrorIs(t, <-f.ended, store.ErrPosition)
	})
}

// Two forwarders each work on some sinks of one configuration.
func TestAForwarderLeavesSinksToOthers(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var a, b script
		start := func(only ...string) *engine {
			return o.start(map[string]forwarder.Sink{"a": {Sink: &a}, "b": {Sink: &b}}, route.Routes{"*": route.To("a"), "t": route.To("a", "b")},
				func(c *forwarder.Config) { c.Only, c.Retention = only, time.Hour })
		}
		f := start("a")
		f.flush()
		require.Equal(t, []string{"a"}, names(f.Stats()))
		f.publish("t", "", "1")
		require.Equal(t, []string{"1"}, a.given())
		pass(3 * time.Hour)
		require.Equal(t, 1, o.rows(), "b has not settled it")
		require.NoError(t, f.Reload(t.Context(), map[string]forwarder.Sink{"a": {Sink: &a}, "c": {Sink: &b}}, route.Routes{"t": route.To("a", "c")}))
		require.Equal(t, []string{"_unrouted", "a"}, names(f.Stats()), "a new sink can belong to another forwarder too")
		f.end()

		f = start("b")
		f.flush()
		f.publish("t", "", "2")
		require.Equal(t, []string{"1", "2"}, b.given(), "the cursors of b were created with those of a")
		require.Empty(t, a.given())
		f.end()

		_, err := forwarder.New(forwarder.Config{Store: o.store, Only: []string{"c"}, Sinks: map[string]forwarder.Sink{"a": {Sink: &a}}, Routes: route.Routes{"*": route.To("a")}})
		require.ErrorContains(t, err, `only: there is no sink "c"`)
	})
}
