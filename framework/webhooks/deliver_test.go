package webhooks_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/sinks"
)

func TestEachEndpointOfTheTenantThatMatchesGetsTheNotification(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		all, placed, big, other, off := newCustomer(t), newCustomer(t), newCustomer(t), newCustomer(t), newCustomer(t)
		for _, e := range []struct {
			at     *customer
			tenant string
			like   webhooks.Settings
		}{
			{all, "acme", webhooks.Settings{Headers: map[string]string{"X-Token": "abc"}}},
			{placed, "acme", webhooks.Settings{Types: []string{"bill.*", "order.placed"}}},
			{big, "acme", webhooks.Settings{When: `payload.total > 10 && metadata.tenant == "acme"`}},
			{other, "globex", webhooks.Settings{}},
		} {
			e.like.URL = e.at.URL + "/hooks?x=1"
			_, secret := s.createLike(e.tenant, e.like)
			e.at.verify(secret)
		}
		disabled, _ := s.create("acme", off.URL)
		_, err := s.endpoints.Disable(t.Context(), "acme", disabled.ID, "")
		require.NoError(t, err)

		s.publish(order("acme", "big-1", "k"), order("acme", "2", ""), order("globex", "3", "k"), order("", "4", ""), order("unknown", "5", ""))
		shipped := order("acme", "6", "")
		shipped.Type = "order.shipped"
		s.publish(shipped)
		s.drain()

		got := all.take()
		require.ElementsMatch(t, []string{"big-1", "2", "6"}, orders(got))
		require.ElementsMatch(t, []string{"big-1", "2"}, orders(placed.take()))
		require.Equal(t, []string{"big-1"}, orders(big.take()))
		require.Equal(t, []string{"3"}, orders(other.take()))
		require.Empty(t, off.take())
		got = only(got, "big-1")
		require.JSONEq(t, `{"type":"order.placed","timestamp":"2026-03-01T12:00:00Z","data":{"order":"big-1","total":100}}`, got[0].Raw)
		require.Equal(t, "application/json", got[0].Header.Get("Content-Type"))
		require.Equal(t, "abc", got[0].Header.Get("X-Token"))
		require.Contains(t, got[0].ID, "big-1_")
		for _, name := range []string{"Tenant", "Endpoint"} {
			require.NotContains(t, got[0].Header, name)
		}
	})
}

func TestAnEndpointGetsWhatItMatchesWhenItWasCommittedFirst(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		c := newCustomer(t)
		// In one transaction, in both orders, and with an endpoint that is rolled back.
		require.NoError(t, s.publisher.RunInTx(t.Context(), s.db, nil, func(ctx context.Context, tx *sql.Tx) error {
			if err := s.publisher.Append(ctx, tx, order("acme", "1", "")); err != nil {
				return err
			}
			_, _, err := s.endpoints.In(tx).Create(ctx, webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: c.URL}})
			return err
		}))
		tx, err := s.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		lost, _, err := s.endpoints.In(tx).Create(t.Context(), webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: c.URL + "/lost"}})
		require.NoError(t, err)
		seen, err := s.endpoints.In(tx).Get(t.Context(), "acme", lost.ID)
		require.NoError(t, err)
		require.Equal(t, c.URL+"/lost", seen.URL)
		require.NoError(t, tx.Rollback())
		s.drain()
		require.Equal(t, []string{"1"}, orders(c.take()))

		// One that was deleted before gets nothing, also of what is waiting for it.
		all, err := s.endpoints.List(t.Context(), webhooks.Query{Tenant: "acme"})
		require.NoError(t, err)
		require.Len(t, all, 1)
		c.answers(status(500))
		s.publish(order("acme", "2", ""))
		s.drain()
		require.Equal(t, []string{"2"}, orders(c.take()))
		require.NoError(t, s.endpoints.Delete(t.Context(), "acme", all[0].ID))
		s.publish(order("acme", "3", ""))
		time.Sleep(webhooks.Freshness)
		s.advance(time.Hour)
		require.Empty(t, c.take())
		parked, err := s.store.FindParked(t.Context(), store.ParkedFilter{}, store.ParkedPlace{}, 10)
		require.NoError(t, err)
		require.Empty(t, parked)
	})
}

