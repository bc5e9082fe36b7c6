// Package sinktest is the conformance suite of the sink contract. Every sink
// runs it, also one of the user's own:
//
//	func TestConformance(t *testing.T) {
//		var shop *fakeShop
//		sinktest.Run(t, sinktest.Subject{
//			New: func(t *testing.T) sinks.Sink {
//				shop = startFakeShop(t)
//				return shopsink.New(shop.Address())
//			},
//			Received: func(t *testing.T) []notification.Envelope { return shop.Orders() },
//		})
//	}
//
// Run it with -race: some of what it checks only the race detector sees. It looks at all
// goroutines of the process, so nothing may run beside it.
package sinktest

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// soon is how fast a sink must return once its context ended. The engine abandons a call
// after 2 s; the machine of a test may be slow.
const soon = 5 * time.Second

// patience is for what ends in the background.
const patience = 5 * time.Second

// inFlight is how many calls there are while a sink is closed.
const inFlight = 8

// Subject is the sink kind under test. Only New is required.
type Subject struct {
	// New starts a destination that takes everything and returns an unopened
	// sink for it; the suite opens and closes it. Each case calls New once. The
	// destination ends in t.Cleanup.
	New func(t *testing.T) sinks.Sink

	// Received returns copies of what the destination of the last New has
	// taken, oldest first. ID is required; another field that is zero is one
	// that the destination cannot tell, and is not compared. Times are in UTC.
	Received func(t *testing.T) []notification.Envelope

	// Delivery makes the n-th delivery, with an ID of its own, for a sink that
	// does not take any payload. nil for [NewDelivery].
	Delivery func(n int) *notification.Delivery

	// Refused makes the n-th delivery, with an ID of its own, that the
	// destination of New never takes, such as one that is too large. The suite
	// sets its key. nil if the destination takes everything.
	Refused func(n int) *notification.Delivery

	// Broken holds, for a class of error, a sink whose destination causes it,
	// whatever the delivery.
	Broken map[sinks.Class]func(t *testing.T) sinks.Sink

	// Stuck returns a sink whose destination never answers, so that only the
	// context ends a delivery. nil if there is no such destination.
	Stuck func(t *testing.T) sinks.Sink

	// Waits declares that a call which has begun waits for its outcome, whatever its
	// context says, since leaving would leave a message behind that may still arrive. The
	// engine abandons such a call; a stuck one then only has to end with Close.
	Waits bool

	// Receipts declares that every delivery gives a receipt; false, that none
	// does.
	Receipts bool
}

// Run checks the subject against the contracts of [sinks.Sink], [sinks.Opener],
// [sinks.Closer], [sinks.HealthChecker] and [sinks.Batcher], one subtest for each
// clause. Clauses that need a part of the Subject which is nil are left out.
func Run(t *testing.T, s Subject) {
	if s.Delivery == nil {
		s.Delivery = NewDelivery
	}
	t.Run("one after another arrive in order", s.testOrder)
	t.Run("in parallel all arrive", s.testParallel)
	t.Run("a delivery that comes again is taken", s.testAgain)
	t.Run("odd ones arrive intact or are refused", s.testOdd)
	t.Run("a cancelled delivery ends soon", s.testCancelled)
	t.Run("a delivery out of time ends soon", s.testOutOfTime)
	t.Run("close leaves nothing running", s.testClose)
	t.Run("close with calls in flight", s.testCloseInFlight)
	t.Run("opens and closes without a delivery", func(t *testing.T) { open(t, s.New(t)) })
	for class, broken := range s.Broken {
		t.Run("broken is "+class.String(), func(t *testing.T) { s.testBroken(t, class, broken(t)) })
	}
	if s.Refused != nil {
		t.Run("a refused delivery is permanent", s.testRefused)
	}
	if s.Stuck != nil && !s.Waits {
		t.Run("stuck it can be cancelled", func(t *testing.T) { s.testStuck(t, s.Stuck(t)) })
		t.Run("stuck it ends with its deadline", func(t *testing.T) { s.testDeadline(t, s.Stuck(t)) })
	}
	if s.Stuck != nil {
		t.Run("stuck it can be closed", func(t *testing.T) { s.testCloseStuck(t, s.Stuck(t)) })
	}
	t.Run("batches", s.testBatches)
}

