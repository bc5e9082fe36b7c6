package forwarder_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
)

func TestDeliveredNotificationsAreNotDeadAfterARestartWithFewerRoutes(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{}
		to := map[string]forwarder.Sink{"sink": {Sink: s}}
		f := o.start(to, route.Routes{"a": route.To("sink"), "b": route.To("sink")})
		o.append("a", "", "a1", "a2")
		f.flush()
		o.append("b", "", "b1")
		f.flush()
		f.end()
		require.ElementsMatch(t, []string{"a1", "a2", "b1"}, s.given())

		f = o.start(to, route.Routes{"b": route.To("sink")})
		f.flush()
		o.append("a", "", "a3")
		f.flush()
		f.end()
		require.Equal(t, []string{"_unrouted dead a3"}, o.parked(), "the notifications before the restart had a route")
		require.Empty(t, s.given())
	})
}

func TestALaneThatOnlySkippedRowsWritesItsPositionAtAGracefulStop(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s, other := &script{}, &script{}
		to := map[string]forwarder.Sink{"sink": {Sink: s}, "other": {Sink: other}}
		f := o.start(to, route.Routes{"a": route.To("sink"), "b": route.To("other")}, func(c *forwarder.Config) { c.Unrouted = forwarder.UnroutedIgnore })
		o.append("a", "", "a1")
		o.append("c", "", "c1")
		f.flush()
		f.end()
		f = o.start(to, route.Routes{"*": route.To("sink", "other")})
		f.flush()
		f.end()
		require.Equal(t, []string{"a1"}, s.given(), "each starts after the rows that it skipped")
		require.Empty(t, other.given())
	})
}

// After a crash the sink _unrouted checks again only the rows that it skipped within the last seconds.
func TestTheUnroutedPositionIsWrittenSoon(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{}
		to := map[string]forwarder.Sink{"sink": {Sink: s}}
		f := o.start(to, route.Routes{"a": route.To("sink"), "b": route.To("sink")})
		f.flush()
		o.append("a", "", "a1")
		f.flush()
		time.Sleep(3 * time.Second)
		o.exec(`UPDATE outbox_cursors SET owner = NULL, epoch = epoch + 1 WHERE owner IS NOT NULL`)
		f.abandon()
		f = o.start(to, route.Routes{"b": route.To("sink")})
		f.flush()
		f.end()
		require.Empty(t, o.parked())
	})
}