func TestAFailedDeliveryIsRetriedByTheScheduleWithTheSameID(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		c := newCustomer(t)
		made, secret := s.create("acme", c.URL)
		c.verify(secret)
		c.answers(func(w http.ResponseWriter, _ request) {
			w.WriteHeader(http.StatusBadRequest) // refused by its server, which its owner may mend
		})
		s.publish(order("acme", "1", "k"), order("acme", "2", "k"))
		s.advance(9 * 24 * time.Hour)
		got := c.take()
		require.Equal(t, len(webhooks.Pauses)+1, len(only(got, "1")), "the first attempt, and one after each pause")
		require.Equal(t, len(webhooks.Pauses)+1, len(only(got, "2")))
		for i, r := range got {
			require.Equal(t, i < len(webhooks.Pauses)+1, orders([]request{r})[0] == "1", "the second waits for the first of its key")
		}
		require.Equal(t, got[0].ID, got[1].ID)
		require.NotEqual(t, got[0].ID, got[len(got)-1].ID)
		waiting, err := s.endpoints.Waiting(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		require.Equal(t, map[store.State]int64{store.StateDead: 2}, waiting)
		now, err := s.endpoints.Get(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), now.FailingSince, time.Minute)

		// It recovers.
		c.answers(nil)
		n, err := s.endpoints.Recover(t.Context(), "acme", made.ID, time.Now().Add(-time.Hour))
		require.NoError(t, err)
		require.EqualValues(t, 2, n)
		s.drain()
		again := c.take()
		require.Equal(t, []string{"1", "2"}, orders(again))
		require.Equal(t, got[0].ID, again[0].ID)
		now, err = s.endpoints.Get(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		require.Zero(t, now.FailingSince)
	})
}

// only returns the requests with an order.
func only(requests []request, id string) (some []request) {
	for _, r := range requests {
		if orders([]request{r})[0] == id {
			some = append(some, r)
		}
	}
	return some
}

func TestASuccessRightAfterAFailureEndsIt(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		to := s.forwarder.Sinks["customers"]
		to.Retry.MaxAttempts = 1
		s.forwarder.Sinks["customers"] = to
		c := newCustomer(t)
		made, _ := s.create("acme", c.URL)
		c.answers(status(http.StatusInternalServerError))
		s.publish(order("acme", "first", ""))
		s.drain()
		now, err := s.endpoints.Get(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		require.NotZero(t, now.FailingSince)
		c.answers(nil)
		recovered, err := s.endpoints.Recover(t.Context(), "acme", made.ID, time.Now().Add(-time.Hour)) // the sink need not read the endpoint again
		require.NoError(t, err)
		require.EqualValues(t, 1, recovered)
		s.drain()
		now, err = s.endpoints.Get(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		require.Zero(t, now.FailingSince)
	})
}

func TestAnEndpointThatIsGoneIsDisabledAtOnce(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		c := newCustomer(t)
		made, _ := s.create("acme", c.URL)
		c.answers(status(http.StatusGone))
		s.publish(order("acme", "1", ""))
		s.drain()
		require.Len(t, c.take(), 1)
		now, err := s.endpoints.Get(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		require.Equal(t, "it answered 410 Gone", now.DisabledReason)
		require.WithinDuration(t, time.Now(), now.DisabledAt, time.Minute)
		s.requireDisabled(made)

		// It gets nothing more, and what failed can be recovered once it is enabled.
		s.publish(order("acme", "2", ""))
		s.drain()
		require.Empty(t, c.take())
		_, err = s.endpoints.Recover(t.Context(), "acme", made.ID, time.Now().Add(-time.Hour))
		require.ErrorIs(t, err, webhooks.ErrDisabled)
		c.answers(nil)
		_, err = s.endpoints.Enable(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		n, err := s.endpoints.Recover(t.Context(), "acme", made.ID, time.Now().Add(-time.Hour))
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		s.publish(order("acme", "3", ""))
		s.drain()
		require.ElementsMatch(t, []string{"1", "3"}, orders(c.take()))
	})
}

