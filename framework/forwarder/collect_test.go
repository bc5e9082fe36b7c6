package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// collector is a sink that takes collections, too, and records them.
type collector struct {
	script
	refuse func(c *sinks.Collection) error // nil: it takes all
	limit  int

	mu       sync.Mutex
	all      []string // "group: members"
	ids      []string // of collections
	attempts []int
	groups   map[string]bool // in flight
	overlaps int
}

func (s *collector) CollectionSize() int { return s.limit }

func (s *collector) DeliverCollection(ctx context.Context, c *sinks.Collection) (notification.Receipt, error) {
	s.mu.Lock()
	if s.groups == nil {
		s.groups = make(map[string]bool)
	}
	if s.groups[c.Group] {
		s.overlaps++
	}
	s.groups[c.Group] = true
	ids := make([]string, len(c.Members))
	for i, m := range c.Members {
		ids[i] = m.ID
	}
	s.all, s.ids, s.attempts = append(s.all, c.Group+": "+strings.Join(ids, " ")), append(s.ids, c.ID), append(s.attempts, c.Attempt)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.groups[c.Group] = false
	}()
	if s.refuse != nil {
		return "taken together", s.refuse(c)
	}
	return "taken together", nil
}

// collected returns the collections in the order in which their deliveries began, and clears the list.
func (s *collector) collected() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = nil
	return all
}

// to returns an envelope with a recipient.
func to(recipient, key, id string) notification.Envelope {
	return notification.Envelope{ID: id, Type: "t", Key: key, Metadata: notification.Metadata{"recipient": recipient}}
}

var byRecipient = forwarder.Collect{By: "metadata.recipient", Wait: time.Minute}

// manyLanes cuts each sink into lanes.
func manyLanes(n int) func(*forwarder.Config) {
	return func(c *forwarder.Config) { c.Lanes = n }
}

func TestOnlyTheNewestOfAKeyIsDelivered(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{}
		f := o.one(forwarder.Sink{Sink: s, Collect: forwarder.Collect{Keep: forwarder.KeepNewest, Wait: 2 * time.Second}})
		o.append("t", "a", "a1", "a2")
		o.append("t", "b", "b1")
		o.append("t", "", "alone")
		f.flush()
		require.Equal(t, []string{"alone"}, s.given(), "without a key there is no group")
		f.publish("t", "a", "a3")
		require.Empty(t, s.given())
		pass(3 * time.Second)
		require.ElementsMatch(t, []string{"a3", "b1"}, s.given())
		require.Equal(t, []string{"a1 superseded by a2", "a2 superseded by a3", "a3 taken", "alone taken", "b1 taken"}, o.texts(`SELECT id || ' ' || receipt FROM outbox_receipts ORDER BY id`))
		require.Zero(t, value[int](o, `SELECT count(*) FROM outbox_parked`))
		stats := f.Stats()[0]
		require.EqualValues(t, 2, stats.Superseded)
		require.EqualValues(t, 1, stats.Ungrouped)
		require.EqualValues(t, 3, stats.Delivered)
	})
}

func TestANewestDeliveryWaitsAtMostItsLongestWait(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s := &script{}
		f := o.one(forwarder.Sink{Sink: s, Collect: forwarder.Collect{Keep: forwarder.KeepNewest, Wait: 2 * time.Second, MaxWait: 5 * time.Second}})
		for i := range 8 {
			f.publish("t", "a", fmt.Sprint("v", i))
			pass(900 * time.Millisecond)
		}
		require.Equal(t, []string{"v4"}, s.given())
		pass(3 * time.Second)
		require.Equal(t, []string{"v7"}, s.given())
	})
}

func TestWhatComesWhileTheNewestIsInFlightWaitsBehindIt(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{answer: either(takes(10*time.Second), failsOnce(errors.New("503"), "v1"))}
		f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Initial: time.Minute}, Collect: forwarder.Collect{Keep: forwarder.KeepNewest, Wait: time.Second}})
		f.publish("t", "a", "v1")
		pass(2 * time.Second)
		require.Equal(t, []string{"v1"}, s.given())
		for i := 2; i < 6; i++ {
			f.publish("t", "a", fmt.Sprint("v", i))
			pass(2 * time.Second)
		}
		pass(5 * time.Second) // the attempt has failed
		require.Empty(t, s.given())
		require.Equal(t, []string{"v1 retrying", "v5 blocked"}, o.texts(`SELECT id || ' ' || state FROM outbox_parked ORDER BY id`))
		f.publish("t", "a", "v6", "v7")
		pass(2 * time.Minute)
		require.Equal(t, []string{"v1", "v7"}, s.given())
		require.Zero(t, s.overlaps)
	})
}

