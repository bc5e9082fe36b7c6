package portal_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/framework/webhooks/portal"
)

func TestTheDescriptionHasExactlyTheRoutes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var document struct {
		OpenAPI string `json:"openapi"`
		Servers []struct{ URL string }
		Paths   map[string]map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(s.get("/api/openapi.json").text), &document))
	require.Equal(t, "3.1.0", document.OpenAPI)
	require.Equal(t, prefix+"/api", document.Servers[0].URL)
	var described, served []string
	for path, methods := range document.Paths {
		for method := range methods {
			if method != "parameters" {
				described = append(described, strings.ToUpper(method)+" /api"+path)
			}
		}
	}
	for _, pattern := range portal.Patterns() {
		if strings.Contains(pattern, " /api/") {
			served = append(served, pattern)
		}
	}
	require.ElementsMatch(t, served, described)
	require.Contains(t, s.get("/api/openapi.yaml").text, `servers: [{url: "/account/webhooks/api"}]`)
}

func TestAnEndpointIsManagedByTheAPI(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	require.Equal(t, []any{}, s.call("GET", "/endpoints", "").body["endpoints"])

	a := s.call("POST", "/endpoints", `{"url": "https://acme.example/hooks", "description": "Orders", "types": ["order.*"], "when": "payload.total > 1", "headers": {"X-Token": "topsecret"}, "rate": "50/s"}`)
	require.Equal(t, http.StatusCreated, a.status, a.text)
	id, secret := a.body["id"].(string), a.body["secret"].(string)
	require.Equal(t, prefix+"/api/endpoints/"+id, a.header.Get("Location"))
	require.Equal(t, `"1"`, a.header.Get("ETag"))
	require.True(t, strings.HasPrefix(secret, "whsec_"))
	require.Equal(t, map[string]any{"X-Token": "***"}, a.body["headers"])

	a = s.call("GET", "/endpoints/"+id, "")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, map[string]any{"waiting": 0.0, "dead": 0.0}, a.body["deliveries"])
	require.NotContains(t, a.text, secret)
	require.NotContains(t, a.text, "topsecret")

	a = s.call("PATCH", "/endpoints/"+id, `{"description": "All orders", "when": "", "types": null}`, "If-Match", `"1"`)
	require.Equal(t, http.StatusOK, a.status, a.text)
	require.Equal(t, "All orders", a.body["description"])
	require.Equal(t, "", a.body["when"])
	require.Equal(t, []any{"order.*"}, a.body["types"])
	require.Equal(t, "50/s", a.body["rate"])
	require.Equal(t, `"2"`, a.header.Get("ETag"))

	a = s.call("POST", "/endpoints/"+id+"/rotate", "")
	require.NotEqual(t, secret, a.body["secret"])
	a = s.call("POST", "/endpoints/"+id+"/disable", "")
	require.Equal(t, false, a.body["enabled"])
	require.Equal(t, http.StatusConflict, s.call("POST", "/endpoints/"+id+"/recover", `{"since": "2026-01-01T00:00:00Z"}`).status)
	a = s.call("POST", "/endpoints/"+id+"/enable", "{}")
	require.Equal(t, true, a.body["enabled"])
	a = s.call("POST", "/endpoints/"+id+"/recover", `{"since": "2026-01-01T00:00:00Z"}`)
	require.EqualValues(t, 0, a.body["recovered"], a.text)

	require.Equal(t, http.StatusNoContent, s.call("DELETE", "/endpoints/"+id, "").status)
	require.Equal(t, http.StatusNotFound, s.call("GET", "/endpoints/"+id, "").status)
	require.Equal(t, http.StatusNotFound, s.call("DELETE", "/endpoints/"+id, "").status)
	require.NotContains(t, s.log.String(), secret)
	require.NotContains(t, s.log.String(), "topsecret")
	require.Contains(t, s.log.String(), "the secret of an endpoint was shown to its customer")
}

func TestAMaskedHeaderKeepsItsValue(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	e := s.create("acme", webhooks.Settings{URL: "https://acme.example/", Headers: map[string]string{"X-Token": "abc", "X-Other": "def"}})
	a := s.call("PATCH", "/endpoints/"+e.ID, `{"headers": {"x-token": "***", "X-New": "ghi"}}`)
	require.Equal(t, http.StatusOK, a.status, a.text)
	read, err := s.endpoints.Get(t.Context(), "acme", e.ID)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"x-token": "abc", "X-New": "ghi"}, read.Headers)

	a = s.call("PATCH", "/endpoints/"+e.ID, `{"headers": {"X-Unknown": "***"}}`)
	require.Equal(t, http.StatusUnprocessableEntity, a.status)
	require.Equal(t, "headers", a.body["errors"].([]any)[0].(map[string]any)["field"])
	a = s.call("PATCH", "/endpoints/"+e.ID, `{"headers": {}}`)
	require.Equal(t, map[string]any{}, a.body["headers"])
}

