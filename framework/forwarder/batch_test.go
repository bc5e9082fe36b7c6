package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// batches is a batch sink that answers for each delivery as configured, and records the batches.
type batches struct {
	limits sinks.BatchLimits
	answer answer
	// whole, if set, answers for a batch instead of answer.
	whole func(ctx context.Context, batch []*notification.Delivery) []sinks.Result

	mu       sync.Mutex
	all      [][]string // "id" of the first attempt, "id/2" of the second
	inFlight int
	most     int
}

func (b *batches) Deliver(context.Context, *notification.Delivery) (notification.Receipt, error) {
	panic("a batch sink gets batches only")
}

func (b *batches) BatchLimits() sinks.BatchLimits { return b.limits }

func (b *batches) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	var ids []string
	for _, d := range batch {
		id := d.ID
		if d.Attempt > 1 {
			id = fmt.Sprintf("%s/%d", d.ID, d.Attempt)
		}
		ids = append(ids, id)
	}
	b.mu.Lock()
	b.all = append(b.all, ids)
	b.inFlight++
	b.most = max(b.most, b.inFlight)
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.inFlight--
	}()
	if b.whole != nil {
		return b.whole(ctx, batch)
	}
	failed := make(map[string]bool)
	results := make([]sinks.Result, len(batch))
	for i, d := range batch {
		if b.limits.Ordered && d.Key != "" && failed[d.Key] {
			results[i].Err = errors.New("not tried: one before it failed")
			continue
		}
		if b.answer != nil {
			results[i].Err = b.answer(ctx, d)
		}
		failed[d.Key] = results[i].Err != nil
	}
	return results
}

// given returns the batches in the order in which they began, and clears the list.
func (b *batches) given() [][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.all
	b.all = nil
	return all
}

// one delivery at a time, so that batches have an order.
var alone = forwarder.Parallelism{Threshold: 1}

func TestABatchHasThePendingDeliveriesUpToItsSize(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		ids := numbered("", 25)
		o.append("t", "", ids...)
		b := &batches{limits: sinks.BatchLimits{Size: 10}, whole: func(_ context.Context, batch []*notification.Delivery) []sinks.Result {
			time.Sleep(time.Second)
			results := make([]sinks.Result, len(batch))
			for i, d := range batch {
				results[i].Receipt = notification.Receipt("of " + d.ID)
			}
			return results
		}}
		f := o.one(forwarder.Sink{Sink: b, Parallelism: alone})
		pass(time.Minute)
		given := b.given()
		require.Equal(t, ids, slices.Concat(given...))
		require.LessOrEqual(t, len(given), 4)
		for _, batch := range given {
			require.LessOrEqual(t, len(batch), 10)
		}
		require.Equal(t, int64(25), f.Stats()[0].Delivered)
		require.Equal(t, 25, value[int](o, `SELECT count(*) FROM outbox_receipts WHERE receipt = 'of ' || id`), "each has its own receipt")
	})
}

func TestTheThresholdCountsBatches(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		o.append("t", "", numbered("", 200)...)
		b := &batches{limits: sinks.BatchLimits{Size: 10}, whole: func(_ context.Context, batch []*notification.Delivery) []sinks.Result {
			time.Sleep(time.Second)
			return make([]sinks.Result, len(batch))
		}}
		o.one(forwarder.Sink{Sink: b, Parallelism: forwarder.Parallelism{Threshold: 3}})
		pass(time.Minute)
		require.Len(t, slices.Concat(b.given()...), 200)
		require.Equal(t, 3, b.most)
	})
}

func TestASequentialSinkDeliversALargeBacklogBatchByBatch(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		o.append("t", "", numbered("", 200)...)
		var atOnce []int
		var b *batches
		b = &batches{limits: sinks.BatchLimits{Size: 10}, whole: func(_ context.Context, batch []*notification.Delivery) []sinks.Result {
			b.mu.Lock()
			atOnce = append(atOnce, b.inFlight)
			b.mu.Unlock()
			time.Sleep(time.Second)
			return make([]sinks.Result, len(batch))
		}}
		o.one(forwarder.Sink{Sink: b, Parallelism: forwarder.Parallelism{Threshold: 4, Above: forwarder.AboveSequential}})
		time.Sleep(10 * time.Second)
		b.mu.Lock()
		require.Equal(t, 1, slices.Max(atOnce))
		b.mu.Unlock()
		pass(time.Minute)
		require.Len(t, slices.Concat(b.given()...), 200)
	})
}

