package prune_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder/internal/prune"
	"github.com/waybill-go/waybill/framework/store"
)

const lease = 15 * time.Second

// outbox is a log that a pruner works on, and a record of what the pruner did. The test holds the mutex
// all the time except in wait.
type outbox struct {
	mu        sync.Mutex
	failed    sync.Once
	prunable  []bool // whether each row may be removed, in the order of offsets
	leftovers map[store.Leftover]int
	noInbox   bool // the inbox cannot be used
	holders   []store.Holder
	cut       bool          // the log is partitioned
	owner     string        // of the lease; "": none
	takes     time.Duration // of each transaction
	err       error         // of each transaction

	renewed           []time.Time
	looks             []time.Time // when the pruner looked at rows
	most              int         // largest number of rows in one transaction
	ages              map[store.Leftover]time.Duration
	extended, dropped int // times
	log               bytes.Buffer
}

// wait lets the pruner work for a while.
func (o *outbox) wait(d time.Duration) {
	o.mu.Unlock()
	defer o.mu.Lock()
	time.Sleep(d)
	synctest.Wait()
}

func (o *outbox) transaction(ctx context.Context, do func() error) error {
	o.mu.Lock()
	takes := o.takes
	o.mu.Unlock()
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return o.err
	}
	return do()
}

func (o *outbox) Cut(ctx context.Context, sink string, lanes int, _ store.Start) (store.Created, error) {
	return store.Created{}, o.transaction(ctx, func() error {
		if sink != store.SinkPruner || lanes != 1 {
			return errors.New("not the pruner's")
		}
		return nil
	})
}

func (o *outbox) Acquire(ctx context.Context, lane store.Lane, owner string, _ time.Duration) (store.Lease, error) {
	return store.Lease{Lane: lane, Owner: owner}, o.transaction(ctx, func() error {
		if o.owner != "" && o.owner != owner {
			return store.ErrLeaseHeld
		}
		o.owner = owner
		return nil
	})
}

func (o *outbox) Checkpoint(ctx context.Context, c store.Checkpoint) error {
	return o.transaction(ctx, func() error {
		if o.owner != c.Lease.Owner {
			return store.ErrLeaseLost
		}
		o.renewed = append(o.renewed, time.Now())
		return nil
	})
}

func (o *outbox) Release(ctx context.Context, l store.Lease) error {
	return o.transaction(ctx, func() error {
		if o.owner == l.Owner {
			o.owner = ""
		}
		return nil
	})
}

// Prune takes a row's index in prunable, counted from 1, as its offset. Rows behind a removed one move up.
func (o *outbox) Prune(ctx context.Context, p store.Pruning) (pruned store.Pruned, err error) {
	began := time.Now()
	err = o.transaction(ctx, func() error {
		o.looks = append(o.looks, began)
		o.most = max(o.most, p.Limit)
		after := int(p.After)
		end := min(after+p.Limit, len(o.prunable))
		kept := slices.DeleteFunc(slices.Clone(o.prunable[after:end]), func(may bool) bool { return may })
		pruned = store.Pruned{Looked: end - after, Removed: end - after - len(kept), Through: p.After + int64(len(kept))}
		o.prunable = slices.Concat(o.prunable[:after], kept, o.prunable[end:])
		return nil
	})
	return pruned, err
}

func (o *outbox) PruneLeftovers(ctx context.Context, kind store.Leftover, age time.Duration, limit int) (n int, err error) {
	err = o.transaction(ctx, func() error {
		if o.ages == nil {
			o.ages = make(map[store.Leftover]time.Duration)
		}
		o.ages[kind] = age
		if kind == store.LeftoverIDs && o.noInbox {
			return errors.New("permission denied for table outbox_inbox")
		}
		if n = min(limit, o.leftovers[kind]); n > 0 {
			o.leftovers[kind] -= n
		}
		return nil
	})
	return n, err
}

func (o *outbox) Holders(ctx context.Context, _ []string) (holders []store.Holder, err error) {
	err = o.transaction(ctx, func() error { holders = slices.Clone(o.holders); return nil })
	return holders, err
}

func (o *outbox) Partitioned() bool { return o.cut }

func (o *outbox) ExtendPartitions(ctx context.Context) (int, error) {
	return 1, o.transaction(ctx, func() error { o.extended++; return nil })
}

func (o *outbox) PrunePartitions(ctx context.Context, _ store.Pruning) (int, error) {
	return 1, o.transaction(ctx, func() error { o.dropped++; return nil })
}

// Write receives the pruner's log.
func (o *outbox) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.log.Write(line)
}

