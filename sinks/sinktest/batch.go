package sinktest

import (
	"context"
	"sync"
	"testing"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// maxBatch limits the size of batches, so that the suite is quick for sinks with large ones.
const maxBatch = 100

// testBatches checks the contract of [sinks.Batcher]. It skips other sinks.
func (s Subject) testBatches(t *testing.T) {
	b, ok := s.New(t).(sinks.Batcher)
	if !ok {
		t.Skip("it is not a sinks.Batcher")
	}
	open(t, b)
	limits := b.BatchLimits()
	if limits.Wait < 0 {
		t.Errorf("batches wait %s", limits.Wait)
	}
	if limits.Size < 2 {
		t.Skip("it makes no batches")
	}
	size := min(limits.Size, maxBatch)
	run := func(name string, test func(*testing.T, sinks.Batcher)) {
		t.Run(name, func(t *testing.T) { test(t, open(t, s.New(t)).(sinks.Batcher)) })
	}
	run("each delivery has a result", func(t *testing.T, b sinks.Batcher) { s.testBatch(t, b, size, limits.Ordered) })
	run("parallel batches all arrive", func(t *testing.T, b sinks.Batcher) { s.testParallelBatches(t, b, size) })
	run("a cancelled batch ends soon", func(t *testing.T, b sinks.Batcher) { s.testCancelledBatch(t, b, size) })
	if limits.Ordered {
		run("a key stays in order", func(t *testing.T, b sinks.Batcher) { s.testOrderedBatch(t, b, size) })
	}
	if s.Refused != nil && size > 2 {
		run("only the refused delivery fails", s.testRefusedInBatch)
	}
	if s.Refused != nil && size > 3 && limits.Ordered {
		run("later deliveries of a refused one's key fail", s.testKeyBehindRefused)
	}
}

func (s Subject) testBatch(t *testing.T, b sinks.Batcher, size int, ordered bool) {
	var sent []*notification.Delivery
	for n := range 3 {
		batch := s.batch(n*size, size)
		s.succeed(t, b, batch)
		sent = append(sent, batch...)
	}
	if s.Received == nil {
		return
	}
	if ordered {
		compare(t, s.Received(t), sent)
	} else {
		compareSorted(t, s.Received(t), sent)
	}
}

// testParallelBatches overwrites the payload and the metadata of each batch afterwards, as
// testParallel does.
func (s Subject) testParallelBatches(t *testing.T, b sinks.Batcher, size int) {
	var (
		wg   sync.WaitGroup
		sent []*notification.Delivery
	)
	for n := range 8 {
		batch := s.batch(n*size, size)
		sent = append(sent, batch...)
		lent := make([]*notification.Delivery, len(batch))
		for i, d := range batch {
			lent[i] = clone(d)
		}
		wg.Go(func() {
			s.succeed(t, b, lent)
			for _, d := range lent {
				overwrite(d)
			}
			clear(lent)
		})
	}
	wg.Wait()
	if s.Received != nil {
		compareSorted(t, s.Received(t), sent)
	}
}

func (s Subject) testCancelledBatch(t *testing.T, b sinks.Batcher, size int) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i, r := range deliverBatch(ctx, t, b, s.batch(0, size)) {
		if r.Err != nil && Class(r.Err) != sinks.ClassCancelled {
			t.Errorf("result %d: %v, want no error or a cancelled one", i, r.Err)
		}
	}
	s.succeed(t, b, s.batch(size, size)) // the sink still works
}

func (s Subject) testOrderedBatch(t *testing.T, b sinks.Batcher, size int) {
	batch := s.batch(0, size)
	for _, d := range batch {
		d.Key = "one"
	}
	s.succeed(t, b, batch)
	if s.Received != nil {
		compare(t, s.Received(t), batch)
	}
}

func (s Subject) testRefusedInBatch(t *testing.T, b sinks.Batcher) {
	batch := []*notification.Delivery{s.Delivery(0), s.Refused(1), s.Delivery(2)}
	batch[1].Key = "another"
	results := deliverBatch(t.Context(), t, b, batch)
	s.checkResults(t, results, nil, []int{0, 2})
	if err := results[1].Err; !final(err) {
		t.Errorf("result 1: %v, want a permanent or invalid error", err)
	}
	if s.Received != nil {
		compareSorted(t, s.Received(t), []*notification.Delivery{batch[0], batch[2]})
	}
}

func (s Subject) testKeyBehindRefused(t *testing.T, b sinks.Batcher) {
	batch := []*notification.Delivery{s.Delivery(0), s.Refused(1), s.Delivery(2), s.Delivery(3)}
	for _, d := range batch[:3] {
		d.Key = "one"
	}
	results := deliverBatch(t.Context(), t, b, batch)
	s.checkResults(t, results, []int{1, 2}, []int{0, 3})
	if err := results[2].Err; final(err) {
		t.Errorf("result 2: %v, want an error that is not permanent, because the delivery was not tried", err)
	}
	if s.Received != nil {
		compare(t, s.Received(t), []*notification.Delivery{batch[0], batch[3]})
	}
}

// checkResults checks that the results at the indexes failed have errors, and those at
// delivered have none.
func (s Subject) checkResults(t *testing.T, results []sinks.Result, failed, delivered []int) {
	t.Helper()
	for _, i := range failed {
		if results[i].Err == nil {
			t.Errorf("result %d has no error", i)
		}
	}
	for _, i := range delivered {
		if results[i].Err != nil {
			t.Errorf("result %d: %v", i, results[i].Err)
			continue
		}
		s.checkReceipt(t, results[i].Receipt)
	}
}

// batch returns size deliveries with different keys, beginning with the n-th.
func (s Subject) batch(n, size int) []*notification.Delivery {
	batch := make([]*notification.Delivery, size)
	for i := range batch {
		batch[i] = s.Delivery(n + i)
	}
	return batch
}

// succeed delivers a batch and reports an error for each delivery that fails. Any goroutine
// may call it.
func (s Subject) succeed(t *testing.T, b sinks.Batcher, batch []*notification.Delivery) {
	for i, r := range deliverBatch(t.Context(), t, b, batch) {
		if r.Err != nil {
			t.Errorf("result %d: %v", i, r.Err)
			continue
		}
		s.checkReceipt(t, r.Receipt)
	}
}

// deliverBatch delivers a batch and returns exactly one result for each delivery. It reports
// an error if the sink returned another number of results or changed a delivery.
func deliverBatch(ctx context.Context, t *testing.T, b sinks.Batcher, batch []*notification.Delivery) []sinks.Result {
	t.Helper()
	before := make([]*notification.Delivery, len(batch))
	for i, d := range batch {
		before[i] = clone(d)
	}
	results := b.DeliverBatch(ctx, batch)
	if len(results) != len(batch) {
		t.Errorf("DeliverBatch returned %d results for %d deliveries", len(results), len(batch))
	}
	for i, d := range batch {
		unchanged(t, d, before[i])
	}
	complete := make([]sinks.Result, len(batch))
	copy(complete, results)
	return complete
}

// batcherOf returns the sink as a batcher with its limits, and false if it makes no batches.
func batcherOf(sink sinks.Sink) (sinks.Batcher, sinks.BatchLimits, bool) {
	b, ok := sink.(sinks.Batcher)
	if !ok {
		return nil, sinks.BatchLimits{}, false
	}
	limits := b.BatchLimits()
	return b, limits, limits.Size > 1
}
