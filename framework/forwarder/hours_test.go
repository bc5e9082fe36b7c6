package forwarder_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// Bubbles begin at midnight in UTC. Hours begin and end soon after it, since a forwarder that waits
// for hours of fake time asks its database thousands of times.
var (
	byDay  = forwarder.Hours{From: "00:20", To: "00:40", Unless: `metadata.urgent == "true"`}
	opened = time.Date(2000, 1, 1, 0, 20, 0, 0, time.UTC)
	closed = time.Date(2000, 1, 1, 0, 40, 0, 0, time.UTC)

	// Here the night is what byDay has as its day.
	shortNight = forwarder.Hours{From: "00:40", To: "00:20", Unless: byDay.Unless}
	dusk, dawn = opened, closed
)

// until lets fake time pass until a time.
func until(at time.Time) { pass(time.Until(at)) }

// urgent is a notification that does not wait for hours.
func urgent(id, key string) notification.Envelope {
	return notification.Envelope{ID: id, Type: "t", Key: key, Metadata: map[string]string{"urgent": "true"}}
}

func TestDeliveriesWaitForTheHoursOfTheirSink(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{}
		o.append("t", "k", "a", "b")
		o.append("t", "", "c")
		f := o.one(forwarder.Sink{Sink: s, Hours: byDay})
		f.flush()
		require.Empty(t, s.given())
		require.Equal(t, []string{"sink quiet a", "sink blocked b", "sink quiet c"}, o.parked())
		require.Equal(t, opened, o.parkedOf("a").DueAt.UTC())
		f.publish("t", "k", "d")
		require.Equal(t, "blocked", string(o.parkedOf("d").State), "a quiet delivery holds its key")

		until(opened.Add(-time.Millisecond))
		require.Empty(t, s.given())
		pass(time.Second)
		require.ElementsMatch(t, []string{"a", "c", "b", "d"}, s.given())
		require.Zero(t, s.overlaps)
		require.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1, "d": 1}, s.attempts)
		require.Empty(t, o.parked())
		f.publish("t", "k", "e")
		require.Equal(t, []string{"e"}, s.given(), "by day they go at once")
		until(closed)
		f.publish("t", "", "f")
		require.Equal(t, []string{"sink quiet f"}, o.parked())
		require.Equal(t, opened.AddDate(0, 0, 1), o.parkedOf("f").DueAt.UTC())
	})
}

func TestTheOrderOfAKeyIsKeptOverTheNight(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{answer: fails(errors.New("503"), 1, "k0000")}
		ids := numbered("k", 300)
		o.append("t", "k", ids[:100]...)
		f := o.one(forwarder.Sink{Sink: s, Hours: byDay})
		f.flush()
		f.publish("t", "k", ids[100:200]...)
		until(opened.Add(-time.Second))
		f.end()
		f = o.one(forwarder.Sink{Sink: s, Hours: byDay})
		until(opened)
		f.publish("t", "k", ids[200:]...)
		pass(time.Minute)
		require.Equal(t, append([]string{"k0000"}, ids...), s.given())
		require.Empty(t, o.parked())
	})
}

func TestUrgentDeliveriesDoNotWaitForTheHours(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{answer: fails(errors.New("503"), 1, "fails")}
		o.append("t", "k", "a")
		o.insert(urgent("alone", ""), urgent("behind", "k"), urgent("first", "l"), urgent("fails", "k"))
		o.append("t", "l", "b")
		f := o.one(forwarder.Sink{Sink: s, Hours: byDay})
		f.flush()
		require.ElementsMatch(t, []string{"alone", "behind", "first", "fails"}, s.given())
		require.Equal(t, []string{"sink quiet a", "sink retrying fails", "sink quiet b"}, o.parked())
		pass(time.Minute)
		require.Equal(t, []string{"fails"}, s.given(), "a retry does not wait either")
		f.publish("t", "k", "c")
		require.Equal(t, "blocked", string(o.parkedOf("c").State))
		until(opened.Add(time.Second))
		given := s.given()
		require.Len(t, given, 3)
		require.Less(t, slices.Index(given, "a"), slices.Index(given, "c"))
		require.Empty(t, o.parked())
	})
}

