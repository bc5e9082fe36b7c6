// Package sinktest is the conformance suite of the sink contract. Every sink runs it, and you
// can run it for your own sink:
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
// Run it with -race, because only the race detector finds some violations. The suite looks
// for leaked goroutines in the whole process, so no other test may run at the same time.
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

// soon is how long a sink may take to return after its context has ended. The engine abandons
// a call after 2 s; a machine that runs tests may be slow. It is less than a sink's default timeout, 10 s.
const soon = 9 * time.Second

// afterSoon returns a context that ends after soon. It counts ticks, so that a machine that stalls loses only one of them.
func afterSoon() context.Context {
	ctx, end := context.WithCancel(context.Background())
	left := 90
	var tick func()
	tick = func() {
		if left == 0 {
			end()
			return
		}
		left--
		time.AfterFunc(soon/90, tick)
	}
	tick()
	return ctx
}

// leakTimeout is how long goroutines may take to end after the sink is closed.
const leakTimeout = time.Minute

// inFlight is the number of concurrent calls while a sink is being closed.
const inFlight = 8

// Subject is the sink kind under test. Only New is required.
type Subject struct {
	// New starts a destination that accepts everything and returns an unopened sink for it.
	// The suite opens and closes the sink. Each case calls New once. New stops the
	// destination with t.Cleanup.
	New func(t *testing.T) sinks.Sink

	// Received returns copies of what the destination of the last New has accepted, oldest
	// first, with times in UTC. ID is required. Other fields are not compared if they are
	// zero, for destinations that do not know them. With nil the suite does not check what
	// arrives.
	Received func(t *testing.T) []notification.Envelope

	// Collected returns copies of the collections that the destination of the last New has
	// accepted, oldest first. nil means that their members arrive one by one, and Received
	// returns them.
	Collected func(t *testing.T) []Collected

	// Delivery makes the n-th delivery, with a unique ID, for a sink that accepts only some
	// payloads. nil means [NewDelivery].
	Delivery func(n int) *notification.Delivery

	// Refused makes the n-th delivery, with a unique ID, that the destination of New never
	// accepts, such as one that is too large. The suite sets its key. nil means that the
	// destination accepts everything.
	Refused func(n int) *notification.Delivery

	// Broken has, for a class of error, a sink whose destination causes this error for every
	// delivery.
	Broken map[sinks.Class]func(t *testing.T) sinks.Sink

	// Stuck returns a sink whose destination never answers, so that only the context ends a
	// delivery. nil means that there is no such destination.
	Stuck func(t *testing.T) sinks.Sink

	// Waits declares that a call waits for its outcome even after its context has ended,
	// because its message may still arrive. The engine abandons such a call. The suite then
	// only checks that Close ends a stuck call.
	Waits bool

	// Receipts declares that every delivery returns a receipt. With false no delivery
	// returns one.
	Receipts bool
}

// Run checks the subject against the contracts of [sinks.Sink], [sinks.Opener],
// [sinks.Closer], [sinks.HealthChecker], [sinks.Batcher] and [sinks.Collector], with a subtest for
// each rule. It leaves out rules that need a field of the Subject that is nil.
func Run(t *testing.T, s Subject) {
	if s.Delivery == nil {
		s.Delivery = NewDelivery
	}
	t.Run("sequential deliveries arrive in order", s.testOrder)
	t.Run("parallel deliveries all arrive", s.testParallel)
	t.Run("a repeated delivery succeeds", s.testAgain)
	t.Run("odd deliveries arrive unchanged or are refused", s.testOdd)
	t.Run("strange deliveries are refused at most, and nothing else is", s.testStrange)
	t.Run("a cancelled delivery ends soon", s.testCancelled)
	t.Run("a delivery after its deadline ends soon", s.testExpired)
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
		t.Run("a stuck delivery can be cancelled", func(t *testing.T) { s.testStuck(t, s.Stuck(t)) })
		t.Run("a stuck delivery ends at its deadline", func(t *testing.T) { s.testDeadline(t, s.Stuck(t)) })
	}
	if s.Stuck != nil {
		t.Run("a stuck sink can be closed", func(t *testing.T) { s.testCloseStuck(t, s.Stuck(t)) })
	}
	t.Run("batches", s.testBatches)
	t.Run("collections", s.testCollections)
}

