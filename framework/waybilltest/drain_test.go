package waybilltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/framework/waybilltest"
	"github.com/waybill-go/waybill/registry"
)

type (
	ordered  struct{ Order string }
	charged  struct{ Order string }
	reminded struct{ Order string }
	shipped  struct{ Order string }
)

// shop is an application that uses the facade: it charges an order, which fails twice, ships it, and
// reminds the customer a day later.
type shop struct {
	*waybill.Outbox
	db       *sql.DB
	config   waybill.Config
	attempts atomic.Int32
	log      []string // of handlers that never run at the same time
}

func onEachShop(t *testing.T, test func(t *testing.T, s *shop)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		db, err := sqlite.OpenDB(filepath.Join(t.TempDir(), "shop.db"))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		test(t, newShop(t, waybill.SQLite(db, waybill.SQLiteConfig{}), db))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		db, err := postgres.OpenDB(postgrestest.DSN(t))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		test(t, newShop(t, waybill.Postgres(db, waybill.PostgresConfig{}), db))
	})
}

func newShop(t *testing.T, o *waybill.Outbox, db *sql.DB) *shop {
	t.Helper()
	s := &shop{Outbox: o, db: db}
	waybill.Register[ordered](o, "order.placed", waybill.Key(func(n ordered) string { return n.Order }))
	waybill.Register[charged](o, "order.charged", waybill.Key(func(n charged) string { return n.Order }))
	waybill.Register[reminded](o, "order.reminded")
	waybill.Register[shipped](o, "order.shipped")
	sink := waybill.HandleTx(o, "shop", func(ctx context.Context, tx *sql.Tx, n ordered) error {
		if s.attempts.Add(1) < 3 {
			return errors.New("the bank is closed")
		}
		s.log = append(s.log, "charged "+n.Order)
		return o.Publish(ctx, tx, charged(n))
	})
	sink.Parallelism.Threshold = 1
	sink.Retry.Initial, sink.Retry.Max = time.Hour, 10*time.Hour
	waybill.HandleTx(o, "shop", func(ctx context.Context, tx *sql.Tx, n charged) error {
		s.log = append(s.log, "shipped "+n.Order)
		return o.Publish(ctx, tx, shipped(n), waybill.With(reminded(n), waybill.DeliverAt(time.Now().Add(24*time.Hour))))
	})
	waybill.HandleTx(o, "shop", func(_ context.Context, _ *sql.Tx, n reminded) error {
		s.log = append(s.log, "reminded "+n.Order)
		return nil
	})
	waybill.HandleTx(o, "shop", func(context.Context, *sql.Tx, shipped) error { return nil })
	require.NoError(t, o.Migrate(t.Context()))
	_, err := o.Forwarding()
	require.ErrorIs(t, err, waybill.ErrNotOpen)
	require.NoError(t, o.Open(t.Context()))
	s.config, err = o.Forwarding()
	require.NoError(t, err)
	return s
}

func (s *shop) place(t *testing.T, order string) {
	t.Helper()
	require.NoError(t, s.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return s.Publish(ctx, tx, ordered{order}) }))
}

func TestAChainIsDrainedWithItsRetriesAndSchedules(t *testing.T) {
	onEachShop(t, func(t *testing.T, s *shop) {
		log := waybilltest.Of(t, s.config.Store, s.Types())
		waybilltest.Drain(t, s.config) // an empty log
		s.place(t, "o-1")
		waybilltest.Drain(t, s.config)
		require.Empty(t, s.log, "it is retrying")
		require.EqualValues(t, 1, s.attempts.Load())
		waybilltest.Drain(t, s.config)
		require.EqualValues(t, 1, s.attempts.Load(), "not earlier")
		log.RequirePublished(ordered{"o-1"})

		waybilltest.Advance(t, s.config, 10*time.Hour) // both retries, and all that follows from them
		require.Equal(t, []string{"charged o-1", "shipped o-1"}, s.log)
		log.RequirePublished(ordered{"o-1"}, charged{"o-1"}, shipped{"o-1"}, reminded{"o-1"})
		waybilltest.Advance(t, s.config, 12*time.Hour)
		require.Len(t, s.log, 2, "half of the day")
		waybilltest.Advance(t, s.config, 12*time.Hour)
		require.Equal(t, []string{"charged o-1", "shipped o-1", "reminded o-1"}, s.log)
		waybilltest.Advance(t, s.config, 1000*time.Hour)
		require.Len(t, s.log, 3)
	})
}

