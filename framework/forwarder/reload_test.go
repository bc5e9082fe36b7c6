package forwarder_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// closing is a sink that is opened and closed.
type closing struct {
	script
	mu             sync.Mutex
	opened, closed int
	fails          error // of Open
	closes         error // of Close
}

func (l *closing) Open(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fails == nil {
		l.opened++
	}
	return l.fails
}

func (l *closing) Close(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed++
	return l.closes
}

func (l *closing) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails = err
}

// life returns how often the sink was opened and how often it was closed.
func (l *closing) life() [2]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return [2]int{l.opened, l.closed}
}

func TestASinkThatDoesNotOpenIsUnavailableUntilItDoes(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		down, up := &closing{fails: errors.New("no such folder")}, &closing{}
		o.append("t", "", numbered("", 20)...)
		f := o.start(map[string]forwarder.Sink{"down": {Sink: down}, "up": {Sink: up}}, route.Routes{"*": route.To("down", "up")})
		pass(time.Minute)
		require.Len(t, up.given(), 20)
		require.Empty(t, down.given())
		require.Empty(t, o.parked())
		down.fail(nil)
		pass(10 * time.Second)
		require.Len(t, down.given(), 20)
		f.end()
		require.Equal(t, [2]int{1, 1}, down.life())
		require.Equal(t, [2]int{1, 1}, up.life())
	})
}

// batching is a sink that knows its batch limits only once it is open.
type batching struct {
	closing
	largest int
}

func (b *batching) BatchLimits() sinks.BatchLimits { return sinks.BatchLimits{Size: 10 * b.life()[0]} }

func (b *batching) DeliverBatch(_ context.Context, batch []*notification.Delivery) []sinks.Result {
	b.largest = max(b.largest, len(batch))
	return make([]sinks.Result, len(batch))
}

func TestASinkThatOpensLateDeliversInBatches(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &batching{closing: closing{fails: errors.New("not yet")}}
		o.append("t", "", numbered("", 30)...)
		f := o.one(forwarder.Sink{Sink: s, Parallelism: alone})
		time.Sleep(time.Minute)
		s.fail(nil)
		pass(10 * time.Second)
		require.Equal(t, int64(30), f.Stats()[0].Delivered)
		f.end()
		require.Equal(t, 10, s.largest)
	})
}

func TestAReloadReplacesOnlyTheChangedSinks(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		stays, before, after, added, removed := &closing{}, &closing{}, &closing{}, &closing{}, &closing{closes: errors.New("too late")}
		stays.answer = takes(time.Second)
		o.append("t", "", numbered("a", 100)...)
		f := o.start(map[string]forwarder.Sink{"stays": {Sink: stays, Parallelism: alone}, "changes": {Sink: before}, "goes": {Sink: removed}},
			route.Routes{"*": route.To("stays", "changes", "goes")})
		pass(10*time.Second + time.Millisecond)
		require.Len(t, before.given(), 100)
		require.Len(t, removed.given(), 100)

		began := time.Now()
		require.NoError(t, f.Reload(t.Context(), map[string]forwarder.Sink{"stays": {Sink: stays, Parallelism: alone}, "changes": {Sink: after}, "comes": {Sink: added}},
			route.Routes{"*": route.To("stays", "changes", "comes")}))
		require.Less(t, time.Since(began), 5*time.Second, "it does not wait for the sinks that stay")
		require.Equal(t, [2]int{1, 1}, before.life())
		require.Equal(t, [2]int{1, 1}, removed.life())
		require.Equal(t, [2]int{1, 0}, stays.life())
		f.flush() // the cursors of new sinks are created
		o.append("t", "", numbered("b", 10)...)
		f.Wake()
		pass(5 * time.Minute)
		require.ElementsMatch(t, numbered("b", 10), after.given(), "it continues where the old sink ended")
		require.ElementsMatch(t, numbered("b", 10), added.given())
		require.Empty(t, removed.given())
		require.Len(t, stays.given(), 110, "each once")
		require.Equal(t, []string{"changes", "comes", "stays"}, names(f.Stats()))
		f.end()
		require.Equal(t, [2]int{1, 1}, after.life())
		require.Equal(t, [2]int{1, 1}, added.life())
		require.Equal(t, [2]int{1, 1}, stays.life())
	})
}

func names(stats []forwarder.Stats) (all []string) {
	for _, s := range stats {
		all = append(all, s.Sink)
	}
	return all
}

func TestAFailedReloadChangesNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		before, opens := &closing{}, &closing{}
		f := o.one(forwarder.Sink{Sink: before})
		f.flush()
		for name, to := range map[string]struct {
			sinks  map[string]forwarder.Sink
			routes route.Routes
			says   string
		}{
			"a sink that does not open": {map[string]forwarder.Sink{"also": {Sink: opens}, "sink": {Sink: &closing{fails: errors.New("no such folder")}}},
				route.Routes{"*": route.To("also", "sink")}, "no such folder"},
			"a route to an unknown sink": {map[string]forwarder.Sink{"sink": {Sink: opens}}, route.Routes{"*": route.To("no-such-sink")}, "no-such-sink"},
			"no routes":                  {map[string]forwarder.Sink{"sink": {Sink: opens}}, nil, "routes"},
		} {
			require.ErrorContains(t, f.Reload(t.Context(), to.sinks, to.routes), to.says, name)
		}
		life := opens.life()
		require.Equal(t, life[0], life[1], "sinks that were opened are closed again")
		require.Equal(t, [2]int{1, 0}, before.life())
		f.publish("t", "", "a")
		require.Equal(t, []string{"a"}, before.given())
		f.end()
		require.ErrorIs(t, f.Reload(t.Context(), map[string]forwarder.Sink{"sink": {Sink: opens}}, route.Routes{"*": route.To("sink")}), forwarder.ErrNotRunning)
		life = opens.life()
		require.Equal(t, life[0], life[1])
	})
}

func TestAReloadAppliesRoutesAndSettingsToTheSameSink(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &closing{}
		f := o.one(forwarder.Sink{Sink: s})
		f.flush()
		require.NoError(t, f.Reload(t.Context(), map[string]forwarder.Sink{"sink": {Sink: s, Parallelism: alone}}, route.Routes{"*": route.To("sink")}))
		s.answer = takes(time.Second)
		s.mostAtOnce()
		o.append("t", "", numbered("a", 20)...)
		f.Wake()
		pass(time.Minute)
		require.Equal(t, 1, s.mostAtOnce(), "as adjusted")
		require.Len(t, s.given(), 20)
		require.NoError(t, f.Reload(t.Context(), map[string]forwarder.Sink{"sink": {Sink: s}}, route.Routes{"new.*": {{Sink: "sink", When: `id != "no"`}}}))
		require.Equal(t, [2]int{1, 0}, s.life(), "the sink is not replaced")
		f.flush() // the cursors of _unrouted are created
		o.append("old", "", "old")
		o.append("new.t", "", "yes", "no")
		f.Wake()
		pass(time.Minute)
		require.Equal(t, []string{"yes"}, s.given())
		require.Equal(t, []string{"_unrouted dead old"}, o.parked())
	})
}

// What was delivered ahead of a row that hangs stays delivered while the sink does not take its type.
func TestATypeThatIsTakenAwayAndGivenBackIsNotDeliveredAgain(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		stuck := hangs("stuck")
		s := &script{answer: func(ctx context.Context, d *notification.Delivery) error {
			if d.Type == "y" && d.ID != "stuck" { // each in a checkpoint of its own
				return takesTime(ctx, time.Duration(d.ID[1]-'0')*100*time.Millisecond)
			}
			return stuck(ctx, d)
		}}
		to := map[string]forwarder.Sink{"sink": {Sink: s}, "other": {Sink: &script{}}}
		both := route.Routes{"x": route.To("sink", "other"), "y": route.To("sink")}
		f := o.start(to, both, stopsWithin(time.Second))
		o.append("y", "", "stuck")
		f.publish("x", "", "x1", "x2")
		o.append("y", "", "y1", "y2", "y3")
		require.NoError(t, f.Reload(t.Context(), to, route.Routes{"x": route.To("other"), "y": route.To("sink")}))
		f.Wake()
		pass(time.Second)
		require.NoError(t, f.Reload(t.Context(), to, both))
		f.flush()
		s.mended.Store(true)
		time.Sleep(10 * time.Minute)
		f.flush()
		require.Equal(t, map[string]int{"stuck": 1, "x1": 1, "x2": 1, "y1": 1, "y2": 1, "y3": 1}, s.times())
		f.end()
	})
}

func TestLanesAreCutAlthoughTheirSinkLostATypeOfWhichMuchWasSettled(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{answer: hangs("stuck")}
		to := map[string]forwarder.Sink{"sink": {Sink: s}, "other": {Sink: &script{}}}
		f := o.start(to, route.Routes{"*": route.To("sink")}, called("first"), func(c *forwarder.Config) { c.Lanes = 2 }, stopsWithin(time.Second))
		o.append("y", "", "stuck")
		f.publish("x", "", "x1", "x2", "x3", "x4")
		f.end()
		s.mended.Store(true)
		next := o.start(to, route.Routes{"x": route.To("other"), "y": route.To("sink")}, called("next"))
		settle(next)
		require.Equal(t, map[string]int{"n": 3}, o.owners(), "one lane for each sink, and what has no route")
		require.Equal(t, map[string]int{"stuck": 1, "x1": 1, "x2": 1, "x3": 1, "x4": 1}, s.times())
	})
}

