package webhooks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
)

func TestAttemptsAreRecordedWithTheirDeliveries(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		c := newCustomer(t)
		made, secret := s.createLike("acme", webhooks.Settings{URL: c.URL, Headers: map[string]string{"x-token": "topsecret"}})
		c.answers(func(w http.ResponseWriter, r request) {
			w.Header().Set("X-Mine", "1")
			w.WriteHeader(http.StatusTeapot)
			_, _ = w.Write([]byte("tea\x00\xff" + strings.Repeat("a", 10_000)))
		})
		s.publish(order("acme", "1", "k"))
		s.drain()
		c.answers(nil)
		s.advance(time.Minute)
		all, err := s.endpoints.Attempts(t.Context(), store.AttemptQuery{Tenant: "acme", Endpoint: made.ID})
		require.NoError(t, err)
		require.Len(t, all, 2)
		second, first := all[0], all[1]
		require.Equal(t, http.StatusOK, second.Status)
		require.Empty(t, second.Error)
		require.Equal(t, 2, second.Number)
		require.Equal(t, "1", first.Notification)
		require.Equal(t, "order.placed", first.Type)
		require.Equal(t, first.Delivery, second.Delivery)
		require.Equal(t, c.take()[0].ID, first.Delivery)
		require.Equal(t, http.StatusTeapot, first.Status)
		require.Equal(t, 1, first.Number)
		require.Contains(t, first.Error, "418")
		require.Equal(t, []string{"1"}, first.Answer.Header["X-Mine"])
		require.True(t, strings.HasPrefix(first.Answer.Body, "tea\uFFFD"))
		require.LessOrEqual(t, len(first.Answer.Body), 9<<10)
		require.Equal(t, []string{"***"}, first.Request.Header["X-Token"])
		require.Contains(t, first.Request.Body, `"order":"1"`)
		require.NotContains(t, strings.Join(first.Request.Header["Webhook-Signature"], ""), secret)
		require.WithinDuration(t, time.Now().Add(webhooks.DefaultAttemptRetention), first.Until, time.Minute)
		hours, err := s.endpoints.Hours(t.Context(), "acme", made.ID, time.Now().Add(-24*time.Hour))
		require.NoError(t, err)
		good, bad := 0, 0
		for _, h := range hours {
			good, bad = good+h.Succeeded, bad+h.Failed
		}
		require.Equal(t, 1, good)
		require.Equal(t, 1, bad)
		others, err := s.endpoints.Attempts(t.Context(), store.AttemptQuery{Tenant: "globex", Endpoint: made.ID})
		require.NoError(t, err)
		require.Empty(t, others)
		_, err = s.endpoints.Attempts(t.Context(), store.AttemptQuery{Endpoint: made.ID})
		require.ErrorIs(t, err, webhooks.ErrUnknown)
	})
}

func TestOnlyFailedAttemptsAreRecordedIfTheSettingsSaySo(t *testing.T) {
	for _, which := range []webhooks.Attempts{webhooks.AttemptsFailed, webhooks.AttemptsNone} {
		t.Run(string(which), func(t *testing.T) {
			c := local
			c.Attempts = which
			onEachStore(t, c, func(t *testing.T, s *shop) {
				at := newCustomer(t)
				made, _ := s.create("acme", at.URL)
				at.answers(status(500))
				s.publish(order("acme", "1", ""))
				s.drain()
				at.answers(nil)
				s.advance(time.Minute)
				require.Len(t, at.take(), 2)
				all, err := s.endpoints.Attempts(t.Context(), store.AttemptQuery{Tenant: "acme"})
				require.NoError(t, err)
				require.Len(t, all, map[webhooks.Attempts]int{webhooks.AttemptsFailed: 1}[which])
				now, err := s.endpoints.Get(t.Context(), "acme", made.ID)
				require.NoError(t, err)
				require.Zero(t, now.FailingSince)
			})
		})
	}
}

func TestAnAttemptHasAsMuchOfTheBodiesAsConfigured(t *testing.T) {
	for _, limit := range []int{0, 7} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			c := local
			c.AttemptsBytes = &limit
			onEachStore(t, c, func(t *testing.T, s *shop) {
				at := newCustomer(t)
				s.create("acme", at.URL)
				at.answers(func(w http.ResponseWriter, r request) {
					w.Header().Set("Location", "/login?of=ada")
					w.WriteHeader(http.StatusFound)
					_, _ = w.Write([]byte(r.Raw))
				})
				s.publish(order("acme", "1", ""))
				s.drain()
				sent := at.take()[0].Raw
				all, err := s.endpoints.Attempts(t.Context(), store.AttemptQuery{Tenant: "acme"})
				require.NoError(t, err)
				require.Len(t, all, 1)
				require.Equal(t, http.StatusFound, all[0].Status)
				require.NotContains(t, all[0].Error, "ada")
				require.NotEmpty(t, all[0].Request.Header["Webhook-Id"])
				require.Equal(t, sent[:limit], all[0].Request.Body)
				require.Equal(t, sent[:limit], all[0].Answer.Body)
				require.Equal(t, limit > 0, len(all[0].Answer.Header) > 0)
			})
		})
	}
}