// requireDisabled requires that it was published once that an endpoint is disabled.
func (s *shop) requireDisabled(of webhooks.Endpoint) {
	s.t.Helper()
	require.Len(s.t, s.also.got, 1)
	require.Equal(s.t, webhooks.DisabledType, s.also.got[0].Type)
	require.Equal(s.t, of.Tenant, s.also.got[0].Metadata["tenant"])
	var event webhooks.EndpointDisabled
	require.NoError(s.t, json.Unmarshal(s.also.got[0].Payload, &event))
	require.Equal(s.t, of.ID, event.Endpoint)
	require.Equal(s.t, of.URL, event.URL)
	require.NotEmpty(s.t, event.Reason)
}

func TestAnEndpointThatFailsForTooLongIsDisabled(t *testing.T) {
	c := local
	c.DisableAfter = time.Second
	onEachStore(t, c, func(t *testing.T, s *shop) {
		at := newCustomer(t)
		made, _ := s.create("acme", at.URL)
		at.answers(status(http.StatusInternalServerError))
		s.publish(order("acme", "1", "k"), order("acme", "2", "k"))
		s.drain()
		require.Empty(t, s.also.got)
		time.Sleep(c.DisableAfter + webhooks.Freshness)
		s.advance(time.Hour)
		now, err := s.endpoints.Get(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		require.Equal(t, "it has failed for 1s without a success", now.DisabledReason)
		s.requireDisabled(made)
	})
}

func TestAConditionThatFailsMarksTheEndpointAndLosesNothing(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		c := newCustomer(t)
		made, _ := s.createLike("acme", webhooks.Settings{URL: c.URL, When: `payload.customer.country == "DE"`})
		s.publish(order("acme", "1", ""))
		s.drain()
		require.Equal(t, []string{"1"}, orders(c.take()))
		now, err := s.endpoints.Get(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		require.Contains(t, now.Trouble, "when: ")
		troubled, err := s.endpoints.List(t.Context(), webhooks.Query{Troubled: true})
		require.NoError(t, err)
		require.Len(t, troubled, 1)
		now, err = s.endpoints.Update(t.Context(), "acme", made.ID, func(e *webhooks.Endpoint) error {
			e.When = `payload.customer?.country == "DE"`
			return nil
		})
		require.NoError(t, err)
		require.Empty(t, now.Trouble)
		s.publish(order("acme", "2", ""))
		s.drain()
		require.Empty(t, c.take())
	})
}

func TestAnEndpointGetsEverythingWhileTheConditionsOfItsTenantTakeTooLong(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		s.forwarder.Sinks["customers"].Sink.(*webhooks.Sink).LimitThinking(1)
		slow, other := newCustomer(t), newCustomer(t)
		made, _ := s.createLike("slow", webhooks.Settings{URL: slow.URL, When: `len(filter(1..90000, # == 0)) > 0`})
		s.createLike("other", webhooks.Settings{URL: other.URL, When: `payload.total > 5`})
		all := []notification.Envelope{order("other", "1", "")}
		for range 20 {
			all = append(all, order("slow", "", ""))
		}
		s.publish(all...)
		s.drain()
		require.NotEmpty(t, slow.take())
		require.Empty(t, other.take())
		now, err := s.endpoints.Get(t.Context(), "slow", made.ID)
		require.NoError(t, err)
		require.Equal(t, "when: the conditions of all endpoints together take too long", now.Trouble)
	})
}