func TestADeliveryWaitsForItsBatchAtMostForTheConfiguredTime(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		b := &batches{limits: sinks.BatchLimits{Size: 3, Wait: time.Minute}}
		f := o.one(forwarder.Sink{Sink: b})
		f.publish("t", "", "a", "b")
		pass(59 * time.Second)
		require.Empty(t, b.given(), "the batch waits for a third")
		pass(2 * time.Second)
		require.Equal(t, [][]string{{"a", "b"}}, b.given())

		time.Sleep(time.Hour)
		f.publish("t", "", "c")
		time.Sleep(30 * time.Second)
		f.publish("t", "", "d", "e", "f")
		require.Equal(t, [][]string{{"c", "d", "e"}}, b.given(), "a full batch is delivered at once")
		pass(62 * time.Second)
		require.Equal(t, [][]string{{"f"}}, b.given())
	})
}

func TestAnOrderedBatchIsFilledWithLaterDeliveriesOfItsKeys(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		b := &batches{limits: sinks.BatchLimits{Size: 10, Wait: time.Minute, Ordered: true}}
		ids := numbered("", 40)
		o.append("t", "k", ids...)
		f := o.one(forwarder.Sink{Sink: b})
		f.flush()
		require.Equal(t, ids, slices.Concat(b.given()...), "no delivery waits: the batches are full")
	})
}

func TestOnlyTheFailedDeliveriesOfABatchAreRetried(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		b := &batches{limits: sinks.BatchLimits{Size: 10}, answer: either(
			fails(errors.New("later"), 1, "0001"), fails(sinks.Permanent(errors.New("never")), always, "0003"),
		)}
		o.append("t", "", numbered("", 5)...)
		f := o.one(forwarder.Sink{Sink: b, Parallelism: alone})
		f.flush()
		require.Equal(t, numbered("", 5), slices.Concat(b.given()...))
		require.Equal(t, []string{"sink retrying 0001", "sink dead 0003"}, o.parked())
		require.Equal(t, forwarder.Stats{Sink: "sink", Delivered: 3, Failed: 1, Dead: 1}, f.Stats()[0])
		pass(time.Minute)
		require.Equal(t, [][]string{{"0001/2"}}, b.given())
		require.Equal(t, []string{"sink dead 0003"}, o.parked())
	})
}

func TestRetriesComeInBatchesToo(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		b := &batches{limits: sinks.BatchLimits{Size: 10, Wait: 5 * time.Second}, answer: fails(errors.New("later"), 1)}
		o.append("t", "", numbered("", 10)...)
		f := o.one(forwarder.Sink{Sink: b, Retry: forwarder.Retry{Initial: 10 * time.Second}})
		f.flush()
		require.Len(t, b.given(), 1)
		pass(time.Minute)
		given := b.given()
		require.Len(t, given, 1)
		require.Len(t, given[0], 10)
		require.Empty(t, o.parked())
	})
}

func TestAnUnorderedBatchHasOneDeliveryOfAKey(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		b := &batches{limits: sinks.BatchLimits{Size: 10, Wait: time.Second}}
		o.append("t", "k", "k1", "k2", "k3")
		o.append("t", "m", "m1", "m2")
		o.one(forwarder.Sink{Sink: b})
		pass(time.Minute)
		require.Equal(t, [][]string{{"k1", "m1"}, {"k2", "m2"}, {"k3"}}, b.given())
	})
}

// orderedBatch is the usual case of the tests below: the keys k and m in one batch.
func orderedBatch(o *outbox, answer answer, onDead forwarder.OnDead) (*batches, *engine) {
	b := &batches{limits: sinks.BatchLimits{Size: 10, Wait: time.Second, Ordered: true}, answer: answer}
	o.append("t", "k", "k1", "k2", "k3", "k4")
	o.append("t", "m", "m1", "m2")
	f := o.one(forwarder.Sink{Sink: b, Parallelism: alone, OnDead: onDead, Retry: forwarder.Retry{Initial: time.Minute}})
	pass(2 * time.Second)
	return b, f
}

