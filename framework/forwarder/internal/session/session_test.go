package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/internal/feed"
	"github.com/waybill-go/waybill/framework/forwarder/internal/lanetest"
	"github.com/waybill-go/waybill/framework/forwarder/internal/session"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// looking runs a feed on a bench until the end of the test. The feed looks at the log only when it is
// woken.
func looking(t *testing.T, b *lanetest.Bench) *feed.Feed {
	f := feed.New(feed.Config{Log: b, PollMin: time.Hour, PollMax: time.Hour, PageRows: 100, Logger: slog.New(slog.DiscardHandler)})
	ended := make(chan struct{})
	go func() { f.Run(t.Context()); close(ended) }()
	t.Cleanup(func() { <-ended })
	return f
}

// look makes a feed look at the log, and waits until everything that can follow has happened.
func look(f *feed.Feed) {
	f.Wake()
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
}

// work runs a session on the lane of a bench until it ends by itself or the test ends.
func work(t *testing.T, b *lanetest.Bench, targets feed.Targets, f *feed.Feed) (ended chan error) {
	return workUntil(t, t.Context(), sessionOn(b, targets, f))
}

func sessionOn(b *lanetest.Bench, targets feed.Targets, f *feed.Feed) session.Session {
	return session.Session{
		Store: b, Dispatcher: b.Dispatcher, Lease: b.Lease, Leased: time.Now(), TTL: lanetest.TTL,
		Types: notification.AllTypes, Targets: targets, Feed: f,
	}
}

// workUntil runs a session until stop is done or it ends by itself.
func workUntil(t *testing.T, stop context.Context, s session.Session) (ended chan error) {
	ended, done := make(chan error, 1), make(chan struct{})
	go func() {
		ended <- s.Work(stop, t.Context(), context.WithoutCancel(t.Context()))
		close(done)
	}()
	t.Cleanup(func() { <-done })
	return ended
}

func TestReleasingALaneBeforeItStartsIsNoError(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
		stop, release := context.WithCancel(t.Context())
		b.OnHeldKeys = func(ctx context.Context, _ string) ([]store.HeldKey, error) {
			release()
			return nil, ctx.Err()
		}
		ended := workUntil(t, stop, sessionOn(b, looking(t, b).Since(time.Now()), nil))
		synctest.Wait()
		require.NoError(t, <-ended, "the lease can be released")
	})
}

func TestASessionEndsWithItsLeaseWhateverItsReaderWaitsFor(t *testing.T) {
	t.Parallel()
	const hangs = 5 * time.Second
	for name, c := range map[string]struct {
		payload int // of the last row that is read
		page    time.Duration
	}{
		"room":                      {lanetest.Memory, 0},
		"a page that does not come": {1, hangs},
		"a newer target":            {1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
				var takes atomic.Int64
				b.OnPage = func() { time.Sleep(time.Duration(takes.Load())) } // even if its context is done
				b.OnCheckpoint = func(_ context.Context, k store.Checkpoint, next func() error) error {
					if k.Number > 0 {
						return store.ErrLeaseLost
					}
					return next()
				}
				b.Answer = func(ctx context.Context, d *notification.Delivery) error {
					if d.ID == "first" {
						return lanetest.Sleep(ctx, time.Second)
					}
					return errors.Join(lanetest.Sleep(ctx, 500*time.Millisecond), errors.New("503"))
				}
				b.Append("first", "second")
				b.AppendSized("third", c.payload)
				f := looking(t, b)
				ended := work(t, b, f.Since(time.Now()), nil)
				look(f)
				require.Equal(t, []string{"first"}, b.Given())
				takes.Store(int64(c.page))
				b.Append("fourth")
				look(f)
				time.Sleep(2 * time.Second) // the first one is delivered, and the lease is lost
				synctest.Wait()
				require.Equal(t, []string{"first", "second"}, b.Given())
				require.Zero(t, b.Dispatcher.Stats().Failed, "a result after the loss does not count")
				time.Sleep(c.page)
				synctest.Wait()
				select {
				case err := <-ended:
					require.ErrorIs(t, err, store.ErrLeaseLost)
				default:
					t.Fatal("the session has not ended")
				}
				require.Len(t, b.Given(), 2)
			})
		})
	}
}