func TestTheLanesOfWhatHasNoRouteAreCutAlthoughEverythingHasOne(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var logged lines
		s, four := forwarder.Sink{Sink: &script{}}, func(c *forwarder.Config) { c.Lanes = 4 }
		some := o.start(map[string]forwarder.Sink{"sink": s}, route.Routes{"t.*": route.To("sink")}, called("some"), four, logged.logging)
		settle(some)
		all := o.one(s, called("all"), four)
		settle(some, all)
		_, err := o.store.Cut(t.Context(), store.SinkUnrouted, 1, store.StartOldest)
		require.NoError(t, err)
		settle(some, all)
		require.Equal(t, []string{"_unrouted 1 {}", `sink 4 {"names":["waybill.alert.cleared","waybill.alert.raised"],"prefixes":["_"],"except":true}`}, o.texts(`SELECT sink || ' ' || count(*) || ' ' || min(types) FROM outbox_cursors WHERE sink <> '_pruner' GROUP BY sink ORDER BY sink`))
		require.Len(t, logged.with("cutting the lanes"), 1)
	})
}

// unhurried changes the types of sinks so late that a cut of their lanes could begin before.
type unhurried struct{ forwarder.Store }

func (s unhurried) Route(ctx context.Context, ask map[string]notification.TypeFilter) (done bool, err error) {
	if len(ask) == 0 {
		time.Sleep(30 * time.Second)
	}
	return s.Store.Route(ctx, ask)
}

func TestASinkThatIsDownKeepsNoOtherFromNewRoutesAndLanes(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		late := over(unhurried{o.store})
		down := &script{answer: fails(sinks.Unavailable(errors.New("down")), always)}
		up := &script{}
		to := map[string]forwarder.Sink{"down": {Sink: down}, "up": {Sink: up}}
		first := o.start(to, route.Routes{"*": route.To("down", "up")}, called("first"), late, func(c *forwarder.Config) { c.Lanes = 2 })
		settle(first)
		first.publish("x", "", "x1", "x2", "x3", "x4")
		second := o.start(to, route.Routes{"x": route.To("down", "up"), "y": route.To("up")}, called("second"), late)
		settle(first, second)
		first.publish("y", "", "y1")
		settle(first, second)
		require.Equal(t, map[string]int{"x1": 1, "x2": 1, "x3": 1, "x4": 1, "y1": 1}, up.times())
	})
}

// Reloads neither repeat nor reorder deliveries: each is made once, in order for its key.
func TestReloadsUnderLoadLoseAndRepeatNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var mu sync.Mutex
		got := make(map[string][]string)
		taking := func() *closing {
			l := &closing{}
			l.answer = func(ctx context.Context, d *notification.Delivery) error {
				err := takesTime(ctx, 30*time.Millisecond)
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					got[d.Key] = append(got[d.Key], d.ID)
				}
				return err
			}
			return l
		}
		f := o.one(forwarder.Sink{Sink: taking()})
		want := make(map[string][]string)
		for i, id := range numbered("n", 200) {
			key := string(rune('a' + i%5))
			want[key] = append(want[key], id)
			o.append("t", key, id)
			f.Wake()
			time.Sleep(5 * time.Millisecond)
			if i%20 == 10 {
				require.NoError(t, f.Reload(t.Context(), map[string]forwarder.Sink{"sink": {Sink: taking()}}, route.Routes{"*": route.To("sink")}))
			}
		}
		pass(time.Minute)
		mu.Lock()
		require.Equal(t, want, got)
		mu.Unlock()
	})
}

// wrapped is a sink whose value cannot be compared, although its type can.
type wrapped struct{ sinks.Sink }

func TestSinksThatCannotBeComparedAreReplaced(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		sink := forwarder.Sink{Sink: wrapped{sinks.Func(s.Deliver)}}
		f := o.start(map[string]forwarder.Sink{"a": sink, "b": sink}, route.Routes{"*": route.To("a", "b")})
		f.flush()
		require.NoError(t, f.Reload(t.Context(), map[string]forwarder.Sink{"a": sink}, route.Routes{"*": route.To("a")}))
		f.publish("t", "", "one")
		require.Equal(t, []string{"one"}, s.given())
	})
}