func TestAnOrderedBatchHasSeveralDeliveriesOfAKeyInOrder(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		b, f := orderedBatch(o, nil, "")
		require.Equal(t, [][]string{{"k1", "k2", "k3", "k4", "m1", "m2"}}, b.given())
		f.publish("t", "k", "k5", "k6")
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"k5", "k6"}, slices.Concat(b.given()...))
		require.Zero(t, f.Stats()[0].Pending)
	})
}

func TestAFailureInABatchBlocksItsKeyWithoutSpendingAttempts(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		b, f := orderedBatch(o, fails(errors.New("later"), 1, "k2"), "")
		require.Equal(t, [][]string{{"k1", "k2", "k3", "k4", "m1", "m2"}}, b.given())
		require.Equal(t, []string{"sink retrying k2", "sink blocked k3", "sink blocked k4"}, o.parked())
		require.Equal(t, 1, o.spent(), "k2's")
		f.publish("t", "k", "k5")
		pass(2 * time.Minute)
		require.Equal(t, []string{"k2/2", "k3", "k4", "k5"}, slices.Concat(b.given()...))
		require.Empty(t, o.parked())
		require.Equal(t, forwarder.Stats{Sink: "sink", Delivered: 7, Failed: 1}, f.Stats()[0])
	})
}

func TestADeadDeliveryInABatchHaltsItsKeyIfConfigured(t *testing.T) {
	batch := []string{"k1", "k2", "k3", "k4", "m1", "m2"}
	for onDead, c := range map[forwarder.OnDead]struct {
		given  [][]string
		parked []string
	}{
		forwarder.OnDeadContinue: {[][]string{batch, {"k3", "k4"}}, []string{"sink dead k2"}},
		forwarder.OnDeadHalt:     {[][]string{batch}, []string{"sink dead k2", "sink blocked k3", "sink blocked k4"}},
	} {
		t.Run(string(onDead), func(t *testing.T) {
			onEachStore(t, func(t *testing.T, o *outbox) {
				b, _ := orderedBatch(o, fails(sinks.Permanent(errors.New("never")), always, "k2"), onDead)
				pass(time.Minute)
				require.Equal(t, c.given, b.given())
				require.Equal(t, c.parked, o.parked())
			})
		})
	}
}

func TestDeliveriesAfterAFailureOfTheirKeyInABatchAreNotRepeated(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		b := &batches{limits: sinks.BatchLimits{Size: 10, Wait: time.Second, Ordered: true}}
		b.whole = func(_ context.Context, batch []*notification.Delivery) []sinks.Result {
			results := make([]sinks.Result, len(batch))
			for i, d := range batch {
				if d.Attempt == 1 && (d.ID == "k1" || d.ID == "k3") {
					results[i].Err = errors.New("later")
				}
			}
			return results // breaks the contract of an ordered batch: k2 and k4 are delivered
		}
		o.append("t", "k", "k1", "k2", "k3", "k4", "k5")
		f := o.one(forwarder.Sink{Sink: b, Parallelism: alone})
		pass(time.Minute)
		require.Equal(t, []string{"k1", "k2", "k3", "k4", "k5", "k1/2", "k3", "k3/2"}, slices.Concat(b.given()...))
		require.Empty(t, o.parked())
		require.Zero(t, f.Stats()[0].Pending)
		f.publish("t", "k", "k6")
		time.Sleep(2 * time.Second)
		require.Equal(t, [][]string{{"k6"}}, b.given(), "the key is free")
	})
}