func TestADeliveryIsSentAgainWhetherItHadFailedOrNot(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		c := newCustomer(t)
		made, _ := s.create("acme", c.URL)
		s.publish(order("acme", "1", "k"))
		s.drain()
		c.answers(status(500))
		s.publish(order("acme", "2", "k"))
		s.drain()
		c.answers(nil)
		sent := c.take()
		require.Equal(t, []string{"1", "2"}, orders(sent))
		all, err := s.endpoints.Attempts(t.Context(), store.AttemptQuery{Tenant: "acme"})
		require.NoError(t, err)
		require.Len(t, all, 2)
		require.ErrorIs(t, s.endpoints.Resend(t.Context(), "globex", all[0].ID), webhooks.ErrUnknown)
		for _, a := range all {
			require.NoError(t, s.endpoints.Resend(t.Context(), "acme", a.ID))
		}
		s.drain()
		again := c.take()
		require.ElementsMatch(t, []string{"1", "2"}, orders(again))
		require.ElementsMatch(t, []string{sent[0].ID, sent[1].ID}, []string{again[0].ID, again[1].ID})

		_, err = s.db.ExecContext(t.Context(), "DELETE FROM outbox")
		require.NoError(t, err)
		require.ErrorIs(t, s.endpoints.Resend(t.Context(), "acme", all[1].ID), webhooks.ErrGone)
		_, err = s.endpoints.Disable(t.Context(), "acme", made.ID, "")
		require.NoError(t, err)
		require.ErrorIs(t, s.endpoints.Resend(t.Context(), "acme", all[1].ID), webhooks.ErrDisabled)
	})
}

func TestWhatAnEndpointRepeatsOfItsHeadersAndSecretsIsMasked(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		c := newCustomer(t)
		made, secret := s.createLike("acme", webhooks.Settings{URL: c.URL, Headers: map[string]string{"X-Token": `top"secret`, "X-Pin": "9753", "X-Short": "975", "Authorization": "Bearer abc-token"}})
		c.answers(func(w http.ResponseWriter, r request) {
			_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
			w.Header()["X-Echo"] = []string{r.Header.Get("X-Token"), "pin=" + r.Header.Get("X-Pin"), r.Header.Get("Authorization")}
			w.Header().Set("Location", "/login?pin="+r.Header.Get("X-Pin"))
			w.WriteHeader(http.StatusFound)
			assert.NoError(t, json.NewEncoder(w).Encode([]any{r.Header, secret, token, []byte(token), "x=975"}))
			_, _ = w.Write([]byte(strings.Repeat(".", 8<<10)))
		})
		s.publish(order("acme", "1", ""))
		s.drain()
		attempts, err := s.endpoints.Attempts(t.Context(), store.AttemptQuery{Tenant: "acme", Endpoint: made.ID})
		require.NoError(t, err)
		require.Len(t, attempts, 1)
		tested, err := s.endpoints.SendTest(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		for what, all := range map[string][]any{
			"recorded": {attempts[0].Error, attempts[0].Request, attempts[0].Answer}, "tested": {webhooks.ForCustomer(tested.Err), tested.Err.Error(), tested.Request, tested.Answer},
		} {
			shown := fmt.Sprint(all...)
			for _, never := range []string{`top"secret`, `top\"secret`, "9753", "abc-token", "YWJjLXRva2Vu", strings.TrimPrefix(secret, "whsec_")} {
				require.NotContains(t, shown, never, what)
			}
			require.Contains(t, shown, "x=975", "a shorter text would be in ordinary words")
			require.Contains(t, shown, "X-Echo:[*** pin=*** ***]", what)
		}
	})
}

func TestATestNotificationIsSentAtOnceAndItsAnswerReturned(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		c := newCustomer(t)
		made, secret := s.createLike("acme", webhooks.Settings{URL: c.URL, Headers: map[string]string{"X-Token": "topsecret"}})
		c.verify(secret)
		answer, err := s.endpoints.SendTest(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		require.NoError(t, answer.Err)
		require.Equal(t, http.StatusOK, answer.Status)
		require.Equal(t, []string{"***"}, answer.Request.Header["X-Token"])
		got := c.take()
		require.Len(t, got, 1)
		require.Equal(t, webhooks.TestType, got[0].Body.Type)
		c.answers(status(http.StatusForbidden))
		answer, err = s.endpoints.SendTest(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		require.ErrorContains(t, answer.Err, "403")
		c.Close()
		answer, err = s.endpoints.SendTest(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		require.Error(t, answer.Err)
		require.Zero(t, answer.Status)
	})
}

func TestARateHoldsBackOnlyItsEndpoint(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		slow, fast := newCustomer(t), newCustomer(t)
		rate, err := settings.ParseRate("1/h")
		require.NoError(t, err)
		s.createLike("acme", webhooks.Settings{URL: slow.URL, Rate: rate})
		s.create("acme", fast.URL)
		for _, id := range []string{"1", "2", "3"} {
			s.publish(order("acme", id, "k"))
		}
		s.drain()
		require.Equal(t, []string{"1"}, orders(slow.take()))
		require.Equal(t, []string{"1", "2", "3"}, orders(fast.take()))
	})
}

