package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

func TestEachNotificationReachesTheSinksOfItsType(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var events, mail script
		f := o.start(map[string]forwarder.Sink{"events": {Sink: &events}, "mail": {Sink: &mail}},
			route.Routes{"order.placed": route.To("events", "mail"), "customer.*": route.To("events")})
		o.append("order.placed", "k", "a")
		o.append("customer.moved", "k", "b")
		o.append("stock.counted", "", "c")
		f.flush()
		require.Equal(t, []string{"a", "b"}, events.given())
		require.Equal(t, []string{"a"}, mail.given())
		require.Equal(t, []string{"_unrouted dead c"}, o.parked(), "nothing is dropped silently")
		f.end()
	})
}

func TestUnroutedNotificationsCanBeIgnored(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		f := o.start(map[string]forwarder.Sink{"s": {Sink: &s}}, route.Routes{"known": route.To("s")},
			func(c *forwarder.Config) { c.Unrouted = forwarder.UnroutedIgnore })
		o.append("unknown", "", "a")
		o.append("known", "", "b")
		f.flush()
		require.Equal(t, []string{"b"}, s.given())
		require.Empty(t, o.parked())
		f.end()
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
		f := o.one(forwarder.Sink{Sink: &s, Parallelism: forwarder.Parallelism{Threshold: 8}})
		time.Sleep(time.Minute)
		require.Len(t, s.given(), 660)
		require.Zero(t, s.overlaps, "one key was in flight twice")
		require.Equal(t, 8, s.mostAtOnce())
		f.end()
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
		f := o.one(forwarder.Sink{Sink: &s, Parallelism: forwarder.Parallelism{Threshold: 5, Above: forwarder.AboveSequential}})
		time.Sleep(time.Minute)
		require.Len(t, s.given(), 20)
		require.Equal(t, 1, mostAbove, "while more than 5 are pending")
		require.Equal(t, 5, s.mostAtOnce(), "up to 5 are delivered at once")
		f.end()
	})
}

func TestAScheduledDeliveryWaitsForItsTimeAndBlocksNoOther(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		f := o.one(forwarder.Sink{Sink: &s})
		o.schedule("t", "k", "later", time.Now().Add(time.Hour))
		o.append("t", "k", "now")
		f.flush()
		require.Equal(t, []string{"now"}, s.given())
		require.Equal(t, []string{"sink scheduled later"}, o.parked())
		time.Sleep(59 * time.Minute)
		require.Empty(t, s.given())
		time.Sleep(time.Minute + 100*time.Millisecond)
		synctest.Wait()
		require.Equal(t, []string{"later"}, s.given())
		require.Empty(t, o.parked())
		require.Equal(t, 1, s.attempts["later"])
		f.end()
	})
}

func TestAScheduledDeliveryThatFallsDueWaitsBehindItsKey(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		s.answer = func(_ context.Context, d *notification.Delivery) error {
			if d.ID == "first" && d.Attempt == 1 {
				return errors.New("not now")
			}
			return nil
		}
		f := o.one(forwarder.Sink{Sink: &s, Retry: forwarder.Retry{Initial: time.Hour}})
		o.schedule("t", "k", "scheduled", time.Now().Add(time.Minute))
		o.append("t", "k", "first", "second")
		f.flush()
		require.Equal(t, []string{"first"}, s.given())
		time.Sleep(10 * time.Minute)
		require.Empty(t, s.given(), "due, but its key is blocked")
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"first", "second", "scheduled"}, s.given())
		require.Empty(t, o.parked())
		f.end()
	})
}

func TestNothingIsRepeatedAfterAGracefulStop(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		s.answer = func(context.Context, *notification.Delivery) error {
			time.Sleep(time.Duration(1+rand.IntN(10)) * time.Millisecond)
			return nil
		}
		ids := numbered("", 2000)
		o.append("t", "", ids...)
		var all []string
		for range 5 {
			f := o.one(forwarder.Sink{Sink: &s})
			time.Sleep(30 * time.Millisecond)
			f.end()
			all = append(all, s.given()...)
			require.Empty(t, value[string](o, `SELECT coalesce(max(owner), '') FROM outbox_cursors`), "leases are released")
		}
		require.Less(t, len(all), 2000, "the stops interrupted the backlog")
		f := o.one(forwarder.Sink{Sink: &s})
		time.Sleep(time.Minute)
		f.end()
		all = append(all, s.given()...)
		require.ElementsMatch(t, ids, all)
	})
}