// The first one fails by day, and its next attempt falls into the night. What is behind it and urgent goes then.
func TestUrgentDeliveriesBehindARetryGoWhenThatWaitsForTheHours(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{answer: fails(errors.New("503"), 1, "a")}
		f := o.one(forwarder.Sink{Sink: s, Hours: shortNight, Retry: forwarder.Retry{Pauses: []time.Duration{5 * time.Minute}}})
		until(dusk.Add(-time.Minute))
		f.publish("t", "k", "a", "b")
		o.insert(urgent("u", "k"), urgent("v", "k"))
		f.flush()
		require.Equal(t, []string{"a"}, s.given())
		until(dusk.Add(10 * time.Minute))
		require.ElementsMatch(t, []string{"u", "v"}, s.given())
		require.Equal(t, []string{"sink quiet a", "sink blocked b"}, o.parked())
		p := o.parkedOf("a")
		require.Equal(t, 1, p.Attempt, "the attempt stays spent")
		require.Contains(t, p.LastError, "503")
		until(dawn.Add(time.Second))
		require.Equal(t, []string{"a", "b"}, s.given())
		require.Equal(t, 2, s.attempts["a"])
		require.Empty(t, o.parked())
	})
}

// Once it has failed, it holds back its key as any other.
func TestAnUrgentDeliveryThatFailsHoldsItsKey(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{answer: fails(errors.New("503"), 1, "t", "u")}
		pass(10 * time.Second) // so that no comparison of keys, every 30 s from then on, is within what follows
		f := o.one(forwarder.Sink{Sink: s, Hours: byDay, Retry: forwarder.Retry{Pauses: []time.Duration{12 * time.Second}}})
		until(opened.Add(-10*time.Minute - 8*time.Second))
		o.insert(urgent("t", "k"))
		f.flush()
		f.publish("t", "k", "z")
		require.Equal(t, []string{"sink retrying t", "sink blocked z"}, o.parked())
		until(opened.Add(-10*time.Minute + 8*time.Second))
		require.Equal(t, []string{"t", "t"}, s.given())
		require.Equal(t, []string{"sink quiet z"}, o.parked())

		until(opened.Add(-8 * time.Second))
		o.insert(urgent("u", "k"))
		f.flush()
		require.Equal(t, []string{"u"}, s.given())
		until(opened)
		f.publish("t", "k", "a", "b")
		require.Equal(t, []string{"z"}, s.given())
		require.Equal(t, []string{"sink retrying u", "sink blocked a", "sink blocked b"}, o.parked())
		until(opened.Add(8 * time.Second))
		require.Equal(t, []string{"u", "a", "b"}, s.given())
	})
}

func TestAnUrgentDeliveryDoesNotPassADeadOneThatHaltsItsKey(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{answer: fails(sinks.Permanent(errors.New("400")), always, "dead")}
		f := o.one(forwarder.Sink{Sink: s, Hours: byDay, OnDead: forwarder.OnDeadHalt})
		until(closed.Add(-time.Minute))
		f.publish("t", "k", "dead")
		until(closed.Add(10 * time.Minute))
		o.insert(urgent("behind", "k"), urgent("free", "l"))
		f.flush()
		pass(time.Minute)
		require.Equal(t, []string{"dead", "free"}, s.given())
		require.Equal(t, []string{"sink dead dead", "sink blocked behind"}, o.parked())
	})
}

// Deliveries of a key that wait in memory when the hours end.
func TestDeliveriesInMemoryWaitWhenTheHoursEnd(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{answer: takes(40 * time.Second)}
		f := o.one(forwarder.Sink{Sink: s, Hours: shortNight, Timeout: time.Hour})
		until(dusk.Add(-time.Minute))
		o.append("t", "k", "a", "b", "c")
		o.insert(urgent("u", "k"))
		o.append("t", "k", "d")
		f.flush()
		until(dusk.Add(5 * time.Second))
		require.Equal(t, []string{"a", "b"}, s.given())
		until(dusk.Add(30 * time.Second))
		require.Equal(t, []string{"u"}, s.given(), "what is in flight ends")
		until(dusk.Add(5 * time.Minute))
		require.Equal(t, []string{"sink quiet c", "sink blocked d"}, o.parked())
		require.Empty(t, s.given())
		until(dawn.Add(5 * time.Minute))
		require.Equal(t, []string{"c", "d"}, s.given())
	})
}

