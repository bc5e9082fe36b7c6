package sinktest

import (
	"bytes"
	"cmp"
	"context"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// collectionSize is the number of members of a collection.
const collectionSize = 5

// Collected is a collection as it arrived.
type Collected struct {
	// ID is the id under which the destination recognizes a repeat.
	ID string
	// Raw is what arrived, without what differs between attempts, such as a time or the name of
	// a host. It is the same for a repeat.
	Raw []byte
	// Members are compared as what Subject.Received returns, except that their ids may be missing,
	// too.
	Members []notification.Envelope
}

// testCollections checks the contract of [sinks.Collector]. It skips other sinks.
func (s Subject) testCollections(t *testing.T) {
	collector, ok := s.New(t).(sinks.Collector)
	if !ok {
		t.Skip("it is not a sinks.Collector")
	}
	open(t, collector)
	if size := collector.CollectionSize(); size < 0 {
		t.Errorf("collections have at most %d members", size)
	}
	run := func(name string, test func(*testing.T, sinks.Collector)) {
		t.Run(name, func(t *testing.T) { test(t, open(t, s.New(t)).(sinks.Collector)) })
	}
	run("all members arrive in order", s.testCollectionOrder)
	run("a single member arrives", func(t *testing.T, to sinks.Collector) {
		c := s.collection(0, 1)
		s.collect(t, to, c)
		s.compareCollections(t, c)
	})
	run("parallel collections all arrive", s.testParallelCollections)
	run("a repeat is the same", s.testCollectionAgain)
	run("a cancelled collection ends soon", s.testCancelledCollection)
	for class, broken := range s.Broken {
		t.Run("broken is "+class.String(), func(t *testing.T) { s.testBrokenCollection(t, class, broken(t)) })
	}
	if s.Refused != nil {
		run("a refused member is permanent", s.testRefusedMember)
	}
	if s.Stuck != nil && !s.Waits {
		t.Run("a stuck collection can be cancelled", func(t *testing.T) { s.testStuckCollection(t, s.Stuck(t)) })
	}
}

func (s Subject) testCollectionOrder(t *testing.T, to sinks.Collector) {
	var sent []*sinks.Collection
	for n := range 3 {
		c := s.collection(n*collectionSize, collectionSize)
		s.collect(t, to, c)
		sent = append(sent, c)
	}
	s.compareCollections(t, sent...)
}

// testParallelCollections overwrites each collection afterwards, as testParallel does.
func (s Subject) testParallelCollections(t *testing.T, to sinks.Collector) {
	var (
		wg   sync.WaitGroup
		sent []*sinks.Collection
	)
	for n := range 8 {
		c := s.collection(n*collectionSize, collectionSize)
		sent = append(sent, c)
		lent := cloneCollection(c)
		wg.Go(func() {
			s.collect(t, to, lent)
			for _, d := range lent.Members {
				overwrite(d)
			}
			clear(lent.Members)
			lent.ID, lent.Group = "overwritten", "overwritten"
		})
	}
	wg.Wait()
	if s.Collected == nil && s.Received != nil {
		compareSorted(t, s.Received(t), membersOf(sent))
		return
	}
	s.compareCollections(t, sent...)
}

func (s Subject) testCollectionAgain(t *testing.T, to sinks.Collector) {
	first := s.collection(0, collectionSize)
	again := cloneCollection(first)
	again.Attempt++
	for _, d := range again.Members {
		d.Attempt = again.Attempt
	}
	s.collect(t, to, first)
	s.collect(t, to, again)
	if s.Collected == nil {
		return
	}
	got := s.Collected(t)
	for _, other := range got[min(1, len(got)):] { // the destination may have kept only one
		if !bytes.Equal(got[0].Raw, other.Raw) {
			t.Errorf("the repeat is %s, want what arrived first: %s", abbreviate(other.Raw), abbreviate(got[0].Raw))
		}
	}
}

func (s Subject) testCancelledCollection(t *testing.T, to sinks.Collector) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.collectSoon(ctx, t, to, true)
	s.collect(t, to, s.collection(collectionSize, collectionSize)) // the sink still works
}

