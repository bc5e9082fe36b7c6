package outbox_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// announcer counts calls of Announce, and calls do if it is set.
type announcer struct {
	do func(ctx context.Context, number int) error

	mu     sync.Mutex
	number int
	most   int // most calls at once
	now    int
	last   time.Time // beginning of the last call
}

func (h *announcer) Announce(ctx context.Context) error {
	h.mu.Lock()
	h.number++
	h.now++
	h.most = max(h.most, h.now)
	h.last = time.Now()
	number := h.number
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.now--
	}()
	if h.do == nil {
		return nil
	}
	return h.do(ctx, number)
}

func (h *announcer) announced() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.number
}

func TestRapidCommitsShareAnnouncementsAndTheLastCommitIsAnnounced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &announcer{do: func(context.Context, int) error {
			time.Sleep(time.Millisecond)
			return nil
		}}
		p, err := outbox.New(newTypes(t), new(postgres.Store), outbox.Config{Announcer: h})
		require.NoError(t, err)
		began := time.Now()
		var last time.Time
		for range 1000 {
			last = time.Now()
			p.Announce()
			time.Sleep(100 * time.Microsecond)
		}
		rapid := time.Since(began)
		time.Sleep(time.Second)
		synctest.Wait()
		require.False(t, h.last.Before(last))
		require.InDelta(t, rapid/(11*time.Millisecond), h.number, 5, "10 ms rest after most of them")
		require.Equal(t, 1, h.most, "one announcement at a time")
	})
}

func TestCommitsDuringAnAnnouncementShareTheNextOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun, proceed := make(chan struct{}), make(chan struct{})
		h := &announcer{do: func(context.Context, int) error {
			begun <- struct{}{}
			<-proceed
			return nil
		}}
		p, err := outbox.New(newTypes(t), new(postgres.Store), outbox.Config{Announcer: h})
		require.NoError(t, err)
		p.Announce()
		<-begun
		for range 1000 {
			p.Announce()
		}
		synctest.Wait()
		require.Equal(t, 1, h.announced(), "one announcement in progress")
		proceed <- struct{}{}
		<-begun
		proceed <- struct{}{}
		time.Sleep(time.Hour)
		require.Equal(t, 2, h.announced())

		p.Announce()
		<-begun
		proceed <- struct{}{}
	}) // synctest fails if a goroutine is left
}

func TestAnAnnouncementTimesOutAfterASecondAndDelaysNoPublisher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &announcer{do: func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		woken := 0
		p, err := outbox.New(newTypes(t), new(postgres.Store), outbox.Config{Announcer: h, Wake: func() { woken++ }})
		require.NoError(t, err)
		began := time.Now()
		p.Announce()
		synctest.Wait()
		p.Announce()
		require.Zero(t, time.Since(began), "the publisher did not wait")
		require.Equal(t, 2, woken, "the forwarder of this process is woken at once")
		time.Sleep(1100 * time.Millisecond)
		require.Equal(t, 2, h.announced(), "the next announcement begins when the first has timed out")
		time.Sleep(time.Hour)
		require.Equal(t, 2, h.announced())
	})
}

func TestALogAnnouncesUnlessThePublisherIsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for configured, want := range map[store.Announcer]int{nil: 1, outbox.Silent: 0} {
			h := new(announcer)
			p, err := outbox.New(newTypes(t), announcingLog{new(postgres.Store), h}, outbox.Config{Announcer: configured})
			require.NoError(t, err)
			p.Announce()
			synctest.Wait()
			require.Equal(t, want, h.announced())
		}
	})
}

// announcingLog is a log whose announcer the test provides.
type announcingLog struct {
	outbox.Log
	*announcer
}

// Not parallel: it checks all goroutines of the process.
func TestAnnouncingLeavesNoGoroutines(t *testing.T) {
	db, _, p := setup(t, outbox.Config{})
	before := goleak.IgnoreCurrent()
	publish(t, db, p, orderPlaced{OrderID: "o"}) // announced by PostgreSQL itself
	require.NoError(t, db.Close())
	goleak.VerifyNone(t, before)
}
