package forwarder_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
)

const newSink = "the sink is new to this outbox"

func TestAllSinksOfAFirstStartBeginAtTheOldestRow(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		o.append("t", "", "a", "b")
		o.append("other", "", "c")
		var s, r script
		var log lines
		f := o.start(map[string]forwarder.Sink{"s": {Sink: &s}, "r": {Sink: &r}}, route.Routes{"t": route.To("s", "r")}, log.logging)
		settleDown()
		require.ElementsMatch(t, []string{"a", "b"}, s.given())
		require.ElementsMatch(t, []string{"a", "b"}, r.given())
		require.Equal(t, []string{"_unrouted dead c"}, o.parked())
		require.Len(t, log.with(newSink), 3)
		require.Len(t, log.with(`start=oldest rows_passed_over=0`), 3)
		f.end()
		f = o.start(map[string]forwarder.Sink{"s": {Sink: &s}, "r": {Sink: &r}}, route.Routes{"t": route.To("s", "r")}, log.logging)
		settleDown()
		f.end()
		require.Empty(t, s.given())
		require.Len(t, log.with(newSink), 3, "the sinks have cursors")
	})
}

func TestASinkThatIsAddedLaterStartsNow(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		o.append("t", "", "a", "b")
		var s script
		f := o.one(forwarder.Sink{Sink: &s})
		settleDown()
		f.end()
		require.ElementsMatch(t, []string{"a", "b"}, s.given())

		o.append("t", "", "c")
		o.insert(
			notification.Envelope{ID: "d", Type: "t", OccurredOn: time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)},
			notification.Envelope{ID: "e", Type: "t"},
		)
		var added, whole, since script
		var log lines
		sinks := map[string]forwarder.Sink{
			"sink":  {Sink: &s, Start: forwarder.StartNow},
			"added": {Sink: &added},
			"whole": {Sink: &whole, Start: forwarder.StartOldest},
			"since": {Sink: &since, Start: forwarder.StartAt(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))},
		}
		routes := route.Routes{"t": route.To("sink", "added", "whole", "since")}
		f = o.start(sinks, routes, log.logging)
		settleDown()
		require.ElementsMatch(t, []string{"c", "d", "e"}, s.given(), "it continues at its cursor")
		require.Empty(t, added.given())
		require.ElementsMatch(t, []string{"a", "b", "c", "d", "e"}, whole.given())
		require.ElementsMatch(t, []string{"d", "e"}, since.given())
		require.Len(t, log.with("sink=added start=now rows_passed_over=5 hint="), 1)
		require.Len(t, log.with("sink=whole start=oldest rows_passed_over=0"), 1)
		require.Len(t, log.with("sink=since start=2030-01-01T00:00:00Z rows_passed_over=3"), 1)
		require.Len(t, log.with("sink=_unrouted start=now"), 1, "no notification was unrouted")
		require.Len(t, log.with(newSink), 4)
		f.publish("t", "", "f")
		settleDown()
		for name, s := range map[string]*script{"sink": &s, "added": &added, "whole": &whole, "since": &since} {
			require.Equal(t, []string{"f"}, s.given(), name)
		}
		f.end()

		_, err := o.store.Forget(t.Context(), "added")
		require.NoError(t, err)
		o.append("t", "", "g")
		o.start(sinks, routes)
		settleDown()
		require.Empty(t, added.given(), "a forgotten sink is new")
		require.Equal(t, []string{"g"}, whole.given())
	})
}