func (s Subject) testOrder(t *testing.T) {
	sink := open(t, s.New(t))
	sent := s.deliveries(20)
	for _, d := range sent {
		d.Key = "one" // the engine hands a key's deliveries over one by one
		s.deliver(t, sink, d)
	}
	if s.Received != nil {
		compare(t, s.Received(t), sent)
	}
}

// testParallel also takes payload and metadata back after each delivery: a sink
// that kept them sends garbage, or the race detector catches it.
func (s Subject) testParallel(t *testing.T) {
	sink := open(t, s.New(t))
	sent := s.deliveries(200)
	var wg sync.WaitGroup
	for part := range slices.Chunk(sent, 25) {
		wg.Go(func() {
			for _, d := range part {
				lent := clone(d)
				s.deliver(t, sink, lent)
				takeBack(lent)
			}
		})
	}
	if h, ok := sink.(sinks.HealthChecker); ok {
		if err := h.CheckHealth(t.Context()); err != nil {
			t.Errorf("CheckHealth: %v", err)
		}
	}
	wg.Wait()
	if s.Received != nil {
		compareSorted(t, s.Received(t), sent)
	}
}

// testAgain makes a delivery twice, as the engine does after a crash. Whether
// the destination keeps both is its business.
func (s Subject) testAgain(t *testing.T) {
	sink := open(t, s.New(t))
	d := s.Delivery(0)
	s.deliver(t, sink, d)
	s.deliver(t, sink, d)
}