// rows adds rows that may be removed, or must stay.
func (o *outbox) rows(n int, may bool) {
	o.prunable = append(o.prunable, slices.Repeat([]bool{may}, n)...)
}

// atOnce runs a statement without waiting for a connection.
func atOnce(_ context.Context, run func() error) error { return run() }

// prune runs a pruner that keeps rows for an hour, unless change sets something else, until stop is
// called. From then on the test holds the mutex.
func (o *outbox) prune(t *testing.T, change func(*prune.Config)) (stop func()) {
	t.Helper()
	c := prune.Config{
		Leases: o, Rows: o, Partitions: o, Bound: atOnce, Retention: time.Hour, InboxRetention: prune.KeepForever, Sinks: func() []string { return []string{"mail"} }, Owner: "one", Lease: lease,
		Logger: slog.New(slog.NewTextHandler(o, nil)),
	}
	if change != nil {
		change(&c)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		prune.New(c).Run(ctx, t.Context())
	}()
	synctest.Wait()
	o.mu.Lock()
	t.Cleanup(func() {
		if t.Failed() { // while the test holds the mutex: the pruner would wait for it forever
			o.failed.Do(o.mu.Unlock)
		}
	})
	return func() {
		o.mu.Unlock()
		defer o.mu.Lock()
		cancel()
		<-ended
	}
}

func TestAPassRemovesAllPrunableRows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outbox{leftovers: map[store.Leftover]int{
			store.LeftoverReceipts: 12_000, store.LeftoverIDs: 7000, store.LeftoverCancellations: 6000, store.LeftoverClaims: 8000, store.LeftoverAttempts: 9000,
		}}
		o.rows(23_000, true)
		o.rows(10, false)
		stop := o.prune(t, func(c *prune.Config) { c.InboxRetention = 24 * time.Hour })
		o.wait(30 * time.Second)
		require.Len(t, o.prunable, 10)
		for kind, left := range o.leftovers {
			require.Zero(t, left, kind)
		}
		require.LessOrEqual(t, o.most, 5000)
		stop()
		require.Empty(t, o.owner, "the lease is released")
		require.Equal(t, map[store.Leftover]time.Duration{
			store.LeftoverReceipts: time.Hour, store.LeftoverIDs: 24 * time.Hour, store.LeftoverCancellations: time.Hour, store.LeftoverClaims: 0, store.LeftoverAttempts: 0,
		}, o.ages)
		require.Zero(t, o.extended, "the log is not partitioned")
	})
}

func TestAnErrorOfTheInboxKeepsNoRows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outbox{leftovers: map[store.Leftover]int{store.LeftoverReceipts: 10}, noInbox: true}
		o.rows(23_000, true)
		stop := o.prune(t, func(c *prune.Config) { c.InboxRetention = 24 * time.Hour })
		defer stop()
		o.wait(time.Minute)
		require.Empty(t, o.prunable)
		require.Zero(t, o.leftovers[store.LeftoverReceipts])
	})
}

func TestYoungRowsDoNotKeepOlderOnesAfterThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outbox{}
		o.rows(17_000, false)
		o.rows(9000, true)
		o.rows(17_000, false)
		o.rows(9000, true)
		stop := o.prune(t, nil)
		defer stop()
		o.wait(20 * time.Minute) // a pass each 36 s: the pruner has looked at all rows
		require.Len(t, o.prunable, 34_000)
	})
}

func TestThePrunerRestsFourTimesAsLongAsItWorks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outbox{takes: 100 * time.Millisecond}
		o.rows(40_000, true)
		stop := o.prune(t, nil)
		defer stop()
		o.wait(5 * time.Second)
		require.Len(t, o.looks, 9)
		for i := 1; i < len(o.looks); i++ {
			require.Equal(t, 500*time.Millisecond, o.looks[i].Sub(o.looks[i-1]))
		}
	})
}

func TestPassesBeginEachHundredthOfTheRetention(t *testing.T) {
	t.Parallel()
	for retention, interval := range map[time.Duration]time.Duration{
		time.Second: time.Second, 10 * time.Minute: 6 * time.Second, 72 * time.Hour: time.Minute,
	} {
		synctest.Test(t, func(t *testing.T) {
			o := &outbox{}
			stop := o.prune(t, func(c *prune.Config) { c.Retention = retention })
			defer stop()
			o.wait(10 * time.Minute)
			require.Equal(t, interval, o.looks[len(o.looks)-1].Sub(o.looks[len(o.looks)-2]))
		})
	}
}