func TestDeliveriesSettledOutOfOrderAreNotRepeated(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		s.answer = func(ctx context.Context, d *notification.Delivery) error {
			if d.ID == "0010" {
				<-ctx.Done() // hangs until the end of the shutdown
				return ctx.Err()
			}
			return nil
		}
		ids := numbered("", 100)
		o.append("t", "", ids...)
		f := o.one(forwarder.Sink{Sink: &s, Timeout: time.Hour}, func(c *forwarder.Config) { c.ShutdownTimeout = time.Second })
		f.flush()
		f.end()
		require.ElementsMatch(t, ids, s.given())
		require.Empty(t, o.parked(), "a cancelled attempt does not count")
		require.Equal(t, "11-99", shifted(value[string](o, `SELECT settled FROM outbox_cursors`)))

		s.answer = nil
		f = o.one(forwarder.Sink{Sink: &s})
		f.flush()
		require.Equal(t, []string{"0010"}, s.given())
		require.Equal(t, 1, s.attempts["0010"])
		f.end()
		require.Empty(t, value[string](o, `SELECT settled FROM outbox_cursors`))
	})
}

// shifted converts offsets, which begin at 1, into numbers that begin at 0.
func shifted(settled string) string {
	ranges, err := store.DecodeOffsets(settled)
	if err != nil {
		return settled
	}
	for i := range ranges {
		ranges[i].First--
		ranges[i].Last--
	}
	return store.EncodeOffsets(ranges)
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
		f := o.one(forwarder.Sink{Sink: &s}, func(c *forwarder.Config) { c.ShutdownTimeout = 5 * time.Second })
		f.flush()
		began := time.Now()
		f.end()
		require.Less(t, time.Since(began), 10*time.Second)
		close(release)
	})
}

func TestOnDeliveredCommitsWithTheCheckpoint(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		_, err := o.db.ExecContext(t.Context(), `CREATE TABLE users (id text PRIMARY KEY, status text)`)
		require.NoError(t, err)
		_, err = o.db.ExecContext(t.Context(), `INSERT INTO users VALUES ('u1', 'pending'), ('u2', 'pending')`)
		require.NoError(t, err)
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
		o.append("t", "", "u1", "u2")
		f.flush()
		require.Equal(t, 2, value[int](o, `SELECT count(*) FROM users WHERE status = 'pending'`), "the hook's failure rolled it back")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, 2, value[int](o, `SELECT count(*) FROM users WHERE status = 'sent'`))
		require.ElementsMatch(t, []string{"u1", "u2"}, s.given(), "no delivery is repeated")
		require.Equal(t, 2, value[int](o, `SELECT count(*) FROM outbox_receipts WHERE receipt = 'taken'`))
		f.end()
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
		f := o.one(forwarder.Sink{
			Sink: &s, Retry: forwarder.Retry{Initial: time.Second},
			Hooks: forwarder.Hooks{Delivered: func(context.Context, *sql.Tx, []forwarder.Delivered) error {
				time.Sleep(slow)
				slow = 0
				return nil
			}},
		})
		o.append("t", "", "fails", "goes through")
		time.Sleep(5 * time.Second) // the next comparison with the parked table would find it too
		synctest.Wait()
		require.Empty(t, o.parked())
		require.Equal(t, 2, s.attempts["fails"])
		f.end()
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
		o.append("t", "", "slow")
		f.flush()
		_, err := o.db.ExecContext(t.Context(), `UPDATE outbox_cursors SET owner = 'another', epoch = epoch + 1`)
		require.NoError(t, err)
		o.append("t", "", "quick")
		f.flush() // the checkpoint notices that the lease is lost
		<-cancelled
		position := value[string](o, `SELECT coalesce(CAST(position AS text), '') || settled FROM outbox_cursors`)
		time.Sleep(time.Minute)
		require.Equal(t, position, value[string](o, `SELECT coalesce(CAST(position AS text), '') || settled FROM outbox_cursors`), "no checkpoint is written after the loss")
		require.Empty(t, o.parked())
		f.end()
	})
}

