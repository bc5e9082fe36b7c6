package forwarder_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/sinks"
)

// times is a sink that records when each delivery began.
type times struct {
	mu sync.Mutex
	at []time.Time
}

func (s *times) Deliver(context.Context, *notification.Delivery) (notification.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Now())
	return "", nil
}

// within counts the deliveries that began in a period.
func (s *times) within(from, to time.Time) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.at {
		if !at.Before(from) && at.Before(to) {
			n++
		}
	}
	return n
}

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
				var s times
				f := o.one(forwarder.Sink{Sink: &s, Rate: r, Parallelism: forwarder.Parallelism{Threshold: 4}})
				time.Sleep(time.Second)
				began := time.Now()
				o.append("t", "", numbered("", c.n)...)
				f.flush()
				time.Sleep(3*time.Minute + time.Second)
				began = began.Add(10 * time.Millisecond)
				require.Equal(t, c.first, s.within(time.Time{}, began.Add(50*time.Millisecond)), "at once")
				for i := range 3 {
					from := began.Add(50*time.Millisecond + time.Duration(i)*time.Minute)
					require.InDelta(t, c.each, s.within(from, from.Add(time.Minute)), 1, "minute %d", i)
				}
				time.Sleep(20 * time.Minute)
				synctest.Wait()
				require.Len(t, s.at, c.n)
				f.end()
			})
		})
	}
}

func TestExtremeRatesAreKept(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var quick, slow times
		f := o.start(map[string]forwarder.Sink{
			"quick": {Sink: &quick, Rate: forwarder.Rate{Events: 1e300, Per: time.Second}},
			"slow":  {Sink: &slow, Rate: forwarder.Rate{Events: 1e-300, Per: time.Hour}},
		}, route.Routes{"*": route.To("quick", "slow")}, func(c *forwarder.Config) { c.Poll = time.Hour })
		o.append("t", "", numbered("", 100)...)
		f.flush()
		require.Len(t, quick.at, 100)
		require.Len(t, slow.at, 1)
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		require.Len(t, slow.at, 1)
		f.end()
	})
}

func TestForwardersShareASinksRate(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("several minutes of a rate, which take seconds on PostgreSQL")
	}
	onPostgres(t, func(t *testing.T, o *outbox) {
		var a, b times
		lanes := func(c *forwarder.Config) { c.Lanes, c.Lease = 4, 20*time.Second }
		sink := func(s *times) forwarder.Sink {
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

		g := o.one(sink(&b), lanes)
		time.Sleep(20 * time.Second) // until they share the lanes
		synctest.Wait()
		from := time.Now()
		time.Sleep(time.Minute)
		require.InDelta(t, 600, a.within(from, time.Now()), 10)
		require.InDelta(t, 600, b.within(from, time.Now()), 10)

		f.end()
		time.Sleep(20 * time.Second)
		from = time.Now()
		time.Sleep(30 * time.Second)
		require.InDelta(t, 600, b.within(from, time.Now()), 10, "a single forwarder again")
		g.end()
	})
}

func TestBatchesKeepTheRateOfTheSink(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		onEachRate := func(t *testing.T, o *outbox) {
			b := &batches{limits: sinks.BatchLimits{Size: 10, Ordered: ordered}}
			o.append("t", "k", numbered("k", 100)...)
			o.append("t", "", numbered("", 100)...)
			f := o.one(forwarder.Sink{Sink: b, Rate: forwarder.Rate{Events: 1, Per: time.Second, Burst: 5}})
			time.Sleep(60*time.Second + 500*time.Millisecond)
			synctest.Wait()
			require.Len(t, slices.Concat(b.given()...), 65, "deliveries, not batches")
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			require.Zero(t, f.Stats()[0].Pending)
			f.end()
		}
		t.Run(map[bool]string{true: "ordered", false: "not ordered"}[ordered], func(t *testing.T) { onEachStore(t, onEachRate) })
	}
}
