package pages

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// customer adds an endpoint.
func customer(t *testing.T, all *webhooks.Endpoints, tenant string) webhooks.Endpoint {
	t.Helper()
	made, _, err := all.Create(t.Context(), webhooks.NewEndpoint{Tenant: tenant, Settings: webhooks.Settings{
		URL: "https://" + tenant + ".example/hook/zq4711", Description: "the shop", Headers: map[string]string{"X-Shop": "zq4712"},
	}})
	require.NoError(t, err)
	return made
}

func TestEndpointsInTroubleAreListedAndActedOn(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.exec(t, `INSERT INTO outbox_cursors (sink, lane, lanes) VALUES ('customers', 0, 1)`)
		all := o.endpoints(t)
		acme, well := customer(t, all, "acme"), customer(t, all, "well")
		p := newPages(t, &target.Target{Store: o.store, Endpoints: all})
		see := func(path string) string {
			t.Helper()
			status, page := p.ask(t, access.Operator, http.MethodGet, path, nil)
			require.Equal(t, http.StatusOK, status, page)
			return html.UnescapeString(page)
		}
		require.Contains(t, see("/endpoints"), "No endpoint of a customer is failing")
		require.NotContains(t, see("/"), "failing or in trouble.")

		o.exec(t, `UPDATE outbox_endpoints SET failing_since = '2026-01-02T03:04:05.000000Z', trouble = 'when: zq4713 is no text' WHERE id = $1`, acme.ID)
		page := see("/endpoints")
		require.Contains(t, page, "1 failing, 1 in trouble of 1")
		require.Contains(t, page, "https://acme.example/hook/zq4711")
		require.NotContains(t, page, "well.example")
		require.Contains(t, see("/endpoints?all=1"), "well.example")
		require.NotContains(t, see("/endpoints?all=1&tenant=well"), "acme.example")
		_, seen := p.ask(t, access.Viewer, http.MethodGet, "/endpoints", nil)
		require.Contains(t, seen, "https://acme.example/***")
		for _, path := range []string{"/endpoints", endpointPath(acme.ID)} {
			_, seen := p.ask(t, access.Viewer, http.MethodGet, path, nil)
			require.NotRegexp(t, `zq471\d`, seen)
			require.NotContains(t, seen, "Disable")
		}
		page = see(endpointPath(acme.ID))
		for _, want := range []string{"when: zq4713 is no text", "X-Shop", "Disable …", "Recover …", "No attempt is recorded"} {
			require.Contains(t, page, want)
		}
		require.NotContains(t, page, "zq4712")

		act := func(name string, form url.Values, want int) string {
			t.Helper()
			status, page := p.ask(t, access.Operator, http.MethodPost, endpointPath(acme.ID)+"/"+name, form)
			require.Equal(t, want, status, page)
			return html.UnescapeString(page)
		}
		question := act("disable", url.Values{"reason": {"moving"}}, http.StatusOK)
		require.Contains(t, question, "Disable https://acme.example/hook/zq4711?")
		now, err := all.Find(t.Context(), acme.ID)
		require.NoError(t, err)
		require.True(t, now.Enabled(), "it asks first")
		act("disable", url.Values{"reason": {"moving"}, "confirmed": {"yes"}}, http.StatusSeeOther)
		require.Contains(t, see(endpointPath(acme.ID)), "disabled by a person: moving")
		act("recover", url.Values{"age": {"1h"}}, http.StatusConflict)
		act("enable", url.Values{"confirmed": {"yes"}}, http.StatusSeeOther)
		now, err = all.Find(t.Context(), acme.ID)
		require.NoError(t, err)
		require.True(t, now.Enabled())

		o.exec(t, `INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt)
			VALUES ('customers', 7, 1, 'n', '_webhooks', 1, '', '2026-01-02T03:04:05.000000Z', $1, '{}', 'dead', 3)`, `{"endpoint": "`+acme.ID+`", "tenant": "acme", "webhook-type": "order.placed"}`)
		page = see("/notifications/n")
		require.Contains(t, page, "the delivery of order.placed to the endpoint "+acme.ID+" of tenant acme")
		require.Contains(t, page, `href="/endpoints/`+acme.ID+`"`)
		question = act("recover", url.Values{"age": {"365d"}}, http.StatusOK)
		require.Contains(t, question, " or later: 1. These deliveries")
		path := regexp.MustCompile(`action="(/endpoints/[^"]*\?since=[^"]*)"`).FindStringSubmatch(question)
		require.NotNil(t, path, question)
		status, _ := p.ask(t, access.Operator, http.MethodPost, path[1], url.Values{"confirmed": {"yes"}})
		require.Equal(t, http.StatusSeeOther, status)
		require.Eventually(t, func() bool { return strings.Contains(see("/parked"), "retrying") }, time.Minute, 10*time.Millisecond)
		require.Contains(t, see("/actions"), "disable endpoint")

		o.exec(t, `UPDATE outbox_endpoints SET trouble = 'odd'`)
		require.Contains(t, see("/"), "2 endpoints of 2 tenants are failing or in trouble.")
		status, _ = p.ask(t, access.Operator, http.MethodGet, "/endpoints/none", nil)
		require.Equal(t, http.StatusNotFound, status)
		require.NotEmpty(t, well.ID)
	})
}

func TestTheListOfEndpointsHasPages(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.exec(t, `INSERT INTO outbox_cursors (sink, lane, lanes) VALUES ('customers', 0, 1)`)
		all := o.endpoints(t)
		for i := range pageRows + 1 {
			customer(t, all, fmt.Sprintf("t%02d", i))
		}
		o.exec(t, `UPDATE outbox_endpoints SET trouble = 'odd'`)
		p := newPages(t, &target.Target{Store: o.store, Endpoints: all})
		_, first := p.ask(t, access.Operator, http.MethodGet, "/endpoints", nil)
		require.Contains(t, first, "t49.example")
		require.NotContains(t, first, "t50.example")
		next := regexp.MustCompile(`rel="next" href="([^"]*)"`).FindStringSubmatch(first)
		require.NotNil(t, next)
		_, second := p.ask(t, access.Operator, http.MethodGet, html.UnescapeString(next[1]), nil)
		require.Contains(t, second, "t50.example")
		require.NotContains(t, second, "t49.example")
		_, overview := p.ask(t, access.Operator, http.MethodGet, "/", nil)
		require.Contains(t, overview, "More than 50 endpoints")
	})
}

func TestWithoutASinkOfKindWebhooksNoPageTellsOfEndpoints(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	p := newPages(t, &target.Target{Store: o.store})
	_, page := p.ask(t, access.Operator, http.MethodGet, "/", nil)
	require.NotContains(t, page, "/endpoints")
	status, _ := p.ask(t, access.Operator, http.MethodGet, "/endpoints", nil)
	require.Equal(t, http.StatusNotFound, status)
	p = newPages(t, &target.Target{Store: o.store, Endpoints: o.endpoints(t)})
	_, page = p.ask(t, access.Operator, http.MethodGet, "/", nil)
	require.Contains(t, page, `href="/endpoints"`)
}