func (s Subject) testOrder(t *testing.T) {
	sink := open(t, s.New(t))
	sent := s.deliveries(20)
	for _, d := range sent {
		d.Key = "one" // the engine delivers the deliveries of a key one after another
		s.deliver(t, sink, d)
	}
	if s.Received != nil {
		compare(t, s.Received(t), sent)
	}
}

// testParallel also overwrites the payload and the metadata after each delivery. If the sink
// kept them, garbage arrives or the race detector reports it.
func (s Subject) testParallel(t *testing.T) {
	sink := open(t, s.New(t))
	sent := s.deliveries(200)
	var wg sync.WaitGroup
	for part := range slices.Chunk(sent, 25) {
		wg.Go(func() {
			for _, d := range part {
				lent := clone(d)
				s.deliver(t, sink, lent)
				overwrite(lent)
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

// testAgain makes a delivery twice, as the engine does after a crash. The destination may
// keep one or both.
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
	if err := s.deliverSoon(ctx, t, sink); err != nil && Class(err) != sinks.ClassCancelled {
		t.Errorf("Deliver returned %v, want no error or a cancelled one", err)
	}
	s.deliver(t, sink, s.Delivery(1)) // the sink still works
}

// testExpired delivers with a context that has already ended. A sink may return its error, or
// deliver without looking at it.
func (s Subject) testExpired(t *testing.T) {
	sink := open(t, s.New(t))
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if err := s.deliverSoon(ctx, t, sink); err != nil && !retriable(err) {
		t.Errorf("Deliver returned %v, want no error or a transient or unavailable one", err)
	}
	s.deliver(t, sink, s.Delivery(1))
}

func (s Subject) testRefused(t *testing.T) {
	sink := open(t, s.New(t))
	d := s.Refused(0)
	before := clone(d)
	if _, err := sink.Deliver(t.Context(), d); !final(err) {
		t.Errorf("Deliver returned %v, want a permanent or invalid error", err)
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
	if err := s.deliverSoon(ctx, t, sink); err == nil || Class(err) != sinks.ClassCancelled {
		t.Errorf("Deliver returned %v, want a cancelled error", err)
	}
}

func (s Subject) testDeadline(t *testing.T, sink sinks.Sink) {
	open(t, sink)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.deliverSoon(ctx, t, sink); err == nil || !retriable(err) {
		t.Errorf("Deliver returned %v, want a transient or unavailable error", err)
	}
}

// testCloseStuck closes the sink while a call is still running, as after the engine has
// abandoned a call.
func (s Subject) testCloseStuck(t *testing.T, sink sinks.Sink) {
	closer, ok := sink.(sinks.Closer)
	if !ok {
		t.Skip("it is not a sinks.Closer")
	}
	openOnly(t, sink)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	returned := make(chan error, 1)
	go func() {
		_, err := sink.Deliver(ctx, s.Delivery(0))
		returned <- err
	}()
	// Usually this is enough for the call to be stuck. Otherwise it finds the sink closed, which
	// must work too.
	time.Sleep(50 * time.Millisecond)

	closed := make(chan struct{})
	go func() {
		defer close(closed)
		closing, stop := context.WithTimeout(context.WithoutCancel(t.Context()), 200*time.Millisecond)
		defer stop()
		_ = closer.Close(closing) // the error may name calls that still run
	}()
	select {
	case <-closed:
	case <-afterSoon().Done():
		t.Errorf("Close still runs %s after its context ended", soon)
	}
	cancel()
	select {
	case err := <-returned:
		if err == nil || final(err) {
			t.Errorf("Deliver returned %v, want an error that is not permanent", err)
		}
	case <-afterSoon().Done():
		t.Errorf("Deliver still runs %s after its context ended", soon)
	}
	<-closed
}

// testCloseInFlight closes the sink while calls begin and end. In the engine only abandoned calls
// overlap with Close, but they may have reached any point.
func (s Subject) testCloseInFlight(t *testing.T) {
	sink := s.New(t)
	closer, ok := sink.(sinks.Closer)
	if !ok {
		t.Skip("it is not a sinks.Closer")
	}
	before := goleak.IgnoreCurrent() // goroutines of the destination
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
	if err := closer.Close(afterSoon()); err != nil {
		t.Errorf("Close: %v", err)
	}
	close(closed)
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		calls.Wait()
	}()
	select {
	case <-returned:
	case <-afterSoon().Done():
		t.Errorf("Deliver still runs %s after Close", soon)
		cancel()
		<-returned
	}
	requireNoLeaks(t, before)
}

// deliverClosing makes a delivery, alone and, if the sink can, in a batch and in a collection. If
// mayFail returns true, because the sink is being closed, an error that is not permanent is
// accepted.
func (s Subject) deliverClosing(ctx context.Context, t *testing.T, sink sinks.Sink, d *notification.Delivery, mayFail func() bool) {
	check := func(err error) {
		if err != nil && (!mayFail() || final(err)) {
			t.Errorf("Deliver returned %v, want no error before Close and no permanent one afterwards", err)
		}
	}
	_, err := sink.Deliver(ctx, d)
	check(err)
	if b, _, ok := batcherOf(sink); ok {
		for _, r := range b.DeliverBatch(ctx, []*notification.Delivery{d}) {
			check(r.Err)
		}
	}
	if c, ok := sink.(sinks.Collector); ok {
		_, err := c.DeliverCollection(ctx, &sinks.Collection{ID: notification.NewID(), Group: "one", Attempt: 1, Members: []*notification.Delivery{d}})
		check(err)
	}
}

func (s Subject) testClose(t *testing.T) {
	sink := s.New(t)
	before := goleak.IgnoreCurrent() // goroutines of the destination
	t.Run("after use", func(t *testing.T) {
		open(t, sink)
		for _, d := range s.deliveries(20) {
			s.deliver(t, sink, d)
		}
	})
	requireNoLeaks(t, before)
}

// requireNoLeaks waits until only the goroutines from before are left. Those of the
// destination that served the sink end a little later by themselves.
func requireNoLeaks(t *testing.T, before goleak.Option) {
	t.Helper()
	for end := time.Now().Add(leakTimeout); ; {
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
	open(t, sink) // Open must succeed although the destination is down
	d := s.Delivery(0)
	before := clone(d)
	_, err := sink.Deliver(t.Context(), d)
	if err == nil || Class(err) != want {
		t.Errorf("Deliver returned %v, want an error of the class %s", err, want)
	}
	unchanged(t, d, before)
	if b, limits, ok := batcherOf(sink); ok {
		batch := s.batch(0, min(3, limits.Size))
		for i, r := range deliverBatch(t.Context(), t, b, batch) {
			if r.Err == nil || Class(r.Err) != want {
				t.Errorf("result %d: %v, want an error of the class %s", i, r.Err, want)
			}
		}
	}
	if h, ok := sink.(sinks.HealthChecker); ok && want == sinks.ClassUnavailable && h.CheckHealth(t.Context()) == nil {
		t.Error("CheckHealth returned no error for an unavailable destination")
	}
}

func (s Subject) deliveries(count int) (ds []*notification.Delivery) {
	for n := range count {
		ds = append(ds, s.Delivery(n))
	}
	return ds
}

// deliver makes a delivery and reports an error if it fails. Any goroutine may call it.
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
		t.Error("a delivery returned no receipt")
	case !s.Receipts && r != "":
		t.Errorf("a delivery returned the receipt %q; declare Receipts", r)
	}
}

// deliverSoon makes a delivery whose context ends soon or has ended, and checks that it
// returns soon.
func (s Subject) deliverSoon(ctx context.Context, t *testing.T, sink sinks.Sink) error {
	late := afterSoon()
	_, err := sink.Deliver(ctx, s.Delivery(0))
	if late.Err() != nil {
		t.Errorf("Deliver returned more than %s later", soon)
	}
	return err
}

// open opens the sink and closes it when the test ends, before the destination stops.
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

// overwrite changes the parts of a delivery that the sink must not keep.
func overwrite(d *notification.Delivery) {
	clear(d.Payload)
	for name := range d.Metadata {
		d.Metadata[name] = "overwritten"
	}
}

func unchanged(t *testing.T, d, before *notification.Delivery) {
	t.Helper()
	if !reflect.DeepEqual(d, before) {
		t.Errorf("the sink changed the delivery from %+v to %+v", before.Envelope, d.Envelope)
	}
}

// Class returns the class of an error.
func Class(err error) sinks.Class {
	c, _ := sinks.Classify(err)
	return c
}

// final reports whether err makes the delivery dead at once.
func final(err error) bool {
	c := Class(err)
	return err != nil && (c == sinks.ClassPermanent || c == sinks.ClassInvalid)
}

// retriable reports whether the engine tries again after err.
func retriable(err error) bool {
	c := Class(err)
	return c == sinks.ClassTransient || c == sinks.ClassUnavailable
}
