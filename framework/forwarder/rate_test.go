package forwarder_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/sinks"
)

func TestDeliveriesKeepTheRateOfTheSink(t *testing.T) {
	for text, c := range map[string]struct {
		n, first int // notifications; deliveries that start at once
		each     int // deliveries in each of the following minutes
	}{
		"10/s":           {2000, 10, 600},
		"10/s, burst 50": {2000, 50, 600},
		"30/m":           {200, 1, 30},
		"60/h, burst 3":  {20, 3, 1},
	} {
		t.Run(text, func(t *testing.T) {
			onEachStoreIfLong(t, func(t *testing.T, o *outbox) {
				r, err := settings.ParseRate(text)
				require.NoError(t, err)
				var s script
				f := o.one(forwarder.Sink{Sink: &s, Rate: r, Parallelism: forwarder.Parallelism{Threshold: 4}})
				time.Sleep(time.Second)
				began := time.Now()
				f.publish("t", "", numbered("", c.n)...)
				time.Sleep(3*time.Minute + time.Second)
				began = began.Add(10 * time.Millisecond)
				require.Equal(t, c.first, s.within(time.Time{}, began.Add(50*time.Millisecond)), "at once")
				for i := range 3 {
					from := began.Add(50*time.Millisecond + time.Duration(i)*time.Minute)
					require.InDelta(t, c.each, s.within(from, from.Add(time.Minute)), 1, "minute %d", i)
				}
				pass(20 * time.Minute)
				require.Len(t, s.begun(""), c.n)
			})
		})
	}
}

func TestExtremeRatesAreKept(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var quick, slow script
		f := o.start(map[string]forwarder.Sink{
			"quick": {Sink: &quick, Rate: forwarder.Rate{Events: 1e300, Per: time.Second}},
			"slow":  {Sink: &slow, Rate: forwarder.Rate{Events: 1e-300, Per: time.Hour}},
		}, route.Routes{"*": route.To("quick", "slow")}, func(c *forwarder.Config) { c.Poll = time.Hour })
		f.publish("t", "", numbered("", 100)...)
		require.Len(t, quick.begun(""), 100)
		require.Len(t, slow.begun(""), 1)
		pass(3 * time.Hour)
		require.Len(t, slow.begun(""), 1)
	})
}

func TestForwardersShareASinksRate(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("several minutes of a rate, which take seconds on PostgreSQL")
	}
	onPostgres(t, func(t *testing.T, o *outbox) {
		var a, b script
		lanes := func(c *forwarder.Config) { c.Lanes, c.Lease = 4, 20*time.Second }
		sink := func(s *script) forwarder.Sink {
			return forwarder.Sink{Sink: s, Rate: forwarder.Rate{Events: 20, Per: time.Second, Burst: 4}}
		}
		f := o.one(sink(&a), lanes)
		time.Sleep(time.Second)
		for chunk := range slices.Chunk(numbered("", 6000), 1000) {
			o.append("t", "", chunk...)
		}
		f.flush()
		began := time.Now()
		time.Sleep(30 * time.Second)
		require.InDelta(t, 600, a.within(began, time.Now()), 5, "a single forwarder has the whole rate")

		o.one(sink(&b), lanes)
		pass(20 * time.Second) // until they share the lanes
		from := time.Now()
		time.Sleep(time.Minute)
		require.InDelta(t, 600, a.within(from, time.Now()), 10)
		require.InDelta(t, 600, b.within(from, time.Now()), 10)

		f.end()
		time.Sleep(20 * time.Second)
		from = time.Now()
		time.Sleep(30 * time.Second)
		require.InDelta(t, 600, b.within(from, time.Now()), 10, "a single forwarder again")
	})
}

func TestBatchesKeepTheRateOfTheSink(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		onEachRate := func(t *testing.T, o *outbox) {
			b := &batches{limits: sinks.BatchLimits{Size: 10, Ordered: ordered}}
			o.append("t", "k", numbered("k", 100)...)
			o.append("t", "", numbered("", 100)...)
			f := o.one(forwarder.Sink{Sink: b, Rate: forwarder.Rate{Events: 1, Per: time.Second, Burst: 5}})
			pass(60*time.Second + 500*time.Millisecond)
			require.Len(t, slices.Concat(b.given()...), 65, "deliveries, not batches")
			pass(10 * time.Minute)
			require.Zero(t, f.Stats()[0].Pending)
			f.end()
		}
		t.Run(map[bool]string{true: "ordered", false: "not ordered"}[ordered], func(t *testing.T) { onEachStore(t, onEachRate) })
	}
}
