package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// named gives a forwarder several lanes and a name. It reads the membership once a second.
func named(name string, lanes int) func(*forwarder.Config) {
	return func(c *forwarder.Config) {
		c.Name, c.Lanes, c.Lease = name, lanes, 20*time.Second
		c.Poll = 100 * time.Millisecond
	}
}

// settleDown gives the forwarders time to read the membership several times.
func settleDown() {
	pass(10 * time.Second)
}

func TestForwardersShareLanesEvenlyAndTakeOverAtOnce(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		var first, second lines
		a := o.one(forwarder.Sink{Sink: &s}, named("a", 6), first.logging)
		settleDown()
		require.Equal(t, map[string]int{"a": 6}, o.owners(), "a single forwarder has all lanes")
		b := o.one(forwarder.Sink{Sink: &s}, named("b", 6), second.logging)
		settleDown()
		require.Equal(t, map[string]int{"a": 3, "b": 3}, o.owners())
		require.Empty(t, first.with(awaited))
		require.Len(t, second.with(awaited), 1, "while lanes are being distributed")
		o.one(forwarder.Sink{Sink: &s}, named("c", 6))
		settleDown()
		require.Equal(t, map[string]int{"a": 2, "b": 2, "c": 2}, o.owners())

		a.end()
		require.Zero(t, o.owners()["a"], "a forwarder that stops releases its lanes")
		pass(2 * time.Second)
		require.Equal(t, map[string]int{"b": 3, "c": 3}, o.owners(), "the others have them a tenth of the lease later")
		b.end()
		pass(2 * time.Second)
		require.Equal(t, map[string]int{"c": 6}, o.owners())
		o.append("t", "k", "still delivered")
		pass(time.Second)
		require.Equal(t, []string{"still delivered"}, s.given())
	})
}

// lostAnswers is a store that loses the answers of its first n leases.
type lostAnswers struct {
	appendable
	n int
}

func (l *lostAnswers) Acquire(ctx context.Context, lane store.Lane, owner string, ttl time.Duration) (store.Lease, error) {
	lease, err := l.appendable.Acquire(ctx, lane, owner, ttl)
	if err == nil && l.n > 0 {
		l.n--
		return store.Lease{}, errors.New("connection reset by peer")
	}
	return lease, err
}

func TestAnOrphanedLeaseIsAcquiredByItsOwnerAtOnce(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		lost := &lostAnswers{appendable: o.store, n: 3}
		o.one(forwarder.Sink{Sink: &s}, named("a", 1), over(lost))
		o.append("t", "", "mail")
		settleDown()
		require.Zero(t, lost.n)
		require.Equal(t, []string{"mail"}, s.given(), "long before the lease expires")
	})
}

// failsToRelease fails to release the first lane.
type failsToRelease struct {
	forwarder.Store
	released atomic.Int64
}

func (s *failsToRelease) Release(ctx context.Context, lease store.Lease) error {
	if s.released.Add(1) == 1 {
		return errors.New("connection reset")
	}
	return s.Store.Release(ctx, lease)
}

func TestALaneWhoseReleaseFailedGoesToAnotherForwarderBeforeItsLeaseEnds(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		failing := &failsToRelease{Store: o.store}
		o.one(forwarder.Sink{Sink: &s}, named("a", 2), over(failing))
		settleDown()
		o.one(forwarder.Sink{Sink: &s}, named("b", 2))
		settleDown()
		require.Greater(t, failing.released.Load(), int64(1))
		require.Equal(t, map[string]int{"a": 1, "b": 1}, o.owners())
	})
}