// member is a lane that the feed reads for.
type member struct{ ids []string }

func (m *member) Offer(page store.Page) bool {
	for _, e := range page.Envelopes {
		m.ids = append(m.ids, e.ID)
	}
	return true
}

func (m *member) GiveUp(error) {}

// A reader that begins again in another log may read past the target. If the lane then joined the feed at
// the target, where another lane stands, it would get those rows twice.
func TestALaneThatStartedAgainInAnotherLogJoinsTheFeedAtALaterTarget(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
		b.Append("one", "two")
		f := looking(t, b)
		targets := f.Since(time.Now())
		look(f)
		at, _ := targets.Latest()
		var other member
		require.NotNil(t, f.Join(t.Context(), &other, store.Filter{Slots: b.Lease.Lane.Slots, Types: notification.AllTypes}, at, b.Read(10).End))

		b.AppendSized("three", 9<<20)                      // a separate page
		b.Append("four")                                   // the feed has not seen it
		b.Lease.Position = json.RawMessage(`{"offset":9}`) // of a log that no longer exists
		work(t, b, targets, f)
		time.Sleep(time.Second)
		require.Equal(t, []string{"one", "two", "three", "four"}, b.Given())
		require.Equal(t, []string{"three", "four"}, other.ids)

		b.Append("five")
		look(f)
		require.Equal(t, []string{"one", "two", "three", "four", "five"}, b.Given())
		require.Equal(t, []string{"three", "four", "five"}, other.ids)
	})
}

// A page may be short since its rows are large. Where others stand, the feed passes over what the lane has not read.
func TestALaneJoinsTheFeedAfterTheLastPageAndNotAfterAShortOne(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
		b.AppendSized("large", 9<<20)
		b.Append("behind")
		f := looking(t, b)
		targets := f.Since(time.Now())
		look(f)
		at, _ := targets.Latest()
		require.Len(t, b.Read(10).Envelopes, 1)
		end := b.Read(10)
		require.True(t, end.CaughtUp)
		require.NotNil(t, f.Join(t.Context(), new(member), store.Filter{Slots: b.Lease.Lane.Slots, Types: notification.AllTypes}, at, end.End))
		work(t, b, targets, f)
		time.Sleep(time.Second)
		b.Append("later")
		look(f)
		time.Sleep(time.Second)
		require.Equal(t, []string{"large", "behind", "later"}, b.Given())
	})
}

func TestRowsThatBecameDueAfterTheStateOfAPageAreParked(t *testing.T) {
	t.Parallel()
	for _, fed := range []bool{false, true} {
		lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
			publish := func(id string) {
				_, err := b.DB.ExecContext(t.Context(), `INSERT INTO outbox (id, type, payload, deliver_at) VALUES (?, 't', '{}', ?)`,
					id, time.Now().Add(time.Second).UTC().Format("2006-01-02T15:04:05.000000Z"))
				require.NoError(t, err)
				time.Sleep(2 * time.Second)
			}
			var states []store.State
			b.OnCheckpoint = func(_ context.Context, c store.Checkpoint, next func() error) error {
				for _, p := range c.Park {
					states = append(states, p.State)
				}
				return next()
			}
			f := looking(t, b)
			b.Asked = time.Now()
			if fed {
				work(t, b, f.Since(time.Now()), f)
				look(f)
			}
			publish("due")
			if !fed {
				work(t, b, f.Since(time.Now()), nil)
			}
			look(f)
			time.Sleep(time.Second)
			require.Equal(t, []string{"due"}, b.Given())
			require.Equal(t, []store.State{store.StateScheduled}, states)
		})
	}
}