func TestDrainWaitsForNotificationsOfHandlers(t *testing.T) {
	onEachShop(t, func(t *testing.T, s *shop) {
		s.attempts.Store(10)
		for n := range 50 {
			s.place(t, fmt.Sprint("o-", n))
		}
		waybilltest.Drain(t, s.config)
		require.Len(t, s.log, 100)
	})
}

// impatient is a store whose first samples do not count the pending rows in time.
type impatient struct {
	inspected
	left int
}

type inspected interface {
	forwarder.Store
	store.Inspector
}

func (u *impatient) Sample(ctx context.Context, q store.SampleQuery) (store.Sample, error) {
	sample, err := u.inspected.Sample(ctx, q)
	if u.left > 0 && len(sample.Sinks) > 0 {
		u.left--
		for i := range sample.Sinks {
			sample.Sinks[i].Pending, sample.Sinks[i].Estimated = 0, true
		}
	}
	return sample, err
}

func TestDrainTakesRowsThatWereNotCountedForPending(t *testing.T) {
	onEachShop(t, func(t *testing.T, s *shop) {
		u := &impatient{inspected: s.config.Store.(inspected), left: 10}
		s.config.Store = u
		waybilltest.Drain(t, s.config)
		require.Zero(t, u.left, "it goes on until they are counted")
	})
}

func TestDrainDeliversOutsideOfTheHoursOfASink(t *testing.T) {
	onEachShop(t, func(t *testing.T, s *shop) {
		sink := s.config.Sinks["shop"]
		clock := func(in time.Duration) string { return time.Now().UTC().Add(in).Format("15:04") }
		sink.Hours = forwarder.Hours{From: clock(time.Hour), To: clock(2 * time.Hour)}
		s.config.Sinks["shop"] = sink
		s.attempts.Store(1000)
		s.place(t, "o-1")
		waybilltest.Drain(t, s.config)
		require.Equal(t, []string{"charged o-1", "shipped o-1"}, s.log)
		require.Equal(t, sink.Hours, s.config.Sinks["shop"].Hours)
	})
}

func TestAdvanceMovesWaitingDeliveriesAndNotDeadOnes(t *testing.T) {
	onEachShop(t, func(t *testing.T, s *shop) {
		s.attempts.Store(-1000)
		s.config.Lanes = 4
		sink := s.config.Sinks["shop"]
		sink.Retry.MaxAttempts = 2
		sink.Breaker.Off = true
		s.config.Sinks["shop"] = sink
		for n := range 20 {
			s.place(t, fmt.Sprint("o-", n))
		}
		waybilltest.Advance(t, s.config, 10*time.Hour, waybilltest.AllowDead())
		require.EqualValues(t, -1000+40, s.attempts.Load(), "two attempts of each")
		waybilltest.Advance(t, s.config, 100*time.Hour, waybilltest.AllowDead())
		require.EqualValues(t, -1000+40, s.attempts.Load(), "they are dead")
	})
}

