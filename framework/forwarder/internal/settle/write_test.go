package settle_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/internal/lanetest"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/forwarder/internal/settle"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// numbered returns the ids n1, n2 and so on, whose numbers are also their offsets.
func numbered(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprint("n", i+1))
	}
	return ids
}

// writes records the numbers of the checkpoints, each of which takes 100 ms.
func writes(b *lanetest.Bench) *[]store.Checkpoint {
	written := new([]store.Checkpoint)
	b.OnCheckpoint = func(ctx context.Context, c store.Checkpoint, next func() error) error {
		err := next()
		if err == nil && c.Number > 0 {
			*written = append(*written, c)
		}
		return errors.Join(err, lanetest.Sleep(ctx, 100*time.Millisecond))
	}
	return written
}

func TestRangesSettledBeforeAreRemovedOnceTheyAreRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, kept []int64 // kept by the checkpoint that settles the first three rows
	}{
		"all ranges are read": {[]int64{2, 3}, nil},
		"one is not read yet": {[]int64{2, 5}, []int64{2, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
				b.Append(numbered(6)...)
				b.Lease.Settled = store.OffsetRanges(c.before...)
				written := writes(b)
				checkpointer, l := begin(t, b)
				l.Add(b.Read(3))
				synctest.Wait()
				run(t, checkpointer)
				synctest.Wait()
				require.Len(t, *written, 1)
				require.Equal(t, store.OffsetRanges(c.kept...), (*written)[0].Settled)
			})
		})
	}
}

// While hooks fail, a checkpoint contains only a part of the settled rows. The last part removes the rows
// that were settled before from the window.
func TestEachPartOfACheckpointHasTheRangesSettledBefore(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
		const n = 10
		b.Append(numbered(n)...)
		b.Lease.Settled = []store.OffsetRange{{First: 2, Last: n - 1}}
		settings := b.Dispatcher.Settings()
		settings.Parallelism.Threshold = 2
		b.Dispatcher.Adjust(settings)
		first := make(chan struct{})
		b.Answer = func(ctx context.Context, d *notification.Delivery) error {
			if d.ID == "n1" {
				select {
				case <-first:
				case <-ctx.Done():
				}
			}
			return nil
		}
		var fails atomic.Int64 // number of failures left
		hooks := policy.Hooks{Delivered: func(context.Context, *sql.Tx, []policy.Delivered) error {
			if fails.Add(-1) >= 0 {
				return errors.New("not yet")
			}
			return nil
		}}
		written := writes(b)
		c, l := begin(t, b, func(c *settle.Config) { c.Hooks = hooks })
		fails.Store(2)
		l.Add(b.Read(n))
		synctest.Wait()
		run(t, c)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Greater(t, len(*written), 2)
		for _, w := range *written {
			require.EqualValues(t, 2, w.Settled[0].First)
			require.GreaterOrEqual(t, w.Settled[0].Last, int64(n-1))
		}

		close(first)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		*written = nil
		b.Append("one", "two", "three")
		l.Add(b.Read(1))
		time.Sleep(50 * time.Millisecond)
		fails.Store(1)
		l.Add(b.Read(2)) // two calls wait for the end of the first one's checkpoint
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Len(t, *written, 3)
		for _, w := range *written {
			require.Empty(t, w.Settled, "it is before the position")
		}
	})
}

// A part of a checkpoint that a hook has failed leaves the position before what it does not settle.
func TestAPartOfACheckpointMovesThePositionNoFarther(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
		const n = 10
		b.Append(numbered(n)...)
		settled := 0
		hooks := policy.Hooks{Delivered: func(_ context.Context, _ *sql.Tx, all []policy.Delivered) error {
			if len(all) > 3 {
				return errors.New("too many")
			}
			settled += len(all)
			return nil
		}}
		parts := 0
		c, l := begin(t, b, func(c *settle.Config) { c.Hooks = hooks })
		l.Add(b.Read(n))
		require.Len(t, b.Given(), n)
		b.OnCheckpoint = func(_ context.Context, k store.Checkpoint, next func() error) error {
			err := next()
			if err == nil && k.Number > 0 {
				position, encoding := k.Position.MarshalJSON()
				assert.NoError(t, encoding)
				assert.JSONEq(t, fmt.Sprintf(`{"offset": %d}`, settled), string(position))
				parts++
			}
			return err
		}
		run(t, c)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Equal(t, n, settled)
		require.Greater(t, parts, 3)
	})
}

func TestASlowRenewalDelaysNothing(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
		b.Append("a")
		b.OnCheckpoint = func(ctx context.Context, _ store.Checkpoint, next func() error) error {
			return errors.Join(lanetest.Sleep(ctx, 5*time.Second), next())
		}
		c, l := begin(t, b)
		require.NoError(t, c.Restore(t.Context()))
		l.Add(b.Read(1))
		require.Equal(t, []string{"a"}, b.Given())
	})
}