func TestEachNotificationHasTheHoursOfItsZone(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var l lines
		midnight := time.Now().UTC()
		s := &script{}
		in := func(id, zone string) notification.Envelope {
			return notification.Envelope{ID: id, Type: "t", Metadata: map[string]string{"zone": zone}}
		}
		o.insert(in("tokyo", "Asia/Tokyo"), in("berlin", "Europe/Berlin"), in("none", ""), in("unknown", "Moon/Crater"), in("another", "../etc/passwd"))
		o.one(forwarder.Sink{Sink: s, Hours: forwarder.Hours{Zone: `metadata.zone || payload.zone || "America/Sao_Paulo"`, From: "01:05", To: "20:00"}}, l.logging).flush()
		require.Equal(t, []string{"tokyo"}, s.given())
		require.Equal(t, midnight.Add(5*time.Minute), o.parkedOf("berlin").DueAt.UTC())
		require.Equal(t, midnight.Add(3*time.Hour+5*time.Minute), o.parkedOf("none").DueAt.UTC())
		require.Equal(t, midnight.Add(time.Hour+5*time.Minute), o.parkedOf("unknown").DueAt.UTC(), "in UTC")
		found := l.with("hours")
		require.Len(t, found, 1, "the first one")
		require.Contains(t, found[0], `there is no zone \"Moon/Crater\"`)
		pass(3*time.Hour + 6*time.Minute)
		require.Len(t, s.given(), 4)
	})
}

func TestAnExpressionOfHoursThatFailsDelaysNothingForGood(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{}
		o.append("t", "k", "a", "b")
		f := o.one(forwarder.Sink{Sink: s, Hours: forwarder.Hours{Zone: "payload.user.zone", Unless: "payload.level > 3", From: byDay.From, To: byDay.To}})
		f.flush()
		require.Empty(t, s.given())
		until(opened.Add(time.Second))
		require.Equal(t, []string{"a", "b"}, s.given())
		require.Zero(t, f.Stats()[0].Dead)
	})
}

func TestScheduledDeliveriesWaitForTheHours(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{}
		o.schedule("t", "k", "a", opened.Add(-10*time.Minute))
		o.schedule("t", "k", "b", opened.Add(4*time.Minute))
		f := o.one(forwarder.Sink{Sink: s, Hours: byDay})
		f.flush()
		f.publish("t", "m", "c")
		until(opened.Add(-time.Minute))
		require.Equal(t, []string{"sink quiet a", "sink scheduled b", "sink quiet c"}, o.parked())
		require.Empty(t, s.given())
		until(opened.Add(2 * time.Minute))
		require.ElementsMatch(t, []string{"a", "c"}, s.given())
		until(opened.Add(6 * time.Minute))
		require.Equal(t, []string{"b"}, s.given())
	})
}

func TestHoursAreAdjusted(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{}
		o.append("t", "", "a")
		o.append("t", "k", "b", "c")
		f := o.one(forwarder.Sink{Sink: s, Hours: byDay})
		f.flush()
		f.adjust(func(s *forwarder.Sink) { s.Hours = forwarder.Hours{} })
		f.publish("t", "", "d")
		require.Equal(t, []string{"d"}, s.given())
		require.Equal(t, 2, newOperator(o).requeue(store.ParkedFilter{States: []store.State{store.StateQuiet}}))
		pass(time.Minute)
		require.ElementsMatch(t, []string{"a", "b", "c"}, s.given(), "a person need not wait for the hours that were in force")

		to := map[string]forwarder.Sink{"sink": {Sink: s, Hours: byDay}}
		require.NoError(t, f.Reload(t.Context(), to, route.Routes{"*": route.To("sink")}))
		f.publish("t", "", "e")
		require.Equal(t, []string{"sink quiet e"}, o.parked())
		require.Equal(t, int64(4), f.Stats()[0].Delivered, "the sink was not replaced")
	})
}

