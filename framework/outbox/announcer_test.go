package outbox_test

import (
	"context"
	"database/sql"
	"errors"
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

// publish commits one notification, or rolls it back if failure is set.
func publish(t testing.TB, db *sql.DB, p *outbox.Publisher, failure error) {
	t.Helper()
	err := p.RunInTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
		if err := p.Publish(ctx, tx, orderPlaced{OrderID: "o"}); err != nil {
			return err
		}
		return failure
	})
	require.ErrorIs(t, err, failure)
}

func TestOnlyACommitWithNotificationsIsAnnounced(t *testing.T) {
	t.Parallel()
	announced := make(chan struct{}, 10)
	h := &announcer{do: func(context.Context, int) error {
		announced <- struct{}{}
		return nil
	}}
	woken := 0 // counts calls of Wake
	db, _, p := setup(t, outbox.Config{Announcer: h, Wake: func() { woken++ }})
	publish(t, db, p, errors.New("no"))
	require.NoError(t, p.RunInTx(t.Context(), db, nil, func(context.Context, *sql.Tx) error { return nil }))
	require.Zero(t, woken)
	publish(t, db, p, nil)
	require.Equal(t, 1, woken)
	<-announced
	require.Equal(t, 1, h.announced())
}

func TestRapidCommitsShareAnnouncementsAndTheLastCommitIsAnnounced(t *testing.T) {
	t.Parallel()
	const commits = 1000
	h := &announcer{do: func(context.Context, int) error {
		time.Sleep(time.Millisecond)
		return nil
	}}
	db, _, p := setup(t, outbox.Config{Announcer: h})
	var last time.Time
	began := time.Now()
	for range commits {
		last = time.Now()
		publish(t, db, p, nil)
	}
	require.Eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.last.After(last)
	}, 10*time.Second, time.Millisecond)
	h.mu.Lock() // one more may be in progress
	defer h.mu.Unlock()
	atMost := int(time.Since(began)/(3*time.Millisecond)) + 2
	t.Logf("%d announcements of %d commits in %s", h.number, commits, time.Since(began))
	require.LessOrEqual(t, h.number, atMost, "2 ms rest after each")
	require.Equal(t, 1, h.most, "one announcement at a time")
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
	publish(t, db, p, nil) // announced by PostgreSQL itself
	require.NoError(t, db.Close())
	goleak.VerifyNone(t, before)
}
