package forwarder_test

// The tests in this file put faults between the engine and its store, its clock or its operators. The
// forwarder must not lose or repeat anything.

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// hooked is a store whose calls the test can intercept.
type hooked struct {
	appendable
	checkpoint func(ctx context.Context, c store.Checkpoint, next func() error) error
	followers  func() error
	due        func()

	// If db is set, leases expire by the bubble's clock; the databases know only the real one.
	db    *sql.DB
	until atomic.Int64 // in the unit of UnixNano
}

func (h *hooked) Membership(ctx context.Context) (store.Membership, error) {
	if h.db != nil && time.Now().UnixNano() >= h.until.Load() {
		if _, err := h.db.ExecContext(ctx, `UPDATE outbox_cursors SET lease_until = '2000-01-01T00:00:00.000000Z' WHERE owner IS NOT NULL`); err != nil {
			return store.Membership{}, err
		}
	}
	return h.appendable.Membership(ctx)
}

func (h *hooked) Acquire(ctx context.Context, lane store.Lane, owner string, ttl time.Duration) (store.Lease, error) {
	began := time.Now()
	l, err := h.appendable.Acquire(ctx, lane, owner, ttl)
	if err == nil {
		h.until.Store(began.Add(ttl).UnixNano())
	}
	return l, err
}

func (h *hooked) Checkpoint(ctx context.Context, c store.Checkpoint) error {
	next := func() error {
		began := time.Now()
		err := h.appendable.Checkpoint(ctx, c)
		if err == nil {
			h.until.Store(began.Add(c.TTL).UnixNano())
		}
		return err
	}
	if h.checkpoint != nil {
		return h.checkpoint(ctx, c, next)
	}
	return next()
}

func (h *hooked) Followers(ctx context.Context, l store.Lane, keys []string, halt bool, limit int) ([]store.Parked, int, error) {
	if h.followers != nil {
		if err := h.followers(); err != nil {
			return nil, 0, err
		}
	}
	return h.appendable.Followers(ctx, l, keys, halt, limit)
}

func (h *hooked) Due(ctx context.Context, q store.DueQuery) ([]store.Parked, time.Time, error) {
	if h.due != nil {
		h.due()
	}
	return h.appendable.Due(ctx, q)
}

func TestAKeyParkedBehindAHangingDeliveryContinuesAfterARestart(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s := &script{answer: either(hangs("slow"), fails(errors.New("later"), 1, "b1"))}
		o.append("t", "a", "slow")
		o.append("t", "b", "b1")
		f := o.one(forwarder.Sink{Sink: s, Timeout: time.Hour, Retry: forwarder.Retry{Initial: time.Minute}},
			stopsWithin(time.Second))
		f.flush()
		f.end()
		require.Equal(t, []string{"sink retrying b1"}, o.parked())
		s.answer = fails(errors.New("later"), 1, "b1")
		s.given()
		f = o.one(forwarder.Sink{Sink: s})
		f.flush()
		o.append("t", "b", "b2")
		pass(time.Hour)
		require.Empty(t, o.parked())
	})
}

func TestAStopDoesNotWaitForAHangingCallOfALostLane(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s := &script{answer: func(_ context.Context, d *notification.Delivery) error {
			if d.ID == "stuck" {
				time.Sleep(24 * time.Hour) // whatever its context says
			}
			return nil
		}}
		f := o.one(forwarder.Sink{Sink: s}, stopsWithin(5*time.Second))
		f.publish("t", "", "stuck")
		o.giveLeases("sink")
		f.publish("t", "", "quick")
		began := time.Now()
		f.end()
		took := time.Since(began)
		time.Sleep(25 * time.Hour) // the sink's call returns
		require.Less(t, took, time.Minute)
	})
}

