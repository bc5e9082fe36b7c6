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
// Run it with -race: some of what it checks only the race detector sees.
package sinktest

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// soon is how fast a sink must return once its context ended.
const soon = 5 * time.Second

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

	// Broken holds, for a class of error, a sink whose destination causes it.
	Broken map[sinks.Class]func(t *testing.T) sinks.Sink

	// Stuck returns a sink whose destination never answers, so that only the
	// context ends a delivery.
	Stuck func(t *testing.T) sinks.Sink

	// Receipts tells that every delivery gives a receipt.
	Receipts bool
}

// Run checks the subject against the contracts of [sinks.Sink], [sinks.Opener],
// [sinks.Closer] and [sinks.HealthChecker], one subtest for each clause.
func Run(t *testing.T, s Subject) {
	if s.Delivery == nil {
		s.Delivery = NewDelivery
	}
	t.Run("one after another arrive in order", s.testOrder)
	t.Run("in parallel all arrive", s.testParallel)
	t.Run("a cancelled delivery ends soon", s.testCancelled)
	t.Run("close leaves nothing running", s.testClose)
	t.Run("opens and closes without a delivery", func(t *testing.T) { open(t, s.New(t)) })
	for class, broken := range s.Broken {
		t.Run("broken is "+class.String(), func(t *testing.T) { s.testBroken(t, class, broken(t)) })
	}
	if s.Stuck != nil {
		t.Run("stuck it can be cancelled", func(t *testing.T) { s.testStuck(t, s.Stuck(t)) })
	}
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

// testParallel also takes each payload back after its delivery: a sink that
// kept it sends garbage, or the race detector catches it.
func (s Subject) testParallel(t *testing.T) {
	sink := open(t, s.New(t))
	sent := s.deliveries(200)
	var wg sync.WaitGroup
	for part := range slices.Chunk(sent, 25) {
		wg.Go(func() {
			for _, d := range part {
				lent := clone(d)
				s.deliver(t, sink, lent)
				clear(lent.Payload)
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
		received := s.Received(t)
		slices.SortFunc(received, func(a, b notification.Envelope) int { return cmp.Compare(a.ID, b.ID) })
		slices.SortFunc(sent, func(a, b *notification.Delivery) int { return cmp.Compare(a.ID, b.ID) })
		compare(t, received, sent)
	}
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

func (s Subject) testStuck(t *testing.T, sink sinks.Sink) {
	open(t, sink)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if err := s.deliverSoon(ctx, t, sink); err == nil || class(err) != sinks.ClassCancelled {
		t.Errorf("Deliver gave %v, want an error that is cancelled", err)
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
	goleak.VerifyNone(t, before)
}

func (s Subject) testBroken(t *testing.T, want sinks.Class, sink sinks.Sink) {
	open(t, sink) // a destination that is down is no reason not to start
	d := s.Delivery(0)
	before := clone(d)
	_, err := sink.Deliver(t.Context(), d)
	if err == nil || class(err) != want {
		t.Errorf("Deliver gave %v, want an error that is %s", err, want)
	}
	if !reflect.DeepEqual(d, before) {
		t.Errorf("Deliver changed the delivery from %+v to %+v", before.Envelope, d.Envelope)
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
	before := clone(d)
	receipt, err := sink.Deliver(t.Context(), d)
	switch {
	case err != nil:
		t.Errorf("Deliver: %v", err)
	case s.Receipts && receipt == "":
		t.Error("Deliver gave no receipt")
	case !reflect.DeepEqual(d, before):
		t.Errorf("Deliver changed the delivery from %+v to %+v", before.Envelope, d.Envelope)
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

// compare wants received to be what was sent, in the same order, as far as the
// destination can tell.
func compare(t *testing.T, received []notification.Envelope, sent []*notification.Delivery) {
	t.Helper()
	if len(received) != len(sent) {
		t.Fatalf("%d deliveries arrived, want %d", len(received), len(sent))
	}
	for i, d := range sent {
		if received[i].ID != d.ID {
			t.Fatalf("delivery %d has id %q, want %q", i, received[i].ID, d.ID)
		}
		got, want := reflect.ValueOf(received[i]), reflect.ValueOf(*d.Envelope)
		for f := range got.NumField() {
			g, w := got.Field(f), want.Field(f)
			if !g.IsZero() && !reflect.DeepEqual(g.Interface(), w.Interface()) {
				t.Errorf("delivery %d has %s %s, want %s", i, got.Type().Field(f).Name, g, w)
			}
		}
	}
}

// open opens the sink now and closes it when the test ends, before its
// destination does.
func open(t *testing.T, sink sinks.Sink) sinks.Sink {
	t.Helper()
	if o, ok := sink.(sinks.Opener); ok {
		if err := o.Open(t.Context()); err != nil {
			t.Fatalf("Open: %v", err)
		}
	}
	if c, ok := sink.(sinks.Closer); ok {
		t.Cleanup(func() {
			if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	return sink
}

func clone(d *notification.Delivery) *notification.Delivery {
	e := *d.Envelope
	e.Metadata, e.Payload = maps.Clone(e.Metadata), slices.Clone(e.Payload)
	return &notification.Delivery{Envelope: &e, Sink: d.Sink, Attempt: d.Attempt}
}

func class(err error) sinks.Class {
	c, _ := sinks.Classify(err)
	return c
}