// An endpoint that never answers keeps its own slots only; so do many that are down.
func TestDeadEndpointsHoldUpNobodyElse(t *testing.T) {
	c := local
	c.Timeout = 20 * time.Second
	onEachStore(t, c, func(t *testing.T, s *shop) {
		sink := s.forwarder.Sinks["customers"]
		sink.Parallelism.Threshold = 4
		s.forwarder.Sinks["customers"] = sink
		hanging, good, down := newCustomer(t), newCustomer(t), newCustomer(t)
		release := make(chan struct{})
		hanging.answers(func(http.ResponseWriter, request) { <-release })
		down.Close()
		s.create("hangs", hanging.URL)
		for range 5 {
			s.create("down", down.URL)
		}
		s.create("good", good.URL)
		var all []notification.Envelope
		for i := range 40 {
			for _, tenant := range []string{"hangs", "down", "good"} {
				all = append(all, order(tenant, tenant+string(rune('a'+i)), ""))
			}
		}
		s.publish(all...)
		f, err := forwarder.New(s.forwarder)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.Run(ctx) }()
		got := make(map[string]bool)
		require.Eventually(t, func() bool {
			for _, id := range orders(good.take()) {
				got[id] = true
			}
			return len(got) == 40
		}, 15*time.Second, 10*time.Millisecond, "before the first of the others has timed out")
		close(release)
		stop()
		require.NoError(t, <-ended)
	})
}

// Replaying the originals makes the same deliveries again, with the same ids.
func TestAReplayOfOriginalsReachesEndpointsUnderTheSameIDs(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		c := newCustomer(t)
		s.create("acme", c.URL)
		s.publish(order("acme", strings.Repeat("i", notification.MaxIDLength), strings.Repeat("k", notification.MaxKeyLength)))
		s.drain()
		first := c.take()
		require.Len(t, first, 1)
		routes, err := s.forwarder.Table()
		require.NoError(t, err)
		// Without a type, and with *, it does not replay the deliveries of the originals as well: an endpoint
		// would get them twice, also one that was created since.
		for _, typ := range []string{"", "*", "order.*", webhooks.Type} {
			plan, err := admin.New(s.store, "operator").Replay(t.Context(), admin.ReplayRequest{Sink: "customers", Type: typ, Routed: routes.Filter("customers")})
			require.NoError(t, err)
			for of, replayed := range map[string]bool{"order.placed": typ != webhooks.Type, webhooks.Type: typ == webhooks.Type} {
				require.Equal(t, replayed, plan.Takes(of), "%q takes %s", typ, of)
			}
			require.Zero(t, plan.Count.Parked+plan.Count.Unsettled, "%q: %+v", typ, plan.Count)
			done, err := plan.Run(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, plan.Count.Rows, done.Count, "%q", typ)
			s.drain()
			parked, err := s.store.FindParked(t.Context(), store.ParkedFilter{}, store.ParkedPlace{}, 10)
			require.NoError(t, err)
			require.Empty(t, parked, "%q", typ)
			again := c.take()
			if typ == webhooks.Type {
				require.Len(t, again, 4, "the deliveries of the original and of three replays")
			} else {
				require.Len(t, again, 1, "%q", typ)
			}
			for _, r := range again {
				require.Equal(t, first[0].ID, r.ID)
			}
		}
	})
}

func TestAPayloadThatIsNotJSONIsBase64(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		if !s.store.BinaryPayload() {
			t.Skip("its log takes only JSON")
		}
		c := newCustomer(t)
		s.create("acme", c.URL)
		e := order("acme", "1", "")
		e.Payload, e.Metadata[notification.MetadataContentType] = []byte(`"AQI="`), "application/x-protobuf"
		s.publish(e)
		s.drain()
		require.JSONEq(t, `{"type":"order.placed","timestamp":"2026-03-01T12:00:00Z","data_base64":"IkFRST0i"}`, c.take()[0].Raw)
	})
}

// What someone changes in a long transaction does not hold up the deliveries of the endpoint.
func TestATransactionThatHoldsAnEndpointHoldsUpNoDelivery(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		if _, err := s.db.ExecContext(t.Context(), "SELECT pg_backend_pid()"); err != nil {
			t.Skip("SQLite has one writer at a time")
		}
		c := newCustomer(t)
		c.answers(status(500))
		made, _ := s.create("acme", c.URL)
		tx, err := s.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = s.endpoints.In(tx).Update(t.Context(), "acme", made.ID, func(e *webhooks.Endpoint) error { e.Description = "changed"; return nil })
		require.NoError(t, err)
		s.publish(order("acme", "1", ""))
		s.drain()
		require.Len(t, c.take(), 1)
		require.NoError(t, tx.Commit())
		now, err := s.endpoints.Get(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		require.Zero(t, now.FailingSince, "an attempt marks it once it is read again")
		time.Sleep(webhooks.Freshness)
		s.advance(time.Minute)
		now, err = s.endpoints.Get(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		require.NotZero(t, now.FailingSince)
	})
}