func TestNoTransactionIsOpenWhileASinkIsCalled(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		if _, ok := o.store.(*postgres.Store); !ok {
			return // only PostgreSQL shows its transactions
		}
		s := script{answer: func(context.Context, *notification.Delivery) error {
			time.Sleep(time.Second)
			return nil
		}}
		f := o.one(forwarder.Sink{Sink: &s})
		o.append("t", "", numbered("", 20)...)
		f.flush()
		require.Equal(t, 16, s.mostAtOnce())
		require.Zero(t, value[int](o, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL`))
		time.Sleep(10 * time.Second)
		f.end()
	})
}

func TestAnOpenTransactionDelaysNoOther(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		if _, ok := o.store.(*postgres.Store); !ok {
			return // SQLite has one writer at a time
		}
		var s script
		f := o.one(forwarder.Sink{Sink: &s})
		open, err := o.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer open.Rollback()
		_, err = open.ExecContext(t.Context(), `INSERT INTO outbox (id, type, key, payload) VALUES ('late', 't', 'k', '{}')`)
		require.NoError(t, err)
		for i := range 5 {
			id := fmt.Sprintf("quick%d", i)
			o.append("t", "k", id)
			f.flush()
			require.Equal(t, []string{id}, s.given())
		}
		require.NoError(t, open.Commit())
		f.flush()
		require.Equal(t, []string{"late"}, s.given())
		f.end()
	})
}

// Every forwarder handles notifications without a route.
func TestAForwarderOfSomeSinksParksNotificationsWithoutARoute(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var a, b script
		f := o.start(map[string]forwarder.Sink{"a": {Sink: &a}, "b": {Sink: &b}}, route.Routes{"t": route.To("a", "b")},
			func(c *forwarder.Config) { c.Only = []string{"a"} })
		o.append("u", "", "1")
		f.flush()
		f.end()
		require.Equal(t, 1, value[int](o, `SELECT count(*) FROM outbox_parked WHERE sink = '_unrouted' AND state = 'dead'`))
	})
}

func TestRunFailsOnErrorsThatWaitingCannotSolve(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		f := o.one(forwarder.Sink{Sink: &s})
		f.flush()
		f.end()
		_, err := o.db.ExecContext(t.Context(), `UPDATE outbox_cursors SET position = '{"of":"a newer program"}'`)
		require.NoError(t, err)
		f = o.one(forwarder.Sink{Sink: &s})
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
		o.append("t", "", "1")
		f.flush()
		require.Equal(t, []string{"1"}, a.given())
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		require.Equal(t, 1, value[int](o, `SELECT count(*) FROM outbox`), "b has not settled it")
		require.NoError(t, f.Reload(t.Context(), map[string]forwarder.Sink{"a": {Sink: &a}, "c": {Sink: &b}}, route.Routes{"t": route.To("a", "c")}))
		require.Equal(t, []string{"_unrouted", "a"}, names(f.Stats()), "a new sink can belong to another forwarder too")
		f.end()

		f = start("b")
		f.flush()
		o.append("t", "", "2")
		f.flush()
		require.Equal(t, []string{"1", "2"}, b.given(), "the cursors of b were created with those of a")
		require.Empty(t, a.given())
		f.end()

		_, err := forwarder.New(forwarder.Config{Store: o.store, Only: []string{"c"}, Sinks: map[string]forwarder.Sink{"a": {Sink: &a}}, Routes: route.Routes{"*": route.To("a")}})
		require.ErrorContains(t, err, `only: there is no sink "c"`)
	})
}