func TestAKeyMakesOneEndpointHoweverOftenItIsSent(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const body = `{"url": "https://acme.example/hooks", "headers": {"X-Token": "abc"}}`
	first := s.call("POST", "/endpoints", body, "Idempotency-Key", "setup-1")
	require.Equal(t, http.StatusCreated, first.status, first.text)
	again := s.call("POST", "/endpoints", body, "Idempotency-Key", "setup-1")
	require.Equal(t, http.StatusCreated, again.status)
	require.Equal(t, []any{first.body["id"], first.body["secret"]}, []any{again.body["id"], again.body["secret"]})
	require.Equal(t, http.StatusUnprocessableEntity, s.call("POST", "/endpoints", `{"url": "https://acme.example/other"}`, "Idempotency-Key", "setup-1").status)
	other := s.callAs("globex", "POST", "/endpoints", body, "Idempotency-Key", "setup-1")
	require.Equal(t, http.StatusCreated, other.status, "a key is the tenant's")
	require.NotEqual(t, first.body["id"], other.body["id"])
	require.Equal(t, http.StatusUnprocessableEntity, s.call("POST", "/endpoints", body, "Idempotency-Key", strings.Repeat("k", 256)).status)

	id := first.body["id"].(string)
	require.Equal(t, http.StatusOK, s.call("PATCH", "/endpoints/"+id, `{"url": "https://acme.example/new"}`).status)
	again = s.call("POST", "/endpoints", body, "Idempotency-Key", "setup-1")
	require.Equal(t, "https://acme.example/new", again.body["url"], "as it is now")
	require.Len(t, s.call("GET", "/endpoints", "").body["endpoints"], 1)
	require.Equal(t, http.StatusNoContent, s.call("DELETE", "/endpoints/"+id, "").status)
	require.Equal(t, id, s.call("POST", "/endpoints", body, "Idempotency-Key", "setup-1").body["id"])

	key := notification.NewID()
	dated := s.call("POST", "/endpoints", `{"url": "https://acme.example/dated"}`, "Idempotency-Key", key)
	require.Equal(t, notification.IDTime(key), notification.IDTime(dated.body["id"].(string)))
}

func TestAChangeOfAnOlderVersionIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	e := s.create("acme", webhooks.Settings{URL: "https://acme.example/"})
	require.Equal(t, http.StatusOK, s.call("PATCH", "/endpoints/"+e.ID, `{}`, "If-Match", "*").status)
	a := s.call("GET", "/endpoints/"+e.ID, "")
	tag := a.header.Get("ETag")
	require.Equal(t, http.StatusOK, s.call("PATCH", "/endpoints/"+e.ID, `{"description": "a"}`, "If-Match", tag).status)
	require.Equal(t, http.StatusPreconditionFailed, s.call("PATCH", "/endpoints/"+e.ID, `{"description": "b"}`, "If-Match", tag).status)
	require.Equal(t, http.StatusBadRequest, s.call("PATCH", "/endpoints/"+e.ID, `{"description": "b"}`, "If-Match", `"x"`).status)
	require.Equal(t, "a", s.call("GET", "/endpoints/"+e.ID, "").body["description"])
}

func TestMistakesAreNamedByField(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.call("POST", "/endpoints", `{"url": "ftp://acme.example/", "description": "`+strings.Repeat("ä", 1001)+`", "types": ["nothing.*"], "when": "payload.", "headers": {"Host": "x"}, "secret": "whsec_x"}`)
	require.Equal(t, http.StatusUnprocessableEntity, a.status, a.text)
	var fields []string
	for _, m := range a.body["errors"].([]any) {
		fields = append(fields, m.(map[string]any)["field"].(string))
	}
	require.ElementsMatch(t, []string{"url", "description", "types", "when", "headers", "secret"}, fields, a.text)
	a = s.call("POST", "/endpoints", `{"url": "https://acme.example/", "rate": "often"}`)
	require.Equal(t, "rate", a.body["errors"].([]any)[0].(map[string]any)["field"])
	require.Empty(t, s.call("GET", "/endpoints", "").body["endpoints"])
}

func TestWrongRequestsAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	e := s.create("acme", webhooks.Settings{URL: "https://acme.example/"})
	at := "/endpoints/" + e.ID
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/endpoints?limit=0", "", 400},
		{"GET", "/endpoints?limit=201", "", 400},
		{"GET", "/endpoints?tenant=globex", "", 400},
		{"GET", "/endpoints?after=%00", "", 400},
		{"GET", "/endpoints?after=a&after=b", "", 400},
		{"GET", "/endpoints?after=%zz", "", 400},
		{"GET", at + "/attempts?outcome=maybe", "", 400},
		{"GET", at + "/attempts?since=soon", "", 400},
		{"GET", at + "/attempts?since=0000-01-01T00:00:00Z", "", 400},
		{"GET", at + "?tenant=globex", "", 400},
		{"PUT", at, "{}", 405},
		{"POST", at, "{}", 405},
		{"GET", "/nothing", "", 404},
		{"GET", "/", "", 404},
		{"POST", "/endpoints", "", 415},
		{"POST", "/endpoints", "[]", 400},
		{"POST", "/endpoints", `{"url": 1}`, 400},
		{"POST", "/endpoints", `{"tenant": "globex", "url": "https://acme.example/"}`, 400},
		{"POST", "/endpoints", `{"url": "https://acme.example/"} {}`, 400},
		{"POST", "/endpoints", `{"url": "` + strings.Repeat("x", 300<<10) + `"}`, 413},
		{"POST", "/endpoints", `{"url": "https://acme.example/\u0000"}`, 422},
		{"PATCH", at, `{"description": "\u0000"}`, 422},
		{"PATCH", at, `{"id": "x"}`, 400},
		{"POST", at + "/recover", `{}`, 400},
		{"POST", at + "/recover", `{"since": "2999-01-01T00:00:00Z"}`, 400},
	} {
		a := s.call(c.method, c.path, c.body)
		require.Equal(t, c.status, a.status, "%s %s: %s", c.method, c.path, a.text)
		require.NotEmpty(t, a.body["detail"])
	}
	a := s.ask("acme", "POST", "/api/endpoints", `{"url": "https://acme.example/"}`, "Content-Type", "text/plain")
	require.Equal(t, http.StatusUnsupportedMediaType, a.status)
	for body, want := range map[string]string{" ": "the body is empty: send", `{"since": "2h"}`: `is not a time: write it as in 2026-03-01T12:00:00Z`} {
		a := s.ask("acme", "POST", "/api"+at+"/recover", body, "Content-Type", "application/json")
		require.Equal(t, http.StatusBadRequest, a.status)
		require.Contains(t, a.text, want)
	}
}

func TestListsHavePages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	e := s.create("acme", webhooks.Settings{URL: "https://acme.example/0"})
	want := []string{e.ID}
	for i := 1; i < 5; i++ {
		want = append(want, s.create("acme", webhooks.Settings{URL: fmt.Sprintf("https://acme.example/%d", i)}).ID)
	}
	s.create("globex", webhooks.Settings{URL: "https://globex.example/"})
	require.Equal(t, want, s.all("/endpoints?limit=2", "endpoints"))

	var attempts []string
	for i := range 5 {
		a := s.attempt(e, func(a *store.Attempt) {
			if i%2 == 0 {
				a.Error, a.Status, a.Type = "transient: 503", 503, "order.shipped"
			}
			a.Delivery = fmt.Sprintf("d%d", i%3)
		})
		attempts = append([]string{a.ID}, attempts...)
	}
	at := "/endpoints/" + e.ID + "/attempts?limit=2"
	require.Equal(t, attempts, s.all(at, "attempts"))
	odd := []string{attempts[0], attempts[2], attempts[4]}
	require.Equal(t, odd, s.all(at+"&outcome=failed", "attempts"))
	require.Equal(t, odd, s.all(at+"&type=order.shipped", "attempts"))
	require.Equal(t, []string{attempts[1], attempts[3]}, s.all(at+"&outcome=succeeded", "attempts"))
	require.Equal(t, []string{attempts[1], attempts[4]}, s.all(at+"&delivery=d0", "attempts"))
	require.Empty(t, s.all(at+"&since=2999-01-01T00:00:00Z", "attempts"))
	require.Len(t, s.all(at+"&since="+time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), "attempts"), 5)
}

// all returns the ids of all pages of a list.
func (s *site) all(path, name string) (ids []string) {
	s.t.Helper()
	for after := ""; ; {
		a := s.call("GET", path+after, "")
		require.Equal(s.t, http.StatusOK, a.status, a.text)
		rows := a.body[name].([]any)
		require.LessOrEqual(s.t, len(rows), 2)
		for _, row := range rows {
			ids = append(ids, row.(map[string]any)["id"].(string))
		}
		next, more := a.body["next"].(string)
		if !more {
			return ids
		}
		after = "&after=" + next
	}
}

func TestAnAttemptHasItsRequestAndAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	e := s.create("acme", webhooks.Settings{URL: "https://acme.example/"})
	made := s.attempt(e)
	a := s.call("GET", "/attempts/"+made.ID, "")
	require.Equal(t, http.StatusOK, a.status, a.text)
	require.Equal(t, true, a.body["succeeded"])
	require.EqualValues(t, 123, a.body["duration_ms"])
	require.Equal(t, made.Request.Body, a.body["request"].(map[string]any)["body"])
	require.Equal(t, `{"ok":true}`, a.body["answer"].(map[string]any)["body"])
	list := s.call("GET", "/endpoints/"+e.ID+"/attempts", "")
	require.NotContains(t, list.text, "nginx")
	require.Equal(t, http.StatusGone, s.call("POST", "/attempts/"+made.ID+"/resend", "").status, "the notification was never published")
}

func TestATestReturnsTheAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for status, succeeded := range map[int]bool{200: true, 500: false} {
		e := s.create("acme", webhooks.Settings{URL: receiver(t, status, map[string]string{"X-Mine": "1"}, "thanks"), Headers: map[string]string{"X-Token": "topsecret"}})
		a := s.call("POST", "/endpoints/"+e.ID+"/test", "")
		require.Equal(t, http.StatusOK, a.status, a.text)
		require.Equal(t, succeeded, a.body["succeeded"])
		require.EqualValues(t, status, a.body["status"])
		require.Equal(t, "thanks", a.body["answer"].(map[string]any)["body"])
		require.Contains(t, a.body["request"].(map[string]any)["body"], webhooks.TestType)
		require.NotContains(t, a.text, "topsecret")
		require.NotContains(t, s.log.String(), "thanks")
	}
	gone := s.create("acme", webhooks.Settings{URL: "http://127.0.0.1:1/"})
	a := s.call("POST", "/endpoints/"+gone.ID+"/test", "")
	require.Equal(t, http.StatusOK, a.status, a.text)
	require.Equal(t, false, a.body["succeeded"])
	require.NotEmpty(t, a.body["error"])
}

func TestTypesAreDescribed(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *portal.Config, _ *webhooks.Config) {
		c.Hide = func(typ string) bool { return typ == "audit.done" }
	})
	require.Equal(t, []any{
		map[string]any{"type": "order.placed", "example": map[string]any{"order_id": "", "total": 0.0}},
		map[string]any{"type": "order.shipped", "example": map[string]any{"order_id": ""}},
	}, s.call("GET", "/types", "").body["types"])
	s = newSite(t, func(c *portal.Config, _ *webhooks.Config) {
		c.Describe = func(typ string) (string, []byte, []byte) {
			return "About " + typ, []byte(`{"type":"object"}`), []byte(`not JSON`)
		}
	})
	require.Equal(t, map[string]any{"type": "audit.done", "description": "About audit.done", "schema": map[string]any{"type": "object"}}, s.call("GET", "/types", "").body["types"].([]any)[0])
	require.Contains(t, s.get("/new").text, "About order.placed")
}

func TestTestsOfOneTenantThatWaitLeaveTurnsToOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(_ *portal.Config, of *webhooks.Config) { of.Timeout = 2 * time.Minute })
	asked, answer := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-answer
	}))
	t.Cleanup(slow.Close)
	release := sync.OnceFunc(func() { close(answer) })
	t.Cleanup(release)
	quick := receiver(t, 200, nil, "")
	test := func(tenant string, e webhooks.Endpoint) int {
		return s.ask(tenant, http.MethodPost, "/api/endpoints/"+e.ID+"/test", "").status
	}
	ended := make(chan int, 4)
	answering := map[string]webhooks.Endpoint{}
	for _, tenant := range []string{"acme", "globex", "initech"} {
		answering[tenant] = s.create(tenant, webhooks.Settings{URL: quick})
	}
	for _, tenant := range []string{"acme", "globex"} { // each takes all of its turns, whatever others have taken
		waiting := s.create(tenant, webhooks.Settings{URL: slow.URL})
		for range 2 {
			go func() {
				status := 0
				defer func() { ended <- status }()
				status = test(tenant, waiting)
			}()
			select {
			case <-asked:
			case status := <-ended:
				require.Fail(t, "it did not wait", "%s: %d", tenant, status)
			}
		}
		require.Equal(t, http.StatusTooManyRequests, test(tenant, answering[tenant]), tenant)
	}
	require.Equal(t, http.StatusOK, test("initech", answering["initech"]))
	release()
	for range 4 {
		require.Equal(t, http.StatusOK, <-ended)
	}
	require.Equal(t, http.StatusOK, test("acme", answering["acme"]), "a test that has ended leaves its turn")
}
