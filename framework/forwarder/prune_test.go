package forwarder_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/sinks"
)

// forAnHour keeps rows for an hour. To the database all rows are older, since fake time begins in 2000.
func forAnHour(c *forwarder.Config) { c.Retention = time.Hour }

// passes waits until a pruner that keeps rows for an hour has run a few times.
func passes() {
	pass(3 * time.Minute)
}

func TestOldRowsAreRemovedOnceEverySinkHasSettledThem(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		o.append("t", "k", numbered("", 20)...)
		good, bad := &script{}, &script{answer: fails(sinks.Unavailable(errors.New("the destination is down")), always)}
		o.start(map[string]forwarder.Sink{"good": {Sink: good}, "bad": {Sink: bad}},
			route.Routes{"*": route.To("good", "bad")}, forAnHour)
		passes()
		require.Len(t, good.given(), 20)
		require.Equal(t, 20, o.rows())

		bad.mended.Store(true)
		pass(time.Hour)
		require.Zero(t, o.rows())
		require.Zero(t, o.receipts(), "receipts are removed as well")
	})
}

func TestAParkedDeliveryIsDeliveredAfterItsRowIsRemoved(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		o.append("t", "k", "a", "b")
		s := &script{answer: fails(errors.New("come back later"), 1, "a")}
		o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Initial: time.Hour, Max: time.Hour}}, forAnHour)
		passes()
		require.Equal(t, []string{"a"}, s.given())
		require.Zero(t, o.rows())
		require.Equal(t, []string{"sink retrying a", "sink blocked b"}, o.parked())
		pass(75 * time.Minute)
		require.Equal(t, []string{"a", "b"}, s.given())
	})
}