func TestALeaseIsRenewedInTimeAfterASlowCheckpoint(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
		const ttl = 1500 * time.Millisecond // a rest takes up to a second
		var renewals atomic.Int64
		last := time.Now() // is the checkpointer's
		b.OnCheckpoint = func(ctx context.Context, _ store.Checkpoint, next func() error) error {
			renewals.Add(1)
			assert.LessOrEqual(t, time.Since(last), ttl/3)
			last = time.Now()
			return errors.Join(lanetest.Sleep(ctx, ttl/5), next())
		}
		c, _ := begin(t, b, func(c *settle.Config) { c.TTL = ttl })
		run(t, c)
		time.Sleep(10 * ttl)
		require.GreaterOrEqual(t, renewals.Load(), int64(25))
	})
}

func TestNoDeliveryBeginsWhileACheckpointIsTooSlow(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
		var takes atomic.Int64
		b.OnCheckpoint = func(ctx context.Context, _ store.Checkpoint, next func() error) error {
			return errors.Join(lanetest.Sleep(ctx, time.Duration(takes.Load())), next())
		}
		c, l := begin(t, b)
		run(t, c)
		add := func(id string) {
			b.Append(id)
			l.Add(b.Read(1))
		}
		takes.Store(int64(5 * time.Second))
		add("first")
		time.Sleep(200 * time.Millisecond)
		add("soon")
		require.Contains(t, b.Given(), "soon", "250 ms are not too slow")
		time.Sleep(100 * time.Millisecond)
		add("late")
		require.NotContains(t, b.Given(), "late")
		time.Sleep(5 * time.Second)
		require.Contains(t, b.Given(), "late", "the checkpoint is written")

		takes.Store(int64(10 * time.Second)) // everything after the first second
		time.Sleep(8 * time.Second)
		add("later")
		require.Contains(t, b.Given(), "later", "a constantly slow database delays no deliveries")
	})
}

func TestNoDeliveryBeginsBetweenAFailedCheckpointAndASuccessfulOne(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
		var fails atomic.Bool
		var renewals atomic.Int64
		b.OnCheckpoint = func(_ context.Context, c store.Checkpoint, next func() error) error {
			switch {
			case c.Number == 0:
				renewals.Add(1)
			case fails.Load():
				return errors.New("the disk is full")
			}
			return next()
		}
		c, l := begin(t, b)
		run(t, c)
		fails.Store(true)
		b.Append("first", "second")
		l.Add(b.Read(1))
		require.Equal(t, []string{"first"}, b.Given())
		time.Sleep(100 * time.Millisecond) // the checkpoint must be written by then
		l.Add(b.Read(1))
		time.Sleep(time.Minute)
		require.Equal(t, []string{"first"}, b.Given())
		require.Positive(t, renewals.Load(), "renewals succeed, but do not suffice")
		fails.Store(false)
		time.Sleep(time.Second)
		require.Equal(t, []string{"first", "second"}, b.Given())
	})
}

// A checkpoint whose answer was lost is written already when it is repeated, and then the database does not
// renew the lease.
func TestNoDeliveryBeginsAfterTheLeaseOfARepeatedCheckpoint(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
		const away = lanetest.TTL * 9 / 10
		var until atomic.Int64 // when the lease ends in the database, in Unix nanoseconds
		var numbers []int64
		var cut, back time.Time
		b.OnCheckpoint = func(_ context.Context, c store.Checkpoint, next func() error) error {
			now := time.Now()
			if !cut.IsZero() && now.Before(back) {
				return errors.New("connection refused")
			}
			if !cut.IsZero() && len(numbers) == 1 && c.Number == 0 {
				return errors.New("connection refused") // the repeated checkpoint is the first to get through
			}
			if err := next(); err != nil {
				return err
			}
			if c.Number == 0 || !slices.Contains(numbers, c.Number) {
				until.Store(now.Add(c.TTL).UnixNano())
			}
			if c.Number > 0 {
				numbers = append(numbers, c.Number)
			}
			if cut.IsZero() && c.Number > 0 {
				cut, back = now, now.Add(away)
				return errors.New("the connection was lost before the answer")
			}
			return nil
		}
		var late []string
		b.Answer = func(_ context.Context, d *notification.Delivery) error {
			if d.ID == "second" && time.Now().UnixNano() > until.Load() {
				late = append(late, d.ID)
			}
			return nil
		}
		c, l := begin(t, b)
		run(t, c)
		b.Append("first", "second")
		l.Add(b.Read(1))
		time.Sleep(lanetest.TTL + time.Second)
		l.Add(b.Read(1))
		require.Equal(t, []string{"first", "second"}, b.Given())
		require.Equal(t, []int64{1, 1}, numbers[:2])
		require.Empty(t, late)
	})
}

