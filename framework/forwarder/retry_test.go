package forwarder_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
)

// answers500 is a sink in which every delivery fails.
func answers500() *script {
	return &script{answer: func(context.Context, *notification.Delivery) error { return errors.New("500") }}
}

func TestARetryPolicyInheritsTheFieldsThatItDoesNotSet(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := answers500()
		f := o.one(forwarder.Sink{Sink: s, Breaker: forwarder.Breaker{Off: true}, Retry: forwarder.Retry{
			MaxAttempts: 3, Initial: time.Minute, Max: 90 * time.Second, MaxAge: 24 * time.Hour,
			Types: map[string]forwarder.Retry{
				"quick":     {Initial: time.Second},
				"slow":      {Initial: time.Hour}, // longer than the usual maximum
				"impatient": {MaxAge: 2 * time.Minute},
			},
		}})
		at := map[string][]time.Duration{}
		began := time.Now()
		s.answer = func(_ context.Context, d *notification.Delivery) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			at[d.ID] = append(at[d.ID], time.Since(began))
			return errors.New("500")
		}
		for _, typ := range []string{"usual", "quick", "slow", "impatient"} {
			o.append(typ, "", typ)
		}
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		for id, want := range map[string][]float64{
			"usual": {0, 60, 60 + 90}, "quick": {0, 1, 1 + 2}, "slow": {0, 3600, 7200}, "impatient": {0, 60},
		} {
			require.Len(t, at[id], len(want), id)
			for i := range want {
				require.InDelta(t, want[i], at[id][i].Seconds(), 0.2*want[i]+0.1, "attempt %d of %s", i+1, id)
			}
		}
		f.end()
	})
}

func TestADeliveryIsRetriedUntilItsPausesReachTheMaximumAge(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := answers500()
		f := o.one(forwarder.Sink{Sink: s, Breaker: forwarder.Breaker{Off: true}, Retry: forwarder.Retry{Initial: time.Minute, Max: time.Minute, MaxAge: 9*time.Minute + 30*time.Second}})
		o.append("t", "k", "a1", "a2")
		f.flush()
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		given := s.given()
		require.Equal(t, 10, len(slices.DeleteFunc(given, func(id string) bool { return id != "a1" })))
		require.Equal(t, "sink dead a1", o.parked()[0], "another pause would exceed the maximum age")
		f.flush()
		require.Equal(t, []string{"sink dead a1", "sink retrying a2"}, o.parked(), "what waited behind it has all of its time")
		f.end()
	})
}

func TestAScheduledDeliveryHasAllOfItsRetries(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := answers500()
		f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Initial: time.Minute, Max: time.Minute, MaxAge: 3*time.Minute + 30*time.Second}})
		o.schedule("t", "", "a", time.Now().Add(time.Hour))
		time.Sleep(70 * time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"a", "a", "a", "a"}, s.given())
		require.Equal(t, []string{"sink dead a"}, o.parked())
		f.end()
	})
}

func TestALateDeliveryIsAttemptedAtAnyAge(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		o.append("t", "", "a")
		time.Sleep(48 * time.Hour)
		var s script
		f := o.one(forwarder.Sink{Sink: &s, Retry: forwarder.Retry{MaxAge: time.Minute}})
		f.flush()
		require.Equal(t, []string{"a"}, s.given())
		require.Empty(t, o.parked())
		f.end()
	})
}