func TestAHangingHookCostsNoLease(t *testing.T) {
	onlyPostgres(t, func(t *testing.T, o *outbox) {
		var s script
		began := time.Now()
		o.one(forwarder.Sink{Sink: &s, Hooks: forwarder.Hooks{Delivered: func(ctx context.Context, tx *sql.Tx, _ []forwarder.Delivered) error {
			if time.Since(began) < 2*time.Minute {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}}}, over(&hooked{appendable: o.store, db: o.db}), leased(15*time.Second))
		o.append("t", "", "mail")
		pass(5 * time.Minute)
		require.Equal(t, []string{"mail"}, s.given())
	})
}

func TestWhileAHookFailsTheWindowLimitsDeliveries(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		var s script
		f := o.one(forwarder.Sink{Sink: &s, Hooks: forwarder.Hooks{Delivered: func(context.Context, *sql.Tx, []forwarder.Delivered) error {
			return errors.New("constraint")
		}}}, func(c *forwarder.Config) { c.ShutdownTimeout = time.Second; c.Poll = 50 * time.Millisecond })
		for i := range 40 {
			o.append("t", "", numbered(fmt.Sprintf("%d-", i), 1000)...)
			pass(time.Second)
		}
		n := len(s.given())
		f.abandon()
		require.LessOrEqual(t, n, 17_000)
	})
}

func TestThrottlingUntilNowDoesNotCauseABusyLoop(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func() error{
		"throttled until now":      func() error { return sinks.Throttled(time.Now(), errors.New("429, Retry-After: 0")) },
		"throttled without a time": func() error { return sinks.Throttled(time.Time{}, errors.New("429")) },
		"context.Canceled":         func() error { return fmt.Errorf("the client was closed: %w", context.Canceled) },
	} {
		t.Run(name, func(t *testing.T) {
			onSQLite(t, func(t *testing.T, o *outbox) {
				began := time.Now()
				var calls atomic.Int64
				s := &script{answer: func(context.Context, *notification.Delivery) error {
					if calls.Add(1) > 50_000 || time.Since(began) > time.Minute {
						return nil
					}
					return make()
				}}
				r := &recorder{}
				f := o.one(forwarder.Sink{Sink: s}, watchedBy(r))
				f.publish("t", "", "a")
				time.Sleep(5 * time.Minute)
				n := calls.Load()
				f.end()
				require.Less(t, n, int64(1000), "calls")
				for _, left := range r.throttle {
					require.Positive(t, left, "an observer learns until when the sink waits")
				}
			})
		})
	}
}

func TestALogReplacedDuringDeliveriesLeavesAReadableCursor(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s := &script{answer: hangs("old1", "new1")}
		o.append("t", "", "old0", "old1", "old2", "old3")
		f := o.one(forwarder.Sink{Sink: s, Timeout: time.Hour}, stopsWithin(time.Second))
		f.flush()
		o.exec(`DELETE FROM outbox`)
		o.exec(`DELETE FROM sqlite_sequence WHERE name = 'outbox'`)
		f.publish("t", "", "new0", "new1", "new2")
		f.end()
		s.mended.Store(true)
		o.deliver(0, forwarder.Sink{Sink: s})
	})
}

func TestAReceiptOfAnyBytesCanBeArchived(t *testing.T) {
	onlyPostgres(t, func(t *testing.T, o *outbox) {
		var s script
		o.one(forwarder.Sink{Sink: receipts{&s, "smtp 250 queued as \xff\x00"}}, over(&hooked{appendable: o.store, db: o.db}), leased(15*time.Second))
		o.append("t", "", "a", "b")
		pass(time.Minute)
		n := s.times()
		require.Equal(t, map[string]int{"a": 1, "b": 1}, n)
	})
}