func TestTheLeaseIsRenewedAfterAThirdOfIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outbox{}
		stop := o.prune(t, nil)
		o.wait(time.Minute)
		require.Len(t, o.renewed, 12)
		stop()
	})
}

func TestOnlyThePrunerThatHasTheLeaseWorks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outbox{owner: "another"}
		stop := o.prune(t, nil)
		o.wait(time.Minute)
		require.Empty(t, o.looks)
		o.owner = ""
		o.wait(lease / 3)
		require.Equal(t, "one", o.owner)
		require.Len(t, o.looks, 1)

		o.owner = "another"
		o.wait(lease)
		o.looks = nil
		o.wait(10 * time.Minute)
		require.Empty(t, o.looks, "the pruner noticed at the next renewal")
		stop()
		require.Equal(t, "another", o.owner)
		require.Empty(t, o.log.String(), "the loss is no warning")
	})
}

func TestADatabaseThatFailsIsRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outbox{}
		stop := o.prune(t, nil)
		defer stop()
		o.err = errors.New("no disk space")
		o.wait(10 * time.Minute)
		o.err = nil
		o.rows(100, true)
		o.wait(10 * time.Second)
		require.Empty(t, o.prunable)
		require.Equal(t, 1, strings.Count(o.log.String(), "ERROR"), o.log.String())
		require.Contains(t, o.log.String(), "removing old rows works again")
	})
}

func TestADatabaseThatDoesNotAnswerIsAbandonedAfterALease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outbox{}
		stop := o.prune(t, nil)
		o.takes = time.Hour
		o.wait(time.Minute)
		require.Contains(t, o.log.String(), context.DeadlineExceeded.Error())
		began := time.Now()
		stop()
		require.LessOrEqual(t, time.Since(began), lease, "the pruner stops nevertheless")
	})
}

func TestPartitionsOfAPartitionedLogAreCreatedAndDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outbox{cut: true}
		stop := o.prune(t, nil)
		require.Equal(t, 1, o.extended)
		require.Equal(t, 1, o.dropped)
		stop()

		o = &outbox{cut: true}
		o.rows(10, true)
		stop = o.prune(t, func(c *prune.Config) { c.Retention = prune.KeepForever })
		require.Equal(t, 1, o.extended, "even if everything is kept")
		require.Zero(t, o.dropped)
		require.Len(t, o.prunable, 10)
		stop()
	})
}

func TestThePrunerReturnsIfEverythingIsKept(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]store.Partitioner{"no partitions": nil, "not partitioned": &outbox{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &outbox{}
			c := prune.Config{Leases: o, Rows: o, Partitions: partitions, Bound: atOnce, Retention: prune.KeepForever, InboxRetention: prune.KeepForever, Logger: slog.New(slog.DiscardHandler)}
			prune.New(c).Run(t.Context(), t.Context()) // Run returns
			require.Empty(t, o.looks)
		})
	}
}

func TestASinkThatKeepsRowsIsLoggedOnceForEachReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outbox{}
		old := store.Row{Offset: 7, OccurredOn: time.Now().Add(-2 * time.Hour)}
		young := store.Row{Offset: 8, OccurredOn: time.Now().Add(-time.Hour)}
		o.holders = []store.Holder{{Sink: "mail", Row: old}, {Sink: "gone", Row: old, Reason: "lane 1 has no cursor"}, {Sink: "new", Row: young}}
		stop := o.prune(t, nil)
		defer stop()
		warnings := func() (found []string) {
			for line := range strings.Lines(o.log.String()) {
				if strings.Contains(line, "level=WARN") {
					found = append(found, line)
				}
			}
			return found
		}
		require.Empty(t, warnings(), "a cursor may be created soon")
		o.wait(time.Minute)
		require.Len(t, warnings(), 2)
		require.Contains(t, warnings()[0], `msg="a sink keeps rows that are older than the retention" sink=mail offset=7`)
		require.Contains(t, warnings()[0], `why="it has not settled them"`)
		require.Contains(t, warnings()[1], "run `waybill forget gone`")
		require.Contains(t, warnings()[1], `why="lane 1 has no cursor"`)

		o.holders = o.holders[:2]
		o.wait(time.Hour)
		require.Len(t, warnings(), 2, "once")
		o.holders[1].Reason = ""
		o.wait(time.Hour)
		require.Len(t, warnings(), 3, "another reason")
		o.holders = nil
		o.wait(time.Minute)
		o.holders = []store.Holder{{Sink: "mail", Row: old}}
		o.wait(time.Hour)
		require.Len(t, warnings(), 4, "the sink keeps rows again")
	})
}
