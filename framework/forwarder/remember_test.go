package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// forgetful is a store whose checkpoints fail, or commit and lose their answer, as configured.
type forgetful struct {
	*hooked
	fails, losesAnswers atomic.Bool
}

func newForgetful(o *outbox) *forgetful {
	s := &forgetful{hooked: &hooked{appendable: o.store}}
	s.checkpoint = func(_ context.Context, _ store.Checkpoint, next func() error) error {
		if s.fails.Load() {
			return errors.New("connection refused")
		}
		err := next()
		if err == nil && s.losesAnswers.Load() {
			return errors.New("connection reset")
		}
		return err
	}
	return s
}

// works ends the failures.
func (s *forgetful) works() {
	s.fails.Store(false)
	s.losesAnswers.Store(false)
}

func TestDeliveriesWithoutACheckpointAreRememberedByTheNextLease(t *testing.T) {
	for _, key := range []string{"", "k"} {
		for name, trouble := range map[string]func(s *forgetful){
			"checkpoints fail":                  func(s *forgetful) { s.fails.Store(true) },
			"the answers are lost":              func(s *forgetful) { s.losesAnswers.Store(true) },
			"one fails, and one answer is lost": func(s *forgetful) { s.fails.Store(true); s.losesAnswers.Store(true) },
		} {
			t.Run(fmt.Sprintf("key %q, %s", key, name), func(t *testing.T) {
				onEachStore(t, func(t *testing.T, o *outbox) {
					s, db := &script{}, newForgetful(o)
					hooks := noted(o, func(string) error { return nil })
					f := o.one(forwarder.Sink{Sink: s, Hooks: hooks}, over(db), leased(15*time.Second))
					f.publish("t", key, "before")
					trouble(db)
					ids := numbered("n", 10)
					f.publish("t", key, ids...)
					time.Sleep(time.Second)
					db.fails.Store(false)
					time.Sleep(time.Second)
					o.expireLeases()
					db.works()
					pass(time.Minute)
					given := s.given()
					all := append([]string{"before"}, ids...)
					require.ElementsMatch(t, all, given, "each once")
					if key != "" {
						require.Equal(t, all, given)
					}
					calls := o.noted()
					require.Len(t, calls, len(all), "each once in the hooks")
					require.Len(t, slices.Compact(slices.Sorted(slices.Values(calls))), len(all))
					require.Equal(t, len(all), o.receipts())
					require.Zero(t, f.Stats()[0].Pending)
					f.publish("t", key, "after")
					require.Equal(t, []string{"after"}, s.given())
				})
			})
		}
	}
}

func TestNothingIsRememberedAfterAnotherForwarderHadTheLane(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s, db := &script{}, newForgetful(o)
		f := o.one(forwarder.Sink{Sink: s}, over(db), leased(15*time.Second))
		f.flush()
		db.fails.Store(true)
		f.publish("t", "", "a", "b")
		o.loseLeases()
		db.works()
		pass(time.Minute)
		require.ElementsMatch(t, []string{"a", "b", "a", "b"}, s.given())
	})
}

func TestADeliveryThatEndsWithinASecondAfterItsLeaseIsRemembered(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		const quick = 1500 * time.Millisecond
		s := &script{answer: func(ctx context.Context, d *notification.Delivery) error {
			if d.ID == "slow" && d.Attempt == 1 {
				return takesTime(ctx, 10*time.Second)
			}
			return takesTime(ctx, quick)
		}}
		// The forwarder renews the lease after a second, and then notices the loss.
		f := o.one(forwarder.Sink{Sink: s}, leased(3*time.Second))
		f.flush()
		time.Sleep(5 * time.Second)
		f.publish("t", "", "a", "b", "slow")
		o.expireLeases()
		pass(time.Minute)
		require.ElementsMatch(t, []string{"a", "b", "slow", "slow"}, s.given(), "a cancelled delivery is repeated")
		require.Equal(t, 3, o.receipts())
	})
}

func TestAParkedDeliveryIsRemembered(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile string // an operator's statement
		again     bool
	}{
		"unchanged":             {},
		"unless it is put back": {`UPDATE outbox_parked SET state = 'retrying', attempt = 0 WHERE id = 'late'`, true},
	} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, o *outbox) {
				db := newForgetful(o)
				s := &script{answer: failsOnce(errors.New("once"), "late")}
				f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Initial: time.Second}}, over(db), leased(15*time.Second))
				f.flush()
				f.publish("t", "k", "late", "behind")
				require.Equal(t, []string{"sink retrying late", "sink blocked behind"}, o.parked())
				db.fails.Store(true)
				time.Sleep(3 * time.Second)
				require.Equal(t, []string{"late", "late"}, s.given(), "it is delivered, but not settled")
				if c.meanwhile != "" {
					o.exec(c.meanwhile)
				}
				o.expireLeases()
				db.works()
				pass(time.Minute)
				want := []string{"behind"}
				if c.again {
					want = []string{"late", "behind"}
				}
				require.Equal(t, want, s.given())
				require.Empty(t, o.parked())
				require.Equal(t, 2, o.receipts())
			})
		})
	}
}

// TestAReplayIsDeliveredAlthoughTheDeliveryWasRemembered commits the checkpoint of a requeued delivery and
// loses its answer. The remembered delivery then has no row in the table, and must not be
// mistaken for a later row with the same offset and id.
func TestAReplayIsDeliveredAlthoughTheDeliveryWasRemembered(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		db := newForgetful(o)
		s := down(sinks.Permanent(errors.New("no")))
		f := o.one(forwarder.Sink{Sink: s}, over(db), leased(15*time.Second))
		f.publish("t", "", "a")
		require.Equal(t, []string{"sink dead a"}, o.parked())
		s.mended.Store(true)
		db.losesAnswers.Store(true)
		p := newOperator(o)
		require.Equal(t, 1, p.requeue(store.ParkedFilter{}))
		time.Sleep(3 * time.Second)
		require.Empty(t, o.parked())
		o.expireLeases()
		db.works()
		pass(time.Minute)
		require.Equal(t, []string{"a", "a"}, s.given())

		_, err := o.store.Replay(t.Context(), store.ReplayBatch{Action: p.begin(), Limit: 10, ReplayQuery: store.ReplayQuery{Sink: "sink", UpTo: 100}})
		require.NoError(t, err)
		pass(time.Minute)
		require.Equal(t, []string{"a"}, s.given(), "the operator has requested it")
		require.Empty(t, o.parked())
	})
}