func (s Subject) testCancelled(t *testing.T) {
	sink := open(t, s.New(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.deliverSoon(ctx, t, sink); err != nil && class(err) != sinks.ClassCancelled {
		t.Errorf("Deliver gave %v, want no error or one that is cancelled", err)
	}
	s.deliver(t, sink, s.Delivery(1)) // it has broken nothing
}

// testOutOfTime is for sinks that look at their context and for those that are
// done before they would.
func (s Subject) testOutOfTime(t *testing.T) {
	sink := open(t, s.New(t))
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if err := s.deliverSoon(ctx, t, sink); err != nil && !passes(err) {
		t.Errorf("Deliver gave %v, want no error or one that is transient or unavailable", err)
	}
	s.deliver(t, sink, s.Delivery(1))
}

func (s Subject) testRefused(t *testing.T) {
	sink := open(t, s.New(t))
	d := s.Refused(0)
	before := clone(d)
	if _, err := sink.Deliver(t.Context(), d); err == nil || class(err) != sinks.ClassPermanent {
		t.Errorf("Deliver gave %v, want an error that is permanent", err)
	}
	unchanged(t, d, before)
	next := s.Delivery(1)
	s.deliver(t, sink, next)
	if s.Received != nil {
		compare(t, s.Received(t), []*notification.Delivery{next})
	}
}

func (s Subject) testStuck(t *testing.T, sink sinks.Sink) {
	open(t, sink)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if err := s.deliverSoon(ctx, t, sink); err == nil || class(err) != sinks.ClassCancelled {
		t.Errorf("Deliver gave %v, want an error that is cancelled", err)
	}
}

func (s Subject) testDeadline(t *testing.T, sink sinks.Sink) {
	open(t, sink)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.deliverSoon(ctx, t, sink); err == nil || !passes(err) {
		t.Errorf("Deliver gave %v, want an error that is transient or unavailable", err)
	}
}

// testCloseStuck is about a call that the engine has abandoned: it may still be
// there when the sink is closed.
func (s Subject) testCloseStuck(t *testing.T, sink sinks.Sink) {
	closer, ok := sink.(sinks.Closer)
	if !ok {
		t.Skip("it is not a sinks.Closer")
	}
	openOnly(t, sink)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := make(chan error, 1)
	go func() {
		_, err := sink.Deliver(ctx, s.Delivery(0))
		left <- err
	}()
	time.Sleep(50 * time.Millisecond) // mostly enough to be stuck; if not, it meets a closed sink

	closed := make(chan struct{})
	go func() {
		defer close(closed)
		closing, stop := context.WithTimeout(context.WithoutCancel(t.Context()), 200*time.Millisecond)
		defer stop()
		_ = closer.Close(closing) // it may say that something was left
	}()
	select {
	case <-closed:
	case <-time.After(soon):
		t.Errorf("Close is still there %s after its context ended", soon)
	}
	cancel()
	select {
	case err := <-left:
		if err == nil || class(err) == sinks.ClassPermanent {
			t.Errorf("Deliver gave %v, want an error that is not permanent", err)
		}
	case <-time.After(soon):
		t.Errorf("Deliver is still there %s after its context ended", soon)
	}
	<-closed
}

// testCloseInFlight closes the sink while calls come and go. The engine does so only with
// calls that it has abandoned, but these may be anywhere.
func (s Subject) testCloseInFlight(t *testing.T) {
	sink := s.New(t)
	closer, ok := sink.(sinks.Closer)
	if !ok {
		t.Skip("it is not a sinks.Closer")
	}
	before := goleak.IgnoreCurrent() // the destination's
	openOnly(t, sink)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var (
		closing atomic.Bool
		begun   sync.WaitGroup
		calls   sync.WaitGroup
		closed  = make(chan struct{})
	)
	begun.Add(inFlight)
	for n := range inFlight {
		calls.Go(func() {
			s.deliver(t, sink, s.Delivery(n))
			begun.Done()
			for range 20 {
				s.deliverClosing(ctx, t, sink, s.Delivery(n), closing.Load)
			}
			<-closed
			s.deliverClosing(ctx, t, sink, s.Delivery(n), closing.Load)
		})
	}
	begun.Wait()
	closing.Store(true)
	bounded, stop := context.WithTimeout(context.WithoutCancel(t.Context()), soon)
	defer stop()
	if err := closer.Close(bounded); err != nil {
		t.Errorf("Close: %v", err)
	}
	close(closed)
	left := make(chan struct{})
	go func() {
		defer close(left)
		calls.Wait()
	}()
	select {
	case <-left:
	case <-time.After(soon):
		t.Errorf("Deliver is still there %s after Close", soon)
		cancel()
		<-left
	}
	leavesNothing(t, before)
}

// deliverClosing makes a delivery, alone and in a batch where there are any, that may fail
// for the moment once the sink is being closed.
func (s Subject) deliverClosing(ctx context.Context, t *testing.T, sink sinks.Sink, d *notification.Delivery, mayFail func() bool) {
	check := func(err error) {
		if err != nil && (!mayFail() || class(err) == sinks.ClassPermanent) {
			t.Errorf("Deliver gave %v, want no error before Close, and none that is permanent", err)
		}
	}
	_, err := sink.Deliver(ctx, d)
	check(err)
	if b, _, ok := batcherOf(sink); ok {
		for _, r := range b.DeliverBatch(ctx, []*notification.Delivery{d}) {
			check(r.Err)
		}
	}
}

func (s Subject) testClose(t *testing.T) {
	sink := s.New(t)
	before := goleak.IgnoreCurrent() // the destination's
	t.Run("after use", func(t *testing.T) {
		open(t, sink)
		for _, d := range s.deliveries(20) {
			s.deliver(t, sink, d)
		}
	})
	leavesNothing(t, before)
}

// leavesNothing waits until no goroutines are left but those from before: what answered the
// sink at the destination ends by itself.
func leavesNothing(t *testing.T, before goleak.Option) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		err := goleak.Find(before)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Error(err)
			return
		}
	}
}

