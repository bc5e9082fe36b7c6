package api_test

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/internal/endpoint"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

// selling serves the API of an outbox whose sink mail is of kind webhooks.
func selling(t *testing.T, o *outbox) *site {
	t.Helper()
	near := webhooks.Config{ClientConfig: httpsink.ClientConfig{AllowHTTP: true, Guard: httpsink.Guard{Mode: httpsink.GuardOff}}, EndpointsPerTenant: 3}
	all, err := webhooks.NewEndpoints(o.store.(webhooks.Store), sinks.Instance{Name: "mail"}, near)
	require.NoError(t, err)
	return serve(t, &target.Target{Store: o.store, Routing: routing(t), Endpoints: all, Privacy: mastered(t, 'a')})
}

// add adds an endpoint.
func (s *site) add(t *testing.T, body string, headers ...string) (made endpoint.View) {
	t.Helper()
	a := s.act(t, "/endpoints", body, headers...)
	require.Equal(t, http.StatusCreated, a.status, a.text)
	a.into(t, &made)
	require.Equal(t, prefix+"/api/v1/endpoints/"+made.ID, a.header.Get("Location"))
	return made
}

func TestOperatorsManageEndpoints(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		s := selling(t, o)
		customer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			_, _ = w.Write([]byte("ada@example.org"))
		}))
		t.Cleanup(customer.Close)
		const key = "Idempotency-Key"
		body := `{"tenant": "acme", "url": "` + customer.URL + `/hook?token=zq4711", "types": ["order.*"], "headers": {"X-Shop": "zq4712"}, "reason": "asked for"}`
		made := s.add(t, body, key, "k1")
		require.Contains(t, made.Secret, "whsec_")
		require.Equal(t, map[string]string{"X-Shop": "***"}, made.Headers)
		require.Equal(t, made.ID, s.add(t, body, key, "k1").ID)
		require.Equal(t, http.StatusUnprocessableEntity, s.act(t, "/endpoints", strings.Replace(body, "order.*", "*", 1), key, "k1").status)
		for range 2 {
			s.add(t, body)
		}
		require.Equal(t, http.StatusConflict, s.act(t, "/endpoints", body).status, "the tenant has three")
		s.add(t, `{"tenant": "other", "url": "https://other.example", "asymmetric": true}`)
		a := s.act(t, "/endpoints", `{"tenant": "", "url": "ftp://x", "rate": "9"}`)
		require.Equal(t, http.StatusBadRequest, a.status)
		require.Contains(t, a.body["detail"], "rate")

		var ids []string
		for next := "?limit=1"; next != ""; {
			var page struct {
				Endpoints []endpoint.View
				Next      string
			}
			s.look(t, "/endpoints"+next).into(t, &page)
			require.Len(t, page.Endpoints, 1)
			ids = append(ids, page.Endpoints[0].ID)
			if next = ""; page.Next != "" {
				next = "?limit=1&cursor=" + page.Next
			}
		}
		require.Len(t, ids, 4)
		require.NotContains(t, s.look(t, "/endpoints?tenant=other").text, made.ID)
		require.Equal(t, []any{}, s.look(t, "/endpoints?troubled=1").body["endpoints"])

		at := "/endpoints/" + made.ID
		a = s.act(t, at+"/rotate", "")
		require.NotEqual(t, made.Secret, a.body["secret"])
		a = s.do(t, operator, http.MethodPatch, at, `{"description": "the shop", "headers": {"X-Shop": "***", "X-New": "1"}, "types": null}`)
		require.Equal(t, "the shop", a.body["description"], a.text)
		require.Equal(t, []any{"order.*"}, a.body["types"])
		require.Nil(t, a.body["secret"])
		a = s.act(t, at+"/test", "")
		require.Equal(t, false, a.body["succeeded"], a.text)
		require.EqualValues(t, http.StatusTeapot, a.body["status"])
		require.NotContains(t, a.text, "ada@example.org")
		a = s.act(t, at+"/disable", `{"reason": "moving"}`)
		require.Equal(t, "disabled by a person: moving", a.body["disabled_reason"])
		require.Equal(t, http.StatusConflict, s.act(t, at+"/recover", `{"since": "2026-03-01T12:00:00Z"}`).status)
		require.Equal(t, true, s.act(t, at+"/enable", "").body["enabled"])
		require.Equal(t, http.StatusNotFound, s.act(t, at+"/recover", `{"since": "2026-03-01T12:00:00Z"}`).status, "no forwarder has had the sink")
		require.Equal(t, http.StatusBadRequest, s.act(t, at+"/recover", `{}`).status)
		require.Equal(t, made.ID, s.do(t, operator, http.MethodDelete, at, "").body["id"])
		require.Equal(t, http.StatusNotFound, s.look(t, at).status)
		for _, act := range []string{"/rotate", "/enable", "/test"} {
			require.Equal(t, http.StatusNotFound, s.act(t, at+act, "").status)
		}
		require.Equal(t, http.StatusNotFound, s.do(t, operator, http.MethodDelete, at, "").status)

		recorded := s.look(t, "/actions").text
		for _, want := range []string{"add endpoint", "rotate endpoint", "update endpoint", "test endpoint", "disable endpoint", "enable endpoint", "delete endpoint", `"moving"`, `"asked for"`, `"ada"`, "127.0.0.1"} {
			require.Contains(t, recorded, want)
		}
		for _, secret := range []string{"whsec_", "zq4711", "zq4712"} {
			require.NotContains(t, recorded, secret)
		}
	})
}