func TestACollectionIsOneDelivery(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &collector{}
		f := o.one(forwarder.Sink{Sink: s, Collect: byRecipient}, manyLanes(3))
		o.insert(to("ann", "1", "a1"), to("bob", "1", "b1"), to("ann", "2", "a2"), to("", "3", "alone"))
		f.flush()
		require.Equal(t, []string{"alone"}, s.given())
		pass(30 * time.Second)
		o.insert(to("ann", "3", "a3"))
		f.flush()
		require.Empty(t, s.collected())
		require.Equal(t, 4, value[int](o, `SELECT count(*) FROM outbox_parked WHERE state = 'collecting'`))
		pass(35 * time.Second)
		require.Equal(t, []string{"bob: b1"}, s.collected())
		pass(30 * time.Second)
		require.Equal(t, []string{"ann: a1 a2 a3"}, s.collected())
		require.Zero(t, value[int](o, `SELECT count(*) FROM outbox_parked`))
		require.Zero(t, value[int](o, `SELECT count(*) FROM outbox_collections`))
		require.Equal(t, 4, value[int](o, `SELECT count(*) FROM outbox_receipts WHERE receipt = 'taken together'`))
		require.EqualValues(t, 2, f.Stats()[0].Collections)
		require.EqualValues(t, 5, f.Stats()[0].Delivered)
	})
}

func TestACollectionIsDueWithItsSizeOrItsLongestWait(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &collector{}
		f := o.one(forwarder.Sink{Sink: s, Collect: forwarder.Collect{By: "metadata.recipient", Wait: time.Minute, MaxWait: 2 * time.Minute, Size: 3}}, manyLanes(2))
		for i := range 7 {
			o.insert(to("ann", fmt.Sprint(i), fmt.Sprint("a", i)))
			f.flush() // since one lane may be ahead of the other
		}
		pass(12 * time.Second)
		require.Equal(t, []string{"ann: a0 a1 a2", "ann: a3 a4 a5"}, s.collected())
		pass(time.Minute)
		require.Equal(t, []string{"ann: a6"}, s.collected(), "what is left of a full collection waits as long")
		for i := range 5 {
			o.insert(to("bob", "k", fmt.Sprint("b", i)))
			f.flush()
			pass(45 * time.Second)
			if i == 1 {
				require.Empty(t, s.collected())
			}
		}
		pass(3 * time.Minute)
		require.Equal(t, []string{"bob: b0 b1 b2", "bob: b3 b4"}, s.collected())
	})
}

func TestACollectionThatFailsIsTriedAgainAsItWas(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &collector{}
		s.refuse = func(c *sinks.Collection) error {
			if len(c.Members) == 2 && c.Attempt < 3 {
				return errors.New("503")
			}
			return nil
		}
		f := o.one(forwarder.Sink{Sink: s, Collect: byRecipient, Retry: forwarder.Retry{Initial: 10 * time.Minute}}, manyLanes(2))
		o.insert(to("ann", "1", "a1"), to("ann", "2", "a2"))
		f.flush()
		pass(2 * time.Minute)
		require.Equal(t, []string{"ann: a1 a2"}, s.collected())
		require.Equal(t, []string{"1 503", "0 "}, o.texts(`SELECT attempt || ' ' || last_error FROM outbox_parked ORDER BY id`))
		o.insert(to("ann", "1", "a3"), to("bob", "1", "b1"))
		f.flush()
		pass(2 * time.Minute)
		require.Equal(t, []string{"bob: b1"}, s.collected(), "nothing else of the group")
		f.end()

		f = o.one(forwarder.Sink{Sink: s, Collect: byRecipient, Retry: forwarder.Retry{Initial: 10 * time.Minute}}, manyLanes(2))
		pass(time.Hour)
		require.Equal(t, []string{"ann: a1 a2", "ann: a1 a2", "ann: a3"}, s.collected())
		require.Equal(t, []int{1, 1, 2, 3, 1}, s.attempts)
		require.Equal(t, s.ids[0], s.ids[2])
		require.Equal(t, s.ids[0], s.ids[3])
		require.Len(t, map[string]bool{s.ids[0]: true, s.ids[1]: true, s.ids[4]: true}, 3)
		require.Zero(t, value[int](o, `SELECT count(*) FROM outbox_parked`))
		require.Zero(t, s.overlaps)
		f.end()
	})
}