// Forwarders with different numbers of lanes start and stop while notifications are published. All
// stops are graceful, so each notification is delivered once, in order for its key.
func TestTheNumberOfLanesChangesWithoutLossOrRepeat(t *testing.T) {
	onEachStoreIfLong(t, func(t *testing.T, o *outbox) {
		s := &script{answer: takes(10 * time.Millisecond)}
		published := make(map[string][]string)
		n := 0
		publish := func(times int) {
			for range times {
				for k := range 7 {
					key := fmt.Sprint("k", k)
					id := fmt.Sprintf("%s-%04d", key, n)
					published[key] = append(published[key], id)
					o.append("t", key, id)
					n++
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
		f := o.one(forwarder.Sink{Sink: s}, named("a", 1))
		publish(5)
		for i, lanes := range []int{3, 2, 5} {
			g := o.one(forwarder.Sink{Sink: s}, named(fmt.Sprint(i), lanes))
			publish(60) // 50 ms each: the membership is read several times
			f.end()
			publish(5)
			f = g
		}
		settleDown()
		require.Equal(t, map[string]int{"2": 5}, o.owners())
		f.end()

		given := make(map[string][]string)
		for _, id := range s.given() {
			given[id[:2]] = append(given[id[:2]], id)
		}
		require.Equal(t, published, given)
		require.Zero(t, s.overlaps)
	})
}

// Where a clock was set, leases can expire for the database that still last for their forwarder. Others may then cut
// the lanes on which it works.
func TestAForwarderTakesNoLaneBesideThoseItWasCutFrom(t *testing.T) {
	onlyPostgres(t, func(t *testing.T, o *outbox) {
		var key string // of the lane 1
		require.NoError(t, o.db.QueryRowContext(t.Context(), `SELECT key::text FROM generate_series(1, 1000) AS key WHERE hashtextextended(key::text, 0) & 1023 > 511 LIMIT 1`).Scan(&key))
		s := &script{answer: takes(time.Minute)}
		o.one(forwarder.Sink{Sink: s, Timeout: time.Hour}, named("a", 2))
		o.append("t", key, "1")
		settleDown()
		o.exec(`DELETE FROM outbox_cursors WHERE sink = 'sink' AND lane = 0`)
		o.exec(`UPDATE outbox_cursors SET lane = 0, lanes = 1, epoch = epoch + 1, owner = NULL, lease_until = NULL WHERE sink = 'sink'`)
		pass(5 * time.Minute)
		require.Equal(t, map[string]int{"a": 1}, o.owners())
		require.Equal(t, []string{"1", "1"}, s.given())
		require.Zero(t, s.overlaps)
	})
}

func TestTheNumberOfLanesChangesOnceASinkIsAvailableAgain(t *testing.T) {
	onEachStoreIfLong(t, func(t *testing.T, o *outbox) {
		s := down(sinks.Unavailable(errors.New("connection refused")))
		f := o.one(forwarder.Sink{Sink: s}, named("a", 1))
		o.append("t", "k", "1")
		settleDown()
		o.one(forwarder.Sink{Sink: s}, named("b", 2))
		o.append("t", "k", "2")
		settleDown()
		f.end()
		settleDown()
		roster, err := o.store.Membership(t.Context())
		require.NoError(t, err)
		require.Len(t, roster.Lanes, 1, "the rows before the change are not settled")
		s.mended.Store(true)
		s.given()
		pass(5 * time.Minute) // until the sink is probed
		require.Equal(t, map[string]int{"b": 2}, o.owners())
		require.Equal(t, []string{"1", "2"}, s.given(), "both have the same key")
	})
}

// A deployment with another number of lanes can be rolled back while a forwarder is still changing
// the number.
func TestAChangeOfTheNumberOfLanesCanBeWithdrawn(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		var up, probed, ended atomic.Bool
		s.answer = func(context.Context, *notification.Delivery) error {
			if !up.Load() {
				return sinks.Unavailable(errors.New("connection refused"))
			}
			for probed.Swap(true) && !ended.Load() {
				time.Sleep(10 * time.Millisecond)
			}
			return nil
		}
		o.one(forwarder.Sink{Sink: &s}, named("a", 2))
		o.append("t", "k", "1")
		o.append("t", "l", "2")
		settleDown()
		_, err := o.store.Cut(t.Context(), "sink", 1, "")
		require.NoError(t, err)
		settleDown()
		s.given()
		up.Store(true)
		settleDown() // the forwarder that changes the lanes delivers the rows before the change
		require.ElementsMatch(t, []string{"1", "2"}, s.given())
		_, err = o.store.Cut(t.Context(), "sink", 2, "")
		require.NoError(t, err)
		settleDown()
		ended.Store(true)
		settleDown()
		require.Zero(t, s.overlaps, "no other forwarder gets a delivery in flight")
		require.Empty(t, s.given())
		require.Equal(t, map[string]int{"a": 2}, o.owners())
	})
}

const awaited = "waiting for lanes leased by another forwarder"

func TestAForwarderThatOnlyStandsBySaysWhy(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		var first, second lines
		o.one(forwarder.Sink{Sink: &s}, named("a", 1), first.logging)
		settleDown()
		o.one(forwarder.Sink{Sink: &s}, named("b", 1), second.logging)
		settleDown()
		require.Empty(t, first.with(awaited))
		require.Len(t, second.with(awaited), 1)
		require.Contains(t, second.with(awaited)[0], "raise outbox.lanes to use all of them")
	})
}

// A forwarder that starts after another one was killed delivers nothing until the leases expire.
func TestWaitingForLeasesIsLoggedOnce(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		_, err := o.store.Cut(t.Context(), "sink", 2, "")
		require.NoError(t, err)
		var dead []store.Lease
		for _, l := range store.Lanes("sink", 2) {
			lease, err := o.store.Acquire(t.Context(), l, "dead/1/abc", 30*time.Minute)
			require.NoError(t, err)
			dead = append(dead, lease)
		}
		o.append("t", "", "a")
		var s script
		var log lines
		began := time.Now()
		o.one(forwarder.Sink{Sink: &s}, named("a", 2), log.logging)
		for range 3 {
			settleDown()
		}
		require.Empty(t, s.given())
		logged := log.with(awaited)
		require.Len(t, logged, 1)
		require.NotContains(t, logged[0], "hint")
		require.Contains(t, logged[0], "owner=dead/1/abc sinks=[sink] lanes=2 leased_until="+began.Add(29*time.Minute).UTC().Format("2006-01-02T15"))

		for _, lease := range dead {
			require.NoError(t, o.store.Release(t.Context(), lease))
		}
		settleDown()
		require.Equal(t, []string{"a"}, s.given())
		require.Len(t, log.with(awaited), 1)
	})
}