func TestRecoveringAnEndpointIsAnAction(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		s := selling(t, o)
		made := s.add(t, `{"tenant": "acme", "url": "https://acme.example"}`)
		failed := func(offset int, endpoint string) store.Parked {
			p := dead(offset, "")
			p.Envelope.Type, p.Envelope.Metadata = webhooks.Type, notification.Metadata{"endpoint": endpoint, "tenant": "acme"}
			return p
		}
		o.park(t, "mail", failed(1, made.ID), failed(2, made.ID), failed(3, "other"))
		require.Equal(t, map[string]any{"waiting": 0.0, "dead": 2.0}, s.look(t, "/endpoints/"+made.ID).body["deliveries"])
		since := `{"since": "2026-03-01T12:00:00Z", "reason": "they are back"}`
		first := s.act(t, "/endpoints/"+made.ID+"/recover", since, "Idempotency-Key", "r1")
		require.Equal(t, http.StatusAccepted, first.status, first.text)
		again := s.act(t, "/endpoints/"+made.ID+"/recover", since, "Idempotency-Key", "r1")
		require.Equal(t, first.body["id"], again.body["id"])
		require.Eventually(t, func() bool { return s.look(t, "/actions/"+first.body["id"].(string)).body["state"] == "done" }, patience, 10*time.Millisecond)
		require.EqualValues(t, 2, s.look(t, "/actions/"+first.body["id"].(string)).body["count"])
		require.Equal(t, map[string]any{"waiting": 2.0, "dead": 0.0}, s.look(t, "/endpoints/"+made.ID).body["deliveries"])
	})
}