// A night's backlog is written once, is due at once, and keeps the order of its keys.
func TestTheBacklogOfANightIsDeliveredInTheOrderOfItsKeys(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		const n, keys = 3000, 400
		var mu sync.Mutex
		parked := make(map[store.State]int)
		watch := event.Func(func(e event.Event) {
			if p, ok := e.(*event.Parked); ok {
				mu.Lock()
				defer mu.Unlock()
				parked[p.State]++
			}
		})
		s := &script{answer: takes(10 * time.Millisecond)}
		o.insertMany(n, func(i int) notification.Envelope { return notification.Envelope{Key: fmt.Sprint(i % keys)} })
		f := o.one(forwarder.Sink{Sink: s, Hours: byDay}, watchedBy(watch))
		until(opened.Add(-time.Minute))
		require.Equal(t, map[store.State]int{store.StateQuiet: keys, store.StateBlocked: n - keys}, parked)
		require.Empty(t, s.given())
		require.Zero(t, f.Stats()[0].Pending)

		until(opened.Add(10 * time.Minute))
		require.Equal(t, map[store.State]int{store.StateQuiet: keys, store.StateBlocked: n - keys}, parked, "nothing is written again")
		given := s.given()
		require.ElementsMatch(t, numbered("n", n), given)
		last := make(map[int]string)
		for _, id := range given {
			var i int
			_, err := fmt.Sscanf(id, "n%d", &i)
			require.NoError(t, err)
			require.Less(t, last[i%keys], id)
			last[i%keys] = id
		}
		require.Zero(t, s.overlaps)
		require.Empty(t, o.parked())
	})
}

func TestADeliveryIntoALedgerWaitsForTheHours(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		b := newBank()
		o.append("t", "k", "a", "b")
		o.insert(urgent("u", "k"))
		o.append("t", "", "c")
		f := o.one(forwarder.Sink{Sink: b, Hours: byDay})
		f.flush()
		require.Equal(t, []string{"sink quiet a", "sink blocked b", "sink quiet c"}, o.parked())
		until(opened.Add(time.Minute))
		require.Empty(t, o.parked())
		require.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1, "u": 1}, b.tried)
		require.Equal(t, "u", b.committed[0].ID)
	})
}

// Behind a head whose zone is open, another one of its key may not be taken along into a batch.
func TestABatchHasOnlyDeliveriesWithinTheirHours(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		b := newBank()
		in := func(id, zone string) notification.Envelope {
			return notification.Envelope{ID: id, Type: "t", Key: "k", Metadata: map[string]string{"zone": zone}}
		}
		o.insert(in("a", "Asia/Tokyo"), in("b", "Asia/Tokyo"), in("c", "Europe/Berlin"), in("d", "Asia/Tokyo"))
		o.one(forwarder.Sink{Sink: b, Hours: forwarder.Hours{Zone: "metadata.zone", From: "01:10", To: "20:00"}}).flush()
		require.Equal(t, map[string]int{"a": 1, "b": 1}, b.tried)
		require.Equal(t, []string{"sink quiet c", "sink blocked d"}, o.parked())
		pass(10 * time.Minute)
		require.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1, "d": 1}, b.tried)
	})
}

func TestCancelledDeliveriesAreNotMadeInTheMorning(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{}
		intoTheFuture()
		night := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
		until(night)
		o.schedule("t", "k", "a", night.Add(5*time.Minute))
		o.schedule("t", "k", "b", night.Add(6*time.Minute))
		f := o.one(forwarder.Sink{Sink: s, Hours: byDay})
		f.flush()
		require.Equal(t, 2, o.cancel("k", ""))
		until(night.Add(30 * time.Minute))
		require.Empty(t, s.given())
		require.Empty(t, o.parked())
		f.end()
	})
}
