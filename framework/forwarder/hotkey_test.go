package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// window is the maximum number of rows that a lane has in memory.
const window = 16_000

// hotLog commits 14 rows of the key "hot" and 2 without a key, n times, and returns their ids.
func (o *outbox) hotLog(n int) (hot, others []string) {
	o.t.Helper()
	var rows []notification.Envelope
	for i := range n {
		for j := range 14 {
			id := fmt.Sprintf("hot%05d", i*14+j)
			hot = append(hot, id)
			rows = append(rows, notification.Envelope{ID: id, Type: "t", Key: "hot"})
		}
		for j := range 2 {
			id := fmt.Sprintf("other%05d", i*2+j)
			others = append(others, id)
			rows = append(rows, notification.Envelope{ID: id, Type: "t"})
		}
	}
	for chunk := range slices.Chunk(rows, 1000) {
		o.insert(chunk...)
	}
	return hot, others
}

// slowKey is a sink that delays each delivery of the key "hot" until it is set to be quick.
type slowKey struct {
	script
	quick atomic.Bool
	taken []string // delivered ids of the key; guarded by script
}

func newSlowKey(hold time.Duration) *slowKey {
	s := &slowKey{}
	s.answer = func(ctx context.Context, d *notification.Delivery) error {
		if d.Key != "hot" {
			return nil
		}
		if !s.quick.Load() {
			if err := takesTime(ctx, hold); err != nil {
				return err
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.taken = append(s.taken, d.ID)
		return nil
	}
	return s
}

// delivered returns the ids of the key that were delivered.
func (s *slowKey) delivered() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.taken)
}

// othersOf returns the ids that do not belong to the hot key.
func othersOf(ids []string) []string {
	return slices.DeleteFunc(ids, func(id string) bool { return strings.HasPrefix(id, "hot") })
}

func TestAHotKeyDoesNotDelayOtherKeysBeyondTheWindow(t *testing.T) {
	onEachStoreIfLong(t, func(t *testing.T, o *outbox) {
		hot, others := o.hotLog(1200) // 19,200 rows
		s := newSlowKey(10 * time.Second)
		f := o.one(forwarder.Sink{Sink: s})
		pass(55 * time.Second)
		require.Equal(t, others, slices.Sorted(slices.Values(othersOf(s.given()))))
		require.Len(t, s.delivered(), 5, "deliveries of the hot key, at 10 s each")
		require.Contains(t, o.parked(), "sink blocked "+hot[window])

		s.quick.Store(true)
		pass(time.Hour)
		require.Equal(t, hot, s.delivered(), "each once, in order")
		require.Empty(t, o.parked())
		require.Zero(t, f.Stats()[0].Pending)
	})
}

func TestAHotKeyKeepsItsOrderAcrossAGracefulStop(t *testing.T) {
	onEachStoreIfLong(t, func(t *testing.T, o *outbox) {
		hot, others := o.hotLog(1200)
		s := newSlowKey(10 * time.Second)
		f := o.one(forwarder.Sink{Sink: s})
		for range 3 {
			time.Sleep(25 * time.Second) // in the middle of a delivery
			f.end()
			f = o.one(forwarder.Sink{Sink: s})
		}
		require.Less(t, len(s.delivered()), 20)
		s.quick.Store(true)
		pass(time.Hour)
		require.Equal(t, hot, s.delivered())
		require.Equal(t, others, slices.Sorted(slices.Values(othersOf(s.given()))))
		require.Empty(t, o.parked())
	})
}

// crashedHot is an outbox whose forwarder crashed while the sink held the first
// delivery of the hot key, and later ones were parked behind it.
func crashedHot(t *testing.T, o *outbox) (s *slowKey, hot, others []string) {
	hot, others = o.hotLog(1200)
	s = newSlowKey(10 * time.Minute)
	f := o.one(forwarder.Sink{Sink: s, Timeout: time.Hour})
	pass(time.Minute)
	parked := o.parked()
	require.Greater(t, len(parked), 10_000)
	require.Equal(t, "sink blocked "+hot[1], parked[0], "the first delivery must be read from the log again")
	require.Empty(t, s.delivered())
	o.loseLeases()
	f.abandon()
	require.Empty(t, s.delivered())
	s.quick.Store(true)
	return s, hot, others
}

func TestAHotKeyKeepsItsOrderAcrossCrashes(t *testing.T) {
	onEachStoreIfLong(t, func(t *testing.T, o *outbox) {
		s, hot, others := crashedHot(t, o)
		s.quick.Store(false)
		for range 2 { // each forwarder ends while the sink delays the first delivery
			f := o.one(forwarder.Sink{Sink: s, Timeout: time.Hour})
			pass(time.Minute)
			o.loseLeases()
			f.abandon()
			require.Empty(t, s.delivered())
		}
		s.quick.Store(true)
		f := o.one(forwarder.Sink{Sink: s})
		pass(time.Hour)
		require.Equal(t, hot, s.delivered(), "the first delivery, which was not parked, is first")
		require.Equal(t, others, slices.Compact(slices.Sorted(slices.Values(othersOf(s.given())))))
		require.Empty(t, o.parked())
		require.Zero(t, f.Stats()[0].Pending)
	})
}

func TestAHotKeyContinuesAfterTheRowsOfItsParkedDeliveriesAreRemoved(t *testing.T) {
	onEachStoreIfLong(t, func(t *testing.T, o *outbox) {
		s, hot, _ := crashedHot(t, o)
		o.exec(`DELETE FROM outbox WHERE id <> 'hot00000' AND key = 'hot'`) // as an operator can
		o.one(forwarder.Sink{Sink: s})
		pass(time.Hour)
		parkedToo := s.delivered()
		require.Equal(t, hot[:len(parkedToo)], parkedToo)
		require.Greater(t, len(parkedToo), 10_000)
		require.Empty(t, o.parked())
	})
}

func TestALogOfOneKeyIsNotCopied(t *testing.T) {
	onEachStoreIfLong(t, func(t *testing.T, o *outbox) {
		for chunk := range slices.Chunk(numbered("hot", window+1000), 1000) {
			o.append("t", "hot", chunk...)
		}
		s := newSlowKey(10 * time.Second)
		f := o.one(forwarder.Sink{Sink: s})
		pass(55 * time.Second)
		require.Len(t, s.delivered(), 5)
		require.Equal(t, window-5, f.Stats()[0].Pending, "the window is full")
		require.Empty(t, o.parked())
	})
}

func TestAHotKeyIsNotCopiedWhileTheSinkIsUnavailable(t *testing.T) {
	onEachStoreIfLong(t, func(t *testing.T, o *outbox) {
		hot, others := o.hotLog(1200)
		s := down(sinks.Unavailable(errors.New("connection refused")))
		o.one(forwarder.Sink{Sink: s})
		pass(time.Minute)
		require.Empty(t, o.parked())
		s.mended.Store(true)
		pass(time.Hour)
		require.Equal(t, append(hot, others...), slices.Compact(slices.Sorted(slices.Values(s.given()))))
		require.Empty(t, o.parked())
	})
}