func TestViewersSeeNeitherPathsNorErrorsOfEndpoints(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		s := selling(t, o)
		made := s.add(t, `{"tenant": "acme", "url": "https://acme.example/hook/zq4711?token=zq4711", "headers": {"X-Shop": "zq4711"}}`)
		sell := o.store.(webhooks.Store)
		tx, err := o.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer tx.Rollback()
		_, err = sell.MarkEndpoints(t.Context(), tx, store.EndpointMarks{Failing: []string{made.ID}, Trouble: map[string]string{made.ID: "when: zq4711 is no text"}})
		require.NoError(t, err)
		found, err := sell.Endpoints(t.Context(), tx, store.EndpointQuery{IDs: []string{made.ID}})
		require.NoError(t, err)
		exchange := store.Exchange{Header: map[string][]string{"X": {"zq4711"}}, Body: "zq4711"}
		require.NoError(t, sell.AddAttempts(t.Context(), tx, []store.Attempt{{
			ID: notification.NewID(), Endpoint: made.ID, EndpointCreatedAt: found[0].CreatedAt, Tenant: "acme", Delivery: "d", Notification: "n", Type: "order.placed", Number: 1, At: time.Now(),
			Status: 422, Error: "transient: POST https://acme.example: 422 zq4711", Request: exchange, Answer: exchange, Until: time.Now().Add(time.Hour),
		}}))
		require.NoError(t, tx.Commit())
		for _, path := range []string{"/endpoints", "/endpoints/" + made.ID, "/endpoints?troubled=1"} {
			seen := s.look(t, path)
			require.Contains(t, seen.text, `"https://acme.example/***"`)
			require.NotContains(t, seen.text, "zq4711", path)
			seen = s.inspect(t, path)
			require.Contains(t, seen.text, "https://acme.example/hook/zq4711", path)
			require.Contains(t, seen.text, "when: zq4711 is no text", path)
		}
		for _, act := range []struct{ method, path, body string }{
			{http.MethodPost, "", `{"tenant": "acme", "url": "https://acme.example"}`},
			{http.MethodPatch, "/" + made.ID, `{"when": ""}`}, {http.MethodDelete, "/" + made.ID, ""}, {http.MethodPost, "/" + made.ID + "/rotate", ""},
			{http.MethodPost, "/" + made.ID + "/recover", `{"since": "2026-03-01T12:00:00Z"}`},
		} {
			require.Equal(t, http.StatusForbidden, s.do(t, viewer, act.method, "/endpoints"+act.path, act.body).status)
		}
	})
}

func TestWithoutASinkOfKindWebhooksThereAreNoEndpoints(t *testing.T) {
	t.Parallel()
	s := serve(t, &target.Target{Store: onSQLite(t).store})
	a := s.look(t, "/endpoints")
	require.Equal(t, http.StatusNotFound, a.status)
	require.Contains(t, a.text, "no sink of kind webhooks")
	require.Equal(t, http.StatusNotFound, s.act(t, "/endpoints", `{"tenant": "acme", "url": "https://acme.example"}`).status)
}

func TestInvalidValuesOfEndpointsAreRefused(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		s := selling(t, o)
		made := s.add(t, `{"tenant": "acme", "url": "https://acme.example"}`)
		for _, member := range []string{
			`"tenant": "a\u0000"`, `"url": "https://a\u0000"`, `"description": "\u0000"`, `"types": ["\u0000"]`, `"types": ["_webhooks"]`, `"when": "\u0000"`, `"headers": {"a\u0000": "b"}`,
			`"headers": {"a": "\u0000"}`, `"headers": {"a": "***"}`, `"rate": "\u0000"`, `"secret": "\u0000"`, `"reason": "\u0000"`, `"unknown": 1`,
		} {
			a := s.act(t, "/endpoints", `{"tenant": "b", "url": "https://b.example", `+member+`}`)
			require.Equal(t, http.StatusBadRequest, a.status, "%s: %s", member, a.text)
		}
		for _, since := range []string{"0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-03-01T12:00:00+23:59"} {
			a := s.act(t, "/endpoints/"+made.ID+"/recover", `{"since": "`+since+`"}`)
			require.Less(t, a.status, 500, "%s: %s", since, a.text)
		}
		for _, text := range []string{`["a"]`, `["a", "b\u0000"]`, `[null, null]`, `{}`, `["a", 1]`} {
			a := s.look(t, "/endpoints?cursor="+base64.RawURLEncoding.EncodeToString([]byte(text)))
			require.Less(t, a.status, 500, "%s: %s", text, a.text)
		}
		require.Equal(t, http.StatusBadRequest, s.look(t, "/endpoints?troubled=yes").status)
		require.Equal(t, http.StatusNotFound, s.look(t, "/endpoints/"+url.PathEscape("' OR 1")).status)
	})
}
