package browsertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/dashboard"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/sinks"
)

func TestEndpointsOfCustomersAreDisabledEnabledAndRecovered(t *testing.T) {
	t.Parallel()
	var all *webhooks.Endpoints
	s := newSite(t, withSinks(t, "customers"), func(s *site, target *dashboard.Target) {
		var err error
		all, err = webhooks.NewEndpoints(s.store, sinks.Instance{Name: "customers"}, webhooks.Config{})
		require.NoError(t, err)
		target.Endpoints = all
	})
	b := newTab(t, s.url)
	require.Contains(t, b.open("/endpoints"), "No endpoint of a customer is failing or in trouble.")
	b.shoot("endpoints-empty")

	add := func(tenant, url, description string, types ...string) webhooks.Endpoint {
		made, _, err := all.Create(t.Context(), webhooks.NewEndpoint{Tenant: tenant, Settings: webhooks.Settings{
			URL: url, Description: description, Types: types, When: "payload.total > 100", Headers: map[string]string{"X-Shop": "7"},
		}})
		require.NoError(t, err)
		made, err = all.Get(t.Context(), tenant, made.ID) // with the database's times
		require.NoError(t, err)
		return made
	}
	failing := add("acme", "https://hooks.acme.example/orders/incoming?shop=berlin-mitte", "The shop in Berlin", "order.*", "parcel.moved")
	gone := add("globex", "https://globex.example/webhooks", "", "order.placed")
	odd := add("globex", "https://erp.globex.example/in", `<script>alert(1)</script>`, "invoice.*")
	add("initech", "https://initech.example/hooks", "Works")
	s.exec(t, `UPDATE outbox_endpoints SET failing_since = now() - interval '7 hours' WHERE id = $1`, failing.ID)
	s.exec(t, `UPDATE outbox_endpoints SET disabled_reason = 'it answered 410 Gone', disabled_at = now() - interval '2 days' WHERE id = $1`, gone.ID)
	s.exec(t, `UPDATE outbox_endpoints SET trouble = 'when: no such key: total' WHERE id = $1`, odd.ID)
	tx, err := s.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	var attempts []store.Attempt
	for i := range 4 {
		a := store.Attempt{
			ID: notification.NewID(), Endpoint: failing.ID, EndpointCreatedAt: failing.CreatedAt, Tenant: "acme", Delivery: fmt.Sprint("n", i), Notification: notification.NewID(), Type: "order.placed", Number: i + 1,
			At: time.Now().Add(-time.Hour), Duration: 1234 * time.Millisecond, Until: time.Now().Add(time.Hour),
		}
		if i > 0 {
			a.Status, a.Error = 503, "transient: POST https://hooks.acme.example: 503 Service Unavailable"
		} else {
			a.Status = 200
		}
		attempts = append(attempts, a)
	}
	require.NoError(t, s.store.AddAttempts(t.Context(), tx, attempts))
	require.NoError(t, tx.Commit())
	s.exec(t, `INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, first_parked_at)
		SELECT 'customers', i, 0, 'n' || i, '_webhooks', 1, '', now(), json_build_object('endpoint', $1::text, 'tenant', 'acme'), '{}', 'dead', 10, now() - interval '3 hours' FROM generate_series(1, 34) i`, failing.ID)

	b.open("/")
	b.sees("3 endpoints of 2 tenants are failing or in trouble.")
	b.shoot("endpoints-overview")
	b.do(chromedp.Click(`//a[text()="Show"]`), chromedp.WaitVisible(`//a[contains(text(), "globex.example/webhooks")]`))
	text := b.open("/endpoints")
	for _, want := range []string{"acme · 1 failing of 1", "globex · 1 disabled, 1 in trouble of 2", "it answered 410 Gone", "2 d ago", "7 h ago", "<script>alert(1)</script>", "when: no such key: total"} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "initech")
	b.shoot("endpoints")
	require.Contains(t, b.open("/endpoints?all=1"), "initech")

	b.open("/endpoints/" + failing.ID)
	b.sees("34", "503", "The shop in Berlin", "X-Shop")
	b.shoot("endpoint")
	var question string
	b.do(chromedp.SetValue(`#age`, "1d", chromedp.ByQuery), chromedp.Click(`//button[text()="Recover …"]`), chromedp.WaitVisible(`//button[text()="Recover"]`), chromedp.Text("main", &question, chromedp.ByQuery))
	require.Contains(t, question, " or later: 34. These deliveries")
	b.shoot("endpoint-recover")
	b.do(chromedp.Click(`//button[text()="Recover"]`), chromedp.WaitVisible(`main dl`, chromedp.ByQuery))
	s.eventually(t, 34, `SELECT count(*) FROM outbox_parked WHERE state = 'retrying'`)

	b.open("/endpoints/" + failing.ID)
	b.do(chromedp.SendKeys(`#reason`, "they move", chromedp.ByQuery), chromedp.Click(`//button[text()="Disable …"]`), chromedp.WaitVisible(`//button[text()="Disable"]`))
	b.shoot("endpoint-disable")
	b.do(chromedp.Click(`//button[text()="Disable"]`), chromedp.WaitVisible(`//button[text()="Enable …"]`))
	b.sees("disabled by a person: they move")
	b.shoot("endpoint-disabled")
	b.do(chromedp.Click(`//button[text()="Enable …"]`), chromedp.WaitVisible(`//button[text()="Enable"]`), chromedp.Click(`//button[text()="Enable"]`), chromedp.WaitVisible(`//button[text()="Disable …"]`))
	now, err := all.Find(t.Context(), failing.ID)
	require.NoError(t, err)
	require.True(t, now.Enabled())
	require.True(t, now.FailingSince.IsZero())
	seen := newTab(t, s.viewer).open("/endpoints/" + failing.ID) // last, since a tab in the background has no pictures
	require.Contains(t, seen, "https://hooks.acme.example/***")
	require.NotContains(t, seen, "Disable")
}