func TestABatchIsPutBackWhileItsDestinationIsUnavailable(t *testing.T) {
	for name, away := range map[string]func(until time.Time) error{
		"unavailable": func(time.Time) error { return sinks.Unavailable(errors.New("connection refused")) },
		"throttled":   func(until time.Time) error { return sinks.Throttled(until, errors.New("429")) },
	} {
		for _, ordered := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, ordered %t", name, ordered), func(t *testing.T) {
				onEachStore(t, func(t *testing.T, o *outbox) {
					until := time.Now().Add(time.Minute)
					b := &batches{limits: sinks.BatchLimits{Size: 10, Wait: time.Second, Ordered: ordered}}
					b.whole = func(_ context.Context, batch []*notification.Delivery) []sinks.Result {
						if time.Now().Before(until) {
							return sinks.Failed(batch, away(until))
						}
						return make([]sinks.Result, len(batch))
					}
					var ids []string
					for i := range 20 {
						ids = append(ids, fmt.Sprintf("%02d", i))
						o.append("t", []string{"", "k", "m", ""}[i%4], ids[i])
					}
					o.one(forwarder.Sink{Sink: b, Parallelism: alone})
					pass(50 * time.Second)
					require.Empty(t, o.parked())
					require.NotEmpty(t, b.given())
					pass(time.Minute)
					given := slices.Concat(b.given()...)
					require.GreaterOrEqual(t, len(given), 20)
					given = given[len(given)-20:] // the probes came before
					require.ElementsMatch(t, ids, given)
					require.NotContains(t, strings.Join(given, " "), "/", "no attempt is spent")
					if name == "throttled" && !ordered { // then the heads of keys are in the batch
						require.Equal(t, ids[0], given[0], "the order is restored")
					}
					of := func(kinds ...int) []string { // the ids whose number modulo 4 is one of these
						return slices.DeleteFunc(slices.Clone(given), func(id string) bool {
							n, err := strconv.Atoi(id)
							return err != nil || !slices.Contains(kinds, n%4)
						})
					}
					require.IsIncreasing(t, of(1))
					require.IsIncreasing(t, of(2))
					if name == "throttled" {
						require.IsIncreasing(t, of(0, 3), "put back in order")
					}
				})
			})
		}
	}
}

func TestABatchOfSeveralLanesSurvivesTheLossOfOneLane(t *testing.T) {
	onlyPostgres(t, func(t *testing.T, o *outbox) {
		release := make(chan struct{})
		b := &batches{limits: sinks.BatchLimits{Size: 100, Wait: time.Second}}
		b.whole = func(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
			select {
			case <-ctx.Done():
				return sinks.Failed(batch, ctx.Err())
			case <-release:
				return make([]sinks.Result, len(batch))
			}
		}
		for i := range 40 {
			o.append("t", fmt.Sprintf("key%02d", i), fmt.Sprintf("%02d", i))
		}
		f := o.one(forwarder.Sink{Sink: b, Parallelism: alone, Timeout: time.Hour}, func(c *forwarder.Config) { c.Lanes = 2 })
		pass(10 * time.Second)
		given := b.given()
		require.Len(t, given, 1)
		require.Len(t, given[0], 40, "deliveries of both lanes")

		// The lane's next checkpoint notices the loss.
		o.exec(`UPDATE outbox_cursors SET owner = 'another', epoch = epoch + 1, lease_until = '2999-01-01T00:00:00.000000Z' WHERE lane = 0 AND sink = 'sink'`)
		pass(30 * time.Minute)
		again := b.given()
		require.NotEmpty(t, again, "the loss of the lane cancels the batch")
		close(release)
		pass(time.Minute)
		stats := f.Stats()[0]
		require.Zero(t, stats.Failed, "a cancelled attempt does not count")
		require.Equal(t, int64(len(again[0])), stats.Delivered, "the deliveries of the other lane")
		require.Less(t, len(again[0]), 40)
		require.Zero(t, stats.Pending)
		require.Empty(t, o.parked())
	})
}

// late is a sink that cannot be opened at the start.
type late struct {
	batches
	tried  atomic.Bool
	single atomic.Int32
}

func (l *late) Open(context.Context) error {
	if !l.tried.Swap(true) {
		return errors.New("there is no network yet")
	}
	return nil
}

func (l *late) Deliver(context.Context, *notification.Delivery) (notification.Receipt, error) {
	l.single.Add(1)
	return "", nil
}

func TestASinkThatOpensLateTakesBatches(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s := &late{batches: batches{limits: sinks.BatchLimits{Size: 10}}}
		f := o.one(forwarder.Sink{Sink: s, Parallelism: forwarder.Parallelism{Threshold: 4}})
		o.append("t", "", numbered("", 100)...)
		f.flush()
		pass(time.Minute)
		require.Equal(t, int64(100), f.Stats()[0].Delivered)
		require.LessOrEqual(t, s.single.Load(), int32(4), "only the calls that opened it")
	})
}

func TestInvalidBatchLimitsAreRefused(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		for _, limits := range []sinks.BatchLimits{{Size: 10, Wait: -1}, {Size: 1 << 20}} {
			f := o.one(forwarder.Sink{Sink: &batches{limits: limits}})
			require.ErrorIs(t, <-f.ended, forwarder.ErrConfig)
		}
	})
}