func TestARefusedCollectionIsDeadAndComesBackAsItWas(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &collector{refuse: func(*sinks.Collection) error { return sinks.Permanent(errors.New("no such person")) }}
		f := o.one(forwarder.Sink{Sink: s, Collect: byRecipient}, manyLanes(2), leased(15*time.Second))
		o.insert(to("ann", "1", "a1"), to("ann", "2", "a2"))
		f.flush()
		pass(2 * time.Minute)
		require.Equal(t, []string{"ann: a1 a2"}, s.collected())
		require.Equal(t, []string{"dead no such person", "dead no such person"}, o.texts(`SELECT state || ' ' || last_error FROM outbox_parked ORDER BY id`))
		require.EqualValues(t, 2, f.Stats()[0].Dead)
		o.insert(to("ann", "3", "a3"))
		s.refuse = nil
		require.Equal(t, 2, newOperator(o).requeue(store.ParkedFilter{}))
		f.flush()
		pass(2 * time.Minute)
		require.Equal(t, []string{"ann: a1 a2", "ann: a3"}, s.collected())
		require.Equal(t, s.ids[0], s.ids[1])
		require.Zero(t, value[int](o, `SELECT count(*) FROM outbox_parked`))
		require.Zero(t, value[int](o, `SELECT count(*) FROM outbox_collections`))
	})
}

func TestTheNewestOfAGroupOfSeveralKeysIsDelivered(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{}
		c := byRecipient
		c.Keep = forwarder.KeepNewest
		f := o.one(forwarder.Sink{Sink: s, Collect: c}, manyLanes(3))
		o.insert(to("ann", "1", "a1"), to("ann", "2", "a2"), to("ann", "3", "a3"), to("bob", "1", "b1"))
		f.flush()
		pass(2 * time.Minute)
		require.ElementsMatch(t, []string{"a3", "b1"}, s.given())
		require.Equal(t, 2, value[int](o, `SELECT count(*) FROM outbox_receipts WHERE receipt = 'superseded by a3'`))
		require.Zero(t, value[int](o, `SELECT count(*) FROM outbox_parked`))
		require.EqualValues(t, 2, f.Stats()[0].Superseded)
	})
}

func TestAScheduledNotificationIsCollectedAtItsTime(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &collector{}
		f := o.one(forwarder.Sink{Sink: s, Collect: forwarder.Collect{Wait: time.Minute}})
		o.schedule("t", "k", "later", time.Now().Add(30*time.Second))
		o.append("t", "k", "first")
		f.flush()
		pass(time.Hour)
		require.Equal(t, []string{"k: later first"}, s.collected(), "in log order")
	})
}

func TestWithoutARuleWhatWasCollectedIsDelivered(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &collector{}
		f := o.one(forwarder.Sink{Sink: s, Collect: byRecipient})
		o.insert(to("ann", "1", "a1"), to("ann", "2", "a2"))
		f.flush()
		f.end()
		f = o.one(forwarder.Sink{Sink: s})
		o.insert(to("ann", "1", "a3"))
		f.flush()
		require.Equal(t, []string{"a3"}, s.given())
		pass(2 * time.Minute)
		require.Equal(t, []string{"a1", "a2"}, s.given(), "one after the other")
		require.Zero(t, value[int](o, `SELECT count(*) FROM outbox_parked`))
	})
}