func (s Subject) testBroken(t *testing.T, want sinks.Class, sink sinks.Sink) {
	open(t, sink) // a destination that is down is no reason not to start
	d := s.Delivery(0)
	before := clone(d)
	_, err := sink.Deliver(t.Context(), d)
	if err == nil || class(err) != want {
		t.Errorf("Deliver gave %v, want an error that is %s", err, want)
	}
	unchanged(t, d, before)
	if b, limits, ok := batcherOf(sink); ok {
		batch := s.batch(0, min(3, limits.Size))
		for i, r := range deliverBatch(t.Context(), t, b, batch) {
			if r.Err == nil || class(r.Err) != want {
				t.Errorf("result %d is %v, want an error that is %s", i, r.Err, want)
			}
		}
	}
	if h, ok := sink.(sinks.HealthChecker); ok && want == sinks.ClassUnavailable && h.CheckHealth(t.Context()) == nil {
		t.Error("CheckHealth finds nothing wrong with an unavailable destination")
	}
}

func (s Subject) deliveries(count int) (ds []*notification.Delivery) {
	for n := range count {
		ds = append(ds, s.Delivery(n))
	}
	return ds
}

// deliver makes a delivery that must succeed. Any goroutine may call it.
func (s Subject) deliver(t *testing.T, sink sinks.Sink, d *notification.Delivery) {
	t.Helper()
	before := clone(d)
	receipt, err := sink.Deliver(t.Context(), d)
	if err != nil {
		t.Errorf("Deliver: %v", err)
		return
	}
	s.checkReceipt(t, receipt)
	unchanged(t, d, before)
}

func (s Subject) checkReceipt(t *testing.T, r notification.Receipt) {
	t.Helper()
	switch {
	case s.Receipts && r == "":
		t.Error("a delivery gave no receipt")
	case !s.Receipts && r != "":
		t.Errorf("a delivery gave the receipt %q; declare Receipts", r)
	}
}

// deliverSoon makes a delivery whose context ends at once.
func (s Subject) deliverSoon(ctx context.Context, t *testing.T, sink sinks.Sink) error {
	started := time.Now()
	_, err := sink.Deliver(ctx, s.Delivery(0))
	if took := time.Since(started); took > soon {
		t.Errorf("Deliver returned after %s, more than %s", took, soon)
	}
	return err
}

// open opens the sink now and closes it when the test ends, before its
// destination does.
func open(t *testing.T, sink sinks.Sink) sinks.Sink {
	t.Helper()
	openOnly(t, sink)
	if c, ok := sink.(sinks.Closer); ok {
		t.Cleanup(func() {
			if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	return sink
}

func openOnly(t *testing.T, sink sinks.Sink) {
	t.Helper()
	if o, ok := sink.(sinks.Opener); ok {
		if err := o.Open(t.Context()); err != nil {
			t.Fatalf("Open: %v", err)
		}
	}
}

func clone(d *notification.Delivery) *notification.Delivery {
	e := *d.Envelope
	e.Metadata, e.Payload = maps.Clone(e.Metadata), slices.Clone(e.Payload)
	return &notification.Delivery{Envelope: &e, Sink: d.Sink, Attempt: d.Attempt}
}

// takeBack spoils what the sink must not have kept.
func takeBack(d *notification.Delivery) {
	clear(d.Payload)
	for name := range d.Metadata {
		d.Metadata[name] = "taken back"
	}
}

func unchanged(t *testing.T, d, before *notification.Delivery) {
	t.Helper()
	if !reflect.DeepEqual(d, before) {
		t.Errorf("the sink changed the delivery from %+v to %+v", before.Envelope, d.Envelope)
	}
}

func class(err error) sinks.Class {
	c, _ := sinks.Classify(err)
	return c
}

// passes reports whether err is one that another try may not meet.
func passes(err error) bool {
	c := class(err)
	return c == sinks.ClassTransient || c == sinks.ClassUnavailable
}