func TestADrainFailsIfADeliveryIsDeadUnlessThatIsAllowed(t *testing.T) {
	onEachShop(t, func(t *testing.T, s *shop) {
		s.attempts.Store(-1000)
		sink := s.config.Sinks["shop"]
		sink.Retry.MaxAttempts, sink.Breaker.Off = 1, true
		s.config.Sinks["shop"] = sink
		for n := range 7 {
			require.NoError(t, s.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				return s.Publish(ctx, tx, waybill.With(ordered{fmt.Sprint("o-", n)}, waybill.ID(fmt.Sprint("id-", n))))
			}))
		}
		waybilltest.Drain(t, s.config, waybilltest.AllowDead())
		for name, run := range map[string]func(t testing.TB){
			"drain":   func(t testing.TB) { waybilltest.Drain(t, s.config) },
			"advance": func(t testing.TB) { waybilltest.Advance(t, s.config, time.Hour) },
		} {
			found := failuresOf(t, run)
			require.Len(t, found, 1, name)
			require.Contains(t, found[0], "7 deliveries are dead; if the test expects that, add waybilltest.AllowDead():\norder.placed id-0 to shop: the bank is closed\n")
			require.Contains(t, found[0], "id-4 to shop")
			require.NotContains(t, found[0], "id-5")
			require.Contains(t, found[0], "\nand 2 more")
		}
	})
}

func TestAdvanceSettlesCancelledDeliveriesWhenTheyAreDue(t *testing.T) {
	onEachShop(t, func(t *testing.T, s *shop) {
		later := func(order string) any {
			return waybill.With(reminded{order}, waybill.ID(order), waybill.DeliverAt(time.Now().Add(time.Hour)))
		}
		require.NoError(t, s.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return s.Publish(ctx, tx, later("o-1"), later("o-2")) }))
		waybilltest.Drain(t, s.config)
		require.NoError(t, s.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			cancelled, err := s.CancelID(ctx, tx, "o-1")
			require.Equal(t, 1, cancelled)
			return err
		}))
		waybilltest.Advance(t, s.config, 30*time.Minute)
		require.Empty(t, s.log)
		waybilltest.Advance(t, s.config, time.Hour)
		require.Equal(t, []string{"reminded o-2"}, s.log)
	})
}

func TestAdvanceCallsHooksThatFailAgain(t *testing.T) {
	onEachShop(t, func(t *testing.T, s *shop) {
		s.attempts.Store(10)
		sink := s.config.Sinks["shop"]
		failures, settled := 5, 0
		sink.Hooks.Delivered = func(_ context.Context, _ *sql.Tx, all []forwarder.Delivered) error {
			if failures > 0 {
				failures--
				return errors.New("deadlock")
			}
			settled += len(all)
			return nil
		}
		s.config.Sinks["shop"] = sink
		s.place(t, "o-1")
		waybilltest.Advance(t, s.config, time.Hour)
		require.Equal(t, []string{"charged o-1", "shipped o-1"}, s.log)
		require.Equal(t, 3, settled, "the order, the charge and the shipment")
	})
}

// A hook has the same time as in a forwarder that is not of a test: a third of the lease.
func TestAHookMayTakeSecondsInADrain(t *testing.T) {
	onEachShop(t, func(t *testing.T, s *shop) {
		s.attempts.Store(10)
		sink := s.config.Sinks["shop"]
		slow, settled := true, 0
		sink.Hooks.Delivered = func(ctx context.Context, _ *sql.Tx, all []forwarder.Delivered) error {
			if slow {
				slow = false
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(1200 * time.Millisecond):
				}
			}
			settled += len(all)
			return nil
		}
		s.config.Sinks["shop"] = sink
		s.place(t, "o-1")
		waybilltest.Drain(t, s.config)
		require.Equal(t, 3, settled, "the order, the charge and the shipment")
	})
}

func TestDrainFailsWithTheMistakesOfTheConfiguration(t *testing.T) {
	t.Parallel()
	o := waybilltest.New(t, newTypes(t))
	found := failuresOf(t, func(t testing.TB) { waybilltest.Drain(t, waybill.Config{Store: o.Store}) })
	require.NotEmpty(t, found)
	require.Contains(t, found[0], "there are none")
	for _, early := range []func(t testing.TB){
		func(t testing.TB) { waybilltest.Drain(t, waybill.Config{}) },
		func(t testing.TB) { waybilltest.Of(t, nil, registry.New()) },
	} {
		found = failuresOf(t, early)
		require.NotEmpty(t, found)
		require.Contains(t, found[0], "Outbox.Forwarding, after Outbox.Open")
	}
}