func TestACheckpointWhoseAnswerIsLostRunsItsHookOnce(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		o.exec(`CREATE TABLE sent (id text PRIMARY KEY)`)
		var s script
		lost := false
		h := &hooked{appendable: o.store}
		h.checkpoint = func(_ context.Context, c store.Checkpoint, next func() error) error {
			err := next()
			if err == nil && c.InTx != nil && !lost {
				lost = true
				return errors.New("connection reset by peer")
			}
			return err
		}
		f := o.one(forwarder.Sink{Sink: &s, Hooks: forwarder.Hooks{Delivered: func(ctx context.Context, tx *sql.Tx, ds []forwarder.Delivered) error {
			for _, d := range ds {
				if _, err := tx.ExecContext(ctx, `INSERT INTO sent VALUES (?)`, d.ID); err != nil {
					return err
				}
			}
			return nil
		}}}, over(h))
		f.publish("t", "", "a")
		time.Sleep(time.Minute)
		f.publish("t", "", "b")
		time.Sleep(time.Minute)
		n := value[int](o, `SELECT count(*) FROM sent`)
		f.abandon()
		require.Equal(t, 2, n, "the lane would stop for good: the hook's effects refuse the repeat")
	})
}

func TestManyReleasedKeysCostNoLease(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		o.exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 2000)
			INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt)
			SELECT 'sink', i, 0, 'id' || i, 't', 1, 'k' || i, '2026-01-01T00:00:00.000000Z', '{}', '{}', 'blocked', 0 FROM n`)
		o.exec(`INSERT INTO sqlite_sequence (name, seq) VALUES ('outbox', 2000)`)
		var s script
		h := &hooked{appendable: o.store, db: o.db, followers: func() error { time.Sleep(time.Second); return nil }}
		o.one(forwarder.Sink{Sink: &s}, over(h), leased(15*time.Second))
		pass(3 * time.Minute)
		n := s.times()
		require.Len(t, n, 2000)
		require.NotContains(t, slices.Collect(maps.Values(n)), 2, "each once")
	})
}

type receipts struct {
	*script
	receipt notification.Receipt
}

func (r receipts) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	_, err := r.script.Deliver(ctx, d)
	return r.receipt, err
}

type slowRestore struct {
	*hooked
	d    time.Duration
	once *sync.Once
}

func (s slowRestore) HeldKeys(ctx context.Context, l store.Lane, halt bool, after string, limit int) ([]store.HeldKey, error) {
	s.once.Do(func() { time.Sleep(s.d) })
	return s.hooked.HeldKeys(ctx, l, halt, after, limit)
}

func TestASlowStartKeepsItsLease(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		var s script
		o.append("t", "", "a")
		o.one(forwarder.Sink{Sink: &s}, over(slowRestore{&hooked{appendable: o.store, db: o.db}, 16 * time.Second, new(sync.Once)}), leased(15*time.Second))
		pass(5 * time.Minute)
		n := s.times()
		require.Equal(t, map[string]int{"a": 1}, n)
	})
}

func TestARareTypeIsFoundUnderAStatementTimeout(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it reads a million rows")
	}
	onPostgres(t, func(t *testing.T, o *outbox) {
		o.exec(`INSERT INTO outbox (type, payload) SELECT 'usual', '{}' FROM generate_series(1, 1000000)`)
		o.append("rare", "", "rare")
		var name string
		require.NoError(t, o.db.QueryRow(`SELECT current_database()`).Scan(&name))
		o.exec(`ALTER DATABASE "` + name + `" SET statement_timeout = '30ms'`)
		o.db.SetMaxIdleConns(0) // so that sessions get the new setting
		var s script
		f := o.start(map[string]forwarder.Sink{"s": {Sink: &s}}, route.Routes{"rare": route.To("s")},
			func(c *forwarder.Config) { c.Unrouted = forwarder.UnroutedIgnore })
		var given []string
		for range 50 { // each pause allows more than 100 tries; on a busy machine many of them time out
			pass(10 * time.Minute)
			if given = s.given(); len(given) > 0 {
				break
			}
		}
		f.abandon()
		require.Equal(t, []string{"rare"}, given)
	})
}
