package webhooks_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// An endpoint that is made again with the same key has the same id and version, but another address.
func TestAnEndpointThatIsMadeAgainWithItsKeyGetsWhatIsSentThen(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		before, after := newCustomer(t), newCustomer(t)
		create := func(url string) webhooks.Endpoint {
			made, _, err := s.endpoints.Create(t.Context(), webhooks.NewEndpoint{Tenant: "acme", Key: "k", Settings: webhooks.Settings{URL: url}})
			require.NoError(t, err)
			return made
		}
		first := create(before.URL)
		s.publish(order("acme", "1", ""))
		s.drain()
		require.NoError(t, s.endpoints.Delete(t.Context(), "acme", first.ID))
		second := create(after.URL)
		require.Equal(t, first.ID, second.ID)
		s.publish(order("acme", "2", ""))
		s.drain()
		require.Equal(t, []string{"1"}, orders(before.take()))
		require.Equal(t, []string{"2"}, orders(after.take()))
	})
}

// What is parked without an attempt says nothing about its endpoint once more.
func TestAnOldAnswerDisablesNoEndpointThatWasEnabledSince(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		c := newCustomer(t)
		rate, err := settings.ParseRate("2/h, burst 2")
		require.NoError(t, err)
		made, _ := s.createLike("acme", webhooks.Settings{URL: c.URL, Rate: rate})
		c.answers(status(http.StatusGone))
		s.publish(order("acme", "1", ""))
		s.drain()
		c.answers(nil)
		_, err = s.endpoints.Enable(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		for i := range 3 { // uses up the rate
			s.publish(order("acme", fmt.Sprint("other", i), ""))
		}
		s.drain()
		n, err := s.endpoints.Recover(t.Context(), "acme", made.ID, time.Now().Add(-time.Hour))
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		s.drain()
		now, err := s.endpoints.Get(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		require.True(t, now.Enabled(), now.DisabledReason)
		require.Len(t, s.also.got, 1)
	})
}

func TestADeletedEndpointLeavesNoAttemptBehind(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		c := newCustomer(t)
		made, _ := s.create("acme", c.URL)
		c.answers(status(500))
		s.publish(order("acme", "1", ""))
		s.drain()
		require.NoError(t, s.endpoints.Delete(t.Context(), "acme", made.ID))
		time.Sleep(webhooks.Freshness)
		s.advance(time.Hour)
		all, err := s.endpoints.Attempts(t.Context(), store.AttemptQuery{Tenant: "acme"})
		require.NoError(t, err)
		require.Empty(t, all)
	})
}

func TestASuccessThatCameLaterThanAFailureCounts(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		c := newCustomer(t)
		made, _ := s.create("acme", c.URL)
		refused := make(chan struct{})
		c.answers(func(w http.ResponseWriter, r request) {
			if orders([]request{r})[0] == "1" {
				w.WriteHeader(http.StatusBadRequest)
				close(refused)
				return
			}
			<-refused
			time.Sleep(20 * time.Millisecond)
		})
		s.publish(order("acme", "1", ""), order("acme", "2", ""))
		s.drain()
		require.Len(t, c.take(), 2)
		time.Sleep(webhooks.Freshness)
		c.answers(nil)
		s.publish(order("acme", "3", ""))
		s.drain()
		now, err := s.endpoints.Get(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		require.Zero(t, now.FailingSince)
	})
}

func TestWhatCustomersSeeOfErrorsNamesNothingInside(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		c := newCustomer(t)
		odd := order("acme", "1", "")
		odd.Metadata["operator"] = "alice@internal"
		made, _ := s.createLike("acme", webhooks.Settings{URL: c.URL, When: `int(metadata.operator) > 0`})
		address := c.Listener.Addr().String()
		c.Close()
		s.publish(odd)
		s.drain()
		now, err := s.endpoints.Get(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		require.Contains(t, now.Trouble, "cannot be evaluated")
		require.NotContains(t, now.Trouble, "alice")
		all, err := s.endpoints.Attempts(t.Context(), store.AttemptQuery{Tenant: "acme"})
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.Equal(t, "no connection: connection refused", all[0].Error)
		require.NotContains(t, all[0].Error, address)
		nowhere, _ := s.create("acme", "http://no-such-host.invalid/")
		answer, err := s.endpoints.SendTest(t.Context(), "acme", nowhere.ID)
		require.NoError(t, err)
		require.Equal(t, "no connection: the name of the host cannot be found", webhooks.ForCustomer(answer.Err))
	})
}