// The database counts a lease from the request for it, however late the answer comes.
func TestALeaseIsCountedFromItsRequest(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
		const late = lanetest.TTL * 9 / 10
		requests := make(chan time.Time, 1)
		var asked atomic.Bool
		b.OnCheckpoint = func(ctx context.Context, _ store.Checkpoint, next func() error) error {
			if asked.Swap(true) { // after the late answer none comes
				<-ctx.Done()
				return ctx.Err()
			}
			requests <- time.Now()
			if err := next(); err != nil {
				return err
			}
			return lanetest.Sleep(ctx, late)
		}
		b.Append("in time", "too late")
		c, l := begin(t, b)
		ended := make(chan error, 1)
		go func() { ended <- c.Run(t.Context(), t.Context()) }()
		requested := <-requests
		time.Sleep(late + 500*time.Millisecond)
		l.Add(b.Read(1))
		require.Equal(t, []string{"in time"}, b.Given())
		time.Sleep(lanetest.TTL - time.Since(requested) + time.Second)
		l.Add(b.Read(1))
		time.Sleep(time.Second)
		require.Equal(t, []string{"in time"}, b.Given())
		require.ErrorContains(t, <-ended, "the lease expired")
	})
}

func TestNoDeliveryBeginsWhileTheDatabaseIsSilent(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
		var slow, silent atomic.Bool
		b.OnHeldKeys = func(ctx context.Context, _ string) ([]store.HeldKey, error) {
			if slow.Load() || silent.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, nil
		}
		b.OnCheckpoint = func(ctx context.Context, _ store.Checkpoint, next func() error) error {
			for silent.Load() {
				if err := lanetest.Sleep(ctx, 100*time.Millisecond); err != nil {
					return err
				}
			}
			return next()
		}
		revised := make(chan struct{})
		c, l := begin(t, b, func(c *settle.Config) { c.Revised = revised })
		run(t, c)
		add := func(id string) {
			b.Append(id)
			l.Add(b.Read(1))
		}
		time.Sleep(time.Second)

		slow.Store(true)
		revised <- struct{}{}
		time.Sleep(2 * time.Second)
		add("meanwhile")
		require.Equal(t, []string{"meanwhile"}, b.Given(), "only the parked table takes long")
		slow.Store(false)
		time.Sleep(time.Minute)

		silent.Store(true)
		revised <- struct{}{}
		time.Sleep(600 * time.Millisecond) // twice 250 ms: once for the reading, once for the query
		add("unwritten")
		require.NotContains(t, b.Given(), "unwritten")
		time.Sleep(9 * time.Second)
		require.NotContains(t, b.Given(), "unwritten", "the reading timed out, and nothing is written yet")
		silent.Store(false)
		time.Sleep(time.Second)
		require.Contains(t, b.Given(), "unwritten")
	})
}

func TestDeliveriesBeginAgainAsSoonAsTheDatabaseAnswers(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
		var down atomic.Bool
		b.OnHeldKeys = func(ctx context.Context, _ string) ([]store.HeldKey, error) {
			for down.Load() {
				if err := lanetest.Sleep(ctx, 10*time.Millisecond); err != nil {
					return nil, err
				}
			}
			return nil, nil
		}
		b.OnCheckpoint = func(_ context.Context, _ store.Checkpoint, next func() error) error {
			if down.Load() {
				return errors.New("connection refused")
			}
			return next()
		}
		revised := make(chan struct{})
		c, l := begin(t, b, func(c *settle.Config) { c.Revised = revised })
		run(t, c)
		time.Sleep(lanetest.TTL/3 + time.Second) // the lease was just renewed
		down.Store(true)
		revised <- struct{}{}
		time.Sleep(time.Second)
		b.Append("row")
		l.Add(b.Read(1))
		require.Empty(t, b.Given())
		down.Store(false)
		time.Sleep(time.Second)
		require.Equal(t, []string{"row"}, b.Given())
	})
}

func TestSettledRowsWaitForTheirCheckpointWhileOldVersionsAreKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		old   int
		fails bool
		after time.Duration // the second row is settled
	}{
		"none":                    {old: 0, after: 25 * time.Millisecond},
		"a few":                   {old: 200, after: 25 * time.Millisecond},
		"many":                    {old: 3000, after: 300 * time.Millisecond},
		"a million":               {old: 1_000_000, after: time.Second},
		"what is parked does not": {old: 1_000_000, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lanetest.Run(t, func(t *testing.T, b *lanetest.Bench) {
				b.Append("first", "second")
				b.Old = c.old
				var mu sync.Mutex
				var written []time.Time
				b.OnCheckpoint = func(_ context.Context, k store.Checkpoint, next func() error) error {
					if k.Number > 0 {
						mu.Lock()
						written = append(written, time.Now())
						mu.Unlock()
					}
					return next()
				}
				b.Answer = func(_ context.Context, d *notification.Delivery) error {
					if c.fails && d.ID == "second" {
						return errors.New("not now")
					}
					return nil
				}
				checkpointer, l := begin(t, b)
				run(t, checkpointer)
				l.Add(b.Read(1))
				time.Sleep(2 * time.Second)
				settled := time.Now()
				l.Add(b.Read(1))
				time.Sleep(2 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				require.GreaterOrEqual(t, len(written), 2)
				require.Equal(t, c.after, written[1].Sub(settled))
			})
		})
	}
}