func TestWhatCannotBeCollectedIsRefused(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]forwarder.Sink{
		"sinks.sink.collect.wait is missing":                                   {Sink: &collector{}, Collect: forwarder.Collect{By: "key"}},
		"sinks.sink.collect.wait is -1s: use more than 0":                      {Sink: &collector{}, Collect: forwarder.Collect{Wait: -time.Second}},
		"sinks.sink.collect.max_wait is 1s, less than wait 1m: ":               {Sink: &collector{}, Collect: forwarder.Collect{Wait: time.Minute, MaxWait: time.Second}},
		"sinks.sink.collect.size is 50, but the sink takes at most 20 at once": {Sink: &collector{limit: 20}, Collect: forwarder.Collect{Wait: time.Minute, Size: 50}},
		"sinks.sink.collect: the sink cannot deliver several":                  {Sink: &script{}, Collect: forwarder.Collect{Wait: time.Minute}},
		"sinks.sink.collect.by:":                                               {Sink: &collector{}, Collect: forwarder.Collect{By: "metadata.", Wait: time.Minute}},
		"in transactions of its lanes":                                         {Sink: newBank(), Collect: forwarder.Collect{Keep: forwarder.KeepNewest, Wait: time.Minute}},
		"middleware is for single notifications":                               {Sink: &collector{}, Middleware: []message.HandlerMiddleware{nil}, Collect: forwarder.Collect{Wait: time.Minute}},
		"sinks.sink.collect.keep is \"last\"":                                  {Sink: &collector{}, Collect: forwarder.Collect{Keep: "last", Wait: time.Minute}},
		"not groups of parked notifications":                                   {Sink: &collector{}, OnDead: settings.OnDeadHalt, Collect: forwarder.Collect{Wait: time.Minute}},
	} {
		_, err := forwarder.New(forwarder.Config{Fleet: true, Routes: route.Routes{"*": route.To("sink")}, Sinks: map[string]forwarder.Sink{"sink": s}})
		require.ErrorContains(t, err, want)
	}
}

func TestMembersThatAreDeliveredAloneHaveTheirOwnAttempts(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &collector{}
		f := o.one(forwarder.Sink{Sink: s, Collect: byRecipient}, manyLanes(2))
		for i := range 10 {
			o.insert(to("ann", fmt.Sprint(i%3), fmt.Sprint("a", i)))
		}
		f.flush()
		f.end()
		s.answer = either(takes(5*time.Second), failsOnce(errors.New("503"), "a4"))
		f = o.one(forwarder.Sink{Sink: s, Timeout: 12 * time.Second, Parallelism: forwarder.Parallelism{Threshold: 1}})
		pass(10 * time.Minute)
		require.Equal(t, map[string]int{"a0": 1, "a1": 1, "a2": 1, "a3": 1, "a4": 1, "a5": 1, "a6": 1, "a7": 1, "a8": 1, "a9": 1}, s.times())
		require.Len(t, s.given(), 11)
		require.Zero(t, s.overlaps)
		require.Zero(t, value[int](o, `SELECT count(*) FROM outbox_parked`))
		require.Zero(t, value[int](o, `SELECT count(*) FROM outbox_collections`))
		f.end()
	})
}

func TestARuleThatIsAddedKeepsTheOrderOfKeys(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &collector{}
		s.answer = failsOnce(errors.New("503"), "v1")
		retry := forwarder.Retry{Initial: time.Hour}
		f := o.one(forwarder.Sink{Sink: s, Retry: retry})
		f.publish("t", "a", "v1", "v2")
		f.end()
		f = o.one(forwarder.Sink{Sink: s, Retry: retry, Collect: forwarder.Collect{Wait: time.Minute}})
		f.publish("t", "a", "v3")
		pass(3 * time.Hour)
		require.Equal(t, []string{"v1"}, s.given())
		require.Equal(t, []string{"a: v1 v2 v3"}, s.collected())
	})
}

func TestACollectionOfUnknownTypesWaitsAsLongAsASingleOne(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s := &collector{refuse: func(*sinks.Collection) error { return sinks.Unknown(errors.New("a newer version")) }}
		f := o.one(forwarder.Sink{Sink: s, Collect: forwarder.Collect{Wait: time.Minute, MaxWait: 96 * time.Hour}})
		f.publish("t", "a", "v1")
		collectedFor := func(d time.Duration) {
			o.exec(`UPDATE outbox_parked SET first_parked_at = ?`, time.Now().Add(-d).UTC().Format("2006-01-02T15:04:05.000000Z"))
			pass(5 * time.Minute)
			require.NotEmpty(t, s.collected())
		}
		collectedFor(96*time.Hour + 71*time.Hour)
		require.Equal(t, []string{"sink collecting v1"}, o.parked())
		collectedFor(96*time.Hour + 73*time.Hour)
		require.Equal(t, []string{"sink dead v1"}, o.parked())
		f.end()
	})
}