func (s Subject) testBrokenCollection(t *testing.T, want sinks.Class, sink sinks.Sink) {
	to := openCollector(t, sink)
	if _, err := deliverCollection(t.Context(), t, to, s.collection(0, 2)); err == nil || Class(err) != want {
		t.Errorf("DeliverCollection returned %v, want an error of the class %s", err, want)
	}
}

func (s Subject) testStuckCollection(t *testing.T, sink sinks.Sink) {
	to := openCollector(t, sink)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	s.collectSoon(ctx, t, to, false)
}

// collectSoon delivers a collection whose context ends soon or has ended.
func (s Subject) collectSoon(ctx context.Context, t *testing.T, to sinks.Collector, mayArrive bool) {
	late := afterSoon()
	_, err := deliverCollection(ctx, t, to, s.collection(0, collectionSize))
	if err != nil && Class(err) != sinks.ClassCancelled || err == nil && !mayArrive {
		t.Errorf("DeliverCollection returned %v, want a cancelled error", err)
	}
	if late.Err() != nil {
		t.Errorf("DeliverCollection returned more than %s later", soon)
	}
}

// testRefusedMember checks that a refused member makes the whole collection dead, and no other one.
// Some destinations have then accepted the others.
func (s Subject) testRefusedMember(t *testing.T, to sinks.Collector) {
	c := s.collection(0, 2)
	c.Members = append(c.Members, s.Refused(2))
	if _, err := deliverCollection(t.Context(), t, to, c); !final(err) {
		t.Errorf("DeliverCollection returned %v, want a permanent or invalid error", err)
	}
	s.collect(t, to, s.collection(3, 2))
}

// openCollector opens a sink, and skips the test if that sink is not a Collector.
func openCollector(t *testing.T, sink sinks.Sink) sinks.Collector {
	t.Helper()
	to, ok := open(t, sink).(sinks.Collector)
	if !ok {
		t.Skip("it is not a sinks.Collector")
	}
	return to
}

// collection returns a collection of size deliveries, beginning with the n-th.
func (s Subject) collection(n, size int) *sinks.Collection {
	return &sinks.Collection{Sink: "sinktest", ID: notification.NewID(), Group: "gröup 1", Attempt: 1, Members: s.batch(n, size)}
}

func cloneCollection(c *sinks.Collection) *sinks.Collection {
	copied := *c
	copied.Members = make([]*notification.Delivery, len(c.Members))
	for i, d := range c.Members {
		copied.Members[i] = clone(d)
	}
	return &copied
}

// collect delivers a collection and reports an error if it fails. Any goroutine may call it.
func (s Subject) collect(t *testing.T, to sinks.Collector, c *sinks.Collection) {
	receipt, err := deliverCollection(t.Context(), t, to, c)
	if err != nil {
		t.Errorf("DeliverCollection: %v", err)
		return
	}
	s.checkReceipt(t, receipt)
}

// deliverCollection delivers a collection, and reports an error if the sink changed it.
func deliverCollection(ctx context.Context, t *testing.T, to sinks.Collector, c *sinks.Collection) (notification.Receipt, error) {
	t.Helper()
	before := cloneCollection(c)
	receipt, err := to.DeliverCollection(ctx, c)
	if !reflect.DeepEqual(c, before) {
		t.Errorf("the sink changed the collection %s", before.ID)
	}
	return receipt, err
}

// compareCollections checks that the collections arrived: in this order if their members arrive one by one.
func (s Subject) compareCollections(t *testing.T, sent ...*sinks.Collection) {
	t.Helper()
	if s.Collected == nil {
		if s.Received != nil {
			compare(t, s.Received(t), membersOf(sent))
		}
		return
	}
	got := s.Collected(t)
	if len(got) != len(sent) {
		t.Fatalf("%d collections arrived, want %d", len(got), len(sent))
	}
	for _, c := range sent {
		i := slices.IndexFunc(got, func(g Collected) bool { return g.ID == c.ID })
		if i < 0 {
			t.Fatalf("the collection with the id %s did not arrive", c.ID)
		}
		members := slices.Clone(got[i].Members)
		for m := range min(len(members), len(c.Members)) {
			members[m].ID = cmp.Or(members[m].ID, c.Members[m].ID)
		}
		compare(t, members, c.Members)
	}
}

func membersOf(collections []*sinks.Collection) (all []*notification.Delivery) {
	for _, c := range collections {
		all = append(all, c.Members...)
	}
	return all
}