func TestBothSecretsSignAfterARotation(t *testing.T) {
	c := local
	c.SecretOverlap = 3 * time.Second
	onEachStore(t, c, func(t *testing.T, s *shop) {
		at := newCustomer(t)
		made, before := s.create("acme", at.URL)
		_, after, err := s.endpoints.Rotate(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		require.NotEqual(t, before, after)
		rotated := time.Now()
		for _, secret := range []string{before, after} {
			at.verify(secret)
			s.publish(order("acme", "1", ""))
			s.drain()
			require.Len(t, at.take(), 1)
		}
		time.Sleep(time.Until(rotated.Add(c.SecretOverlap + webhooks.Freshness)))
		at.verify(before)
		s.publish(order("acme", "2", ""))
		s.drain()
		require.Empty(t, at.take(), "the old secret no longer signs")
	})
}

func TestAnAsymmetricEndpointSignsWithItsOwnKey(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		at := newCustomer(t)
		made, public, err := s.endpoints.Create(t.Context(), webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: at.URL}, Asymmetric: true})
		require.NoError(t, err)
		require.Contains(t, public, "whpk_")
		at.verify(public)
		s.publish(order("acme", "1", ""))
		s.drain()
		got := at.take()
		require.Len(t, got, 1)
		require.Contains(t, got[0].Header.Get("Webhook-Signature"), "v1a,")
		shown, err := s.endpoints.Secret(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		require.Equal(t, public, shown)
		_, next, err := s.endpoints.Rotate(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		require.Contains(t, next, "whpk_")
	})
}

func TestWhatADisabledEndpointHadNotGotIsDeadAndCanBeRecovered(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		c := newCustomer(t)
		made, _ := s.create("acme", c.URL)
		c.answers(status(http.StatusServiceUnavailable))
		var all []string
		for i := range 50 {
			all = append(all, fmt.Sprint(i))
			s.publish(order("acme", all[i], fmt.Sprint("k", i%3)))
		}
		s.drain()
		_, err := s.endpoints.Disable(t.Context(), "acme", made.ID, "the bill is not paid")
		require.NoError(t, err)
		c.take()
		time.Sleep(webhooks.Freshness)
		s.advance(24 * time.Hour)
		require.Empty(t, c.take())
		waiting, err := s.endpoints.Waiting(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		require.Equal(t, map[store.State]int64{store.StateDead: 50}, waiting)
		c.answers(nil)
		_, err = s.endpoints.Enable(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		_, err = s.endpoints.Recover(t.Context(), "acme", made.ID, time.Now().Add(-time.Hour))
		require.NoError(t, err)
		s.drain()
		got := orders(c.take())
		require.ElementsMatch(t, all, got)
		for key := range 3 {
			var numbers []int
			for _, id := range got {
				if n, err := strconv.Atoi(id); err == nil && n%3 == key {
					numbers = append(numbers, n)
				}
			}
			require.IsIncreasing(t, numbers)
		}
	})
}

// Tenants with many endpoints, and notifications for many of them, are delivered to in pieces.
func TestManyEndpointsAreDeliveredToInSeveralCheckpoints(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		var got atomic.Int64
		sink, err := webhooks.New(sinks.Instance{Name: "customers", HTTPClient: &http.Client{Transport: accept{&got}}}, webhooks.Config{})
		require.NoError(t, err)
		sink.Limit(8, 12)
		s.forwarder.Sinks["customers"] = forwarder.Sink{Sink: sink}
		var all []notification.Envelope
		for _, tenant := range []string{"a", "b", "c", "d"} {
			for range 5 {
				s.create(tenant, "https://customer.example/")
			}
			for i := range 6 {
				all = append(all, order(tenant, fmt.Sprint(tenant, i), ""))
			}
		}
		for range 20 {
			s.create("many", "https://customer.example/") // more than a checkpoint's limits
		}
		s.publish(append(all, order("many", "1", ""), order("many", "2", ""))...)
		s.drain()
		require.EqualValues(t, 4*5*6+2*20, got.Load())
	})
}

type accept struct{ got *atomic.Int64 }

func (a accept) RoundTrip(r *http.Request) (*http.Response, error) {
	a.got.Add(1)
	return &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}
