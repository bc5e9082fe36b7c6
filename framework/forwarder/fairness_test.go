package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// tenants is a sink that takes a second for each delivery and counts by tenant.
type tenants struct {
	script
	inFlight, most, delivered map[string]int // guarded by script
}

func newTenants(then answer) *tenants {
	s := &tenants{inFlight: map[string]int{}, most: map[string]int{}, delivered: map[string]int{}}
	s.answer = func(ctx context.Context, d *notification.Delivery) error {
		tenant := d.Metadata["tenant"]
		s.count(s.inFlight, tenant, 1)
		err := either(takes(time.Second), then)(ctx, d)
		s.count(s.inFlight, tenant, -1)
		if err == nil {
			s.count(s.delivered, tenant, 1)
		}
		return err
	}
	return s
}

func (s *tenants) count(of map[string]int, tenant string, change int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of[tenant] += change
	s.most[tenant] = max(s.most[tenant], s.inFlight[tenant])
}

// of returns the number of deliveries of a tenant.
func (s *tenants) of(tenant string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.delivered[tenant]
}

// appendOf commits notifications of a tenant.
func (o *outbox) appendOf(tenant, key string, n int) {
	o.t.Helper()
	envelopes := make([]notification.Envelope, n)
	for i := range envelopes {
		envelopes[i] = notification.Envelope{
			ID: fmt.Sprintf("%s-%s-%04d", tenant, key, i), Type: "t", Key: key, Metadata: notification.Metadata{"tenant": tenant},
		}
	}
	o.insert(envelopes...)
}

func TestTenantsShareASinkEvenly(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := newTenants(nil)
		o.appendOf("big", "", 400)
		f := o.one(forwarder.Sink{Sink: s, Fairness: "tenant", Parallelism: forwarder.Parallelism{Threshold: 8}})
		time.Sleep(10*time.Second + 500*time.Millisecond)
		s.mu.Lock()
		require.Equal(t, 8, s.most["big"], "alone it uses all slots")
		s.mu.Unlock()
		before := s.of("big")
		o.appendOf("small", "", 40)
		f.flush()
		time.Sleep(9 * time.Second)
		require.InDelta(t, 36, s.of("small"), 4)
		require.InDelta(t, 36+4, s.of("big")-before, 8)
		pass(10 * time.Minute)
		require.Equal(t, 40, s.of("small"))
		require.Equal(t, 400, s.of("big"))
	})
}

func TestATenantOfOneKeyHasItsShareAndNoMore(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := newTenants(nil)
		o.appendOf("keyed", "k", 100)
		o.appendOf("free", "", 100)
		o.one(forwarder.Sink{Sink: s, Fairness: "tenant", Parallelism: alone})
		time.Sleep(100*time.Second + 500*time.Millisecond)
		require.InDelta(t, 50, s.of("keyed"), 2)
		require.InDelta(t, 50, s.of("free"), 2)
		time.Sleep(200 * time.Second)
	})
}

func TestTenantsShareEvenlyThroughFailuresAndPauses(t *testing.T) {
	onEachStoreIfLong(t, func(t *testing.T, o *outbox) {
		began := time.Now()
		s := newTenants(func(_ context.Context, d *notification.Delivery) error {
			switch since := time.Since(began); {
			case since < 10*time.Second:
				return sinks.Unavailable(errors.New("connection refused"))
			case since > 20*time.Second && since < 30*time.Second:
				return sinks.Throttled(began.Add(30*time.Second), errors.New("429"))
			case d.Attempt == 1 && d.Metadata["tenant"] == "failing":
				return errors.New("500")
			}
			return nil
		})
		o.appendOf("a", "", 300)
		o.appendOf("b", "", 300)
		o.appendOf("failing", "", 300)
		f := o.one(forwarder.Sink{Sink: s, Fairness: "tenant", Breaker: forwarder.Breaker{Off: true},
			Parallelism: forwarder.Parallelism{Threshold: 9}, Retry: forwarder.Retry{Initial: 10 * time.Minute}})
		time.Sleep(80 * time.Second)
		a, b, failed := s.of("a"), s.of("b"), int(f.Stats()[0].Failed)
		require.Greater(t, a, 100)
		require.InDelta(t, a, b, 6)
		require.InDelta(t, a, failed, 6)
		pass(time.Hour)
		for _, tenant := range []string{"a", "b", "failing"} {
			require.Equal(t, 300, s.of(tenant), tenant)
		}
		require.Zero(t, f.Stats()[0].Pending)
	})
}

func TestRetriesAndNewDeliveriesAreBothDelivered(t *testing.T) {
	onEachStoreIfLong(t, func(t *testing.T, o *outbox) {
		early := time.Now().Add(20 * time.Second)
		s := &script{answer: either(takes(time.Second), func(_ context.Context, d *notification.Delivery) error {
			if d.Attempt == 1 && time.Now().Before(early) {
				return errors.New("500")
			}
			return nil
		})}
		o.append("t", "", numbered("", 2000)...)
		// The rate wakes the workers although no delivery can begin yet.
		o.one(forwarder.Sink{Sink: s, Breaker: forwarder.Breaker{Off: true}, Rate: forwarder.Rate{Events: 10, Per: time.Second, Burst: 1},
			Retry: forwarder.Retry{Initial: 30 * time.Second}})
		time.Sleep(2*time.Minute + 10*time.Millisecond)
		retried := 0
		for id := range s.times() {
			if len(s.begun(id)) > 1 {
				retried++
			}
		}
		require.InDelta(t, (1200-200)/16, retried, 30)
		require.InDelta(t, 1000, len(s.times()), 30)
		pass(5 * time.Minute)
		require.Empty(t, o.parked())
	})
}
