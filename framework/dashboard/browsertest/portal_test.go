package browsertest

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/framework/webhooks/portal"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

// customers is a portal for the customer acme, on SQLite.
type customers struct {
	url       string
	store     *sqlite.Store
	endpoints *webhooks.Endpoints
}

const orderSchema = `{"type": "object", "required": ["order", "total"], "properties": {"order": {"type": "string"}, "total": {"type": "number"}, "currency": {"type": "string"}}}`

func newCustomers(t *testing.T) *customers {
	t.Helper()
	_, outbox := outboxtest.SQLite(t, outboxtest.File(t), sqlite.Config{})
	_, err := outbox.Cut(t.Context(), "customers", 1, store.StartOldest)
	require.NoError(t, err)
	types := registry.New()
	require.NoError(t, registry.Register[struct{ A int }](types, "order.placed"))
	require.NoError(t, registry.Register[struct{ B int }](types, "order.shipped"))
	require.NoError(t, registry.Register[struct{ C int }](types, "invoice.paid"))
	e, err := webhooks.NewEndpoints(outbox, sinks.Instance{Name: "customers", Types: types}, webhooks.Config{ClientConfig: httpsink.ClientConfig{AllowHTTP: true, Guard: httpsink.Guard{Mode: httpsink.GuardOff}}})
	require.NoError(t, err)
	handler, err := portal.New(e, portal.Config{
		Prefix: "/account/webhooks", Name: "Shop webhooks", Authorize: func(*http.Request) (string, error) { return "acme", nil },
		Describe: func(typ string) (string, []byte, []byte) {
			switch typ {
			case "order.placed":
				return "A customer has ordered and paid.", []byte(orderSchema), []byte(`{"order": "order-1042", "total": 129.9, "currency": "EUR"}`)
			case "order.shipped":
				return "A parcel has left the warehouse.", nil, []byte(`{"order": "order-1042", "parcel": "p-7"}`)
			}
			return "", nil, nil
		},
	})
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return &customers{server.URL + "/account/webhooks", outbox, e}
}

func (c *customers) create(t *testing.T, like webhooks.Settings) webhooks.Endpoint {
	t.Helper()
	made, _, err := c.endpoints.Create(t.Context(), webhooks.NewEndpoint{Tenant: "acme", Settings: like})
	require.NoError(t, err)
	made, err = c.endpoints.Get(t.Context(), "acme", made.ID) // with the database's times
	require.NoError(t, err)
	return made
}

// day adds the attempts of a day, some of which have failed, and returns the last one.
func (c *customers) day(t *testing.T, of webhooks.Endpoint) store.Attempt {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	var all []store.Attempt
	for minutes := 24 * 60; minutes > 0; minutes -= 1 + random.IntN(6) {
		at := time.Now().Add(-time.Duration(minutes) * time.Minute).UTC().Truncate(time.Microsecond)
		n := len(all)
		a := store.Attempt{
			ID: fmt.Sprintf("%013x-0000", n), Endpoint: of.ID, EndpointCreatedAt: of.CreatedAt, Tenant: of.Tenant, Delivery: fmt.Sprintf("0199a7c2-5b1e-7000-8000-%012x_%s", n, of.ID), Notification: fmt.Sprint(n), Offset: int64(n + 1),
			Type: []string{"order.placed", "order.shipped", "invoice.paid"}[random.IntN(3)], Number: 1, At: at, Duration: time.Duration(20+random.IntN(300)) * time.Millisecond, Status: 200, Until: time.Now().Add(72 * time.Hour).UTC().Truncate(time.Microsecond),
			Request: store.Exchange{
				Header: map[string][]string{"Content-Type": {"application/json"}, "User-Agent": {"waybill/devel"}, "Webhook-Id": {fmt.Sprint(n)}, "Webhook-Timestamp": {fmt.Sprint(at.Unix())}, "Webhook-Signature": {"v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4="}, "Authorization": {"***"}},
				Body:   fmt.Sprintf(`{"type":"order.placed","timestamp":"%s","data":{"order":"order-%d","total":129.9,"currency":"EUR","items":[{"sku":"a-7","count":2},{"sku":"b-1","count":1}]}}`, at.Format(time.RFC3339), n),
			},
			Answer: store.Exchange{Header: map[string][]string{"Content-Type": {"application/json"}, "Server": {"nginx"}}, Body: `{"received":true}`},
		}
		if minutes < 200 && minutes > 80 && random.IntN(3) > 0 || random.IntN(25) == 0 {
			a.Status, a.Error, a.Number = 503, "transient: https://hooks.acme.example: 503 Service Unavailable", 1+random.IntN(4)
			a.Answer = store.Exchange{Header: map[string][]string{"Content-Type": {"text/html"}, "Retry-After": {"120"}}, Body: "<html>\n<head><title>503 Service Temporarily Unavailable</title></head>\n<body><h1>503 Service Temporarily Unavailable</h1></body>\n</html>"}
		}
		all = append(all, a)
	}
	require.NoError(t, c.store.AddAttempts(t.Context(), nil, all))
	for i := len(all) - 1; ; i-- {
		if all[i].Error != "" {
			return all[i]
		}
	}
}

// shots saves pictures of a page at two widths, light and dark, if WAYBILL_SCREENSHOTS is set, and fails if the
// page is wider than a phone.
func (b *tab) shots(name string) {
	b.t.Helper()
	for _, width := range []int64{375, 1280} {
		b.do(chromedp.EmulateViewport(width, 800))
		var wide int64
		b.do(chromedp.Evaluate(`document.documentElement.scrollWidth`, &wide))
		require.LessOrEqual(b.t, wide, width, name)
		folder := os.Getenv("WAYBILL_SCREENSHOTS")
		if folder == "" {
			continue
		}
		for _, scheme := range []string{"light", "dark"} {
			var picture []byte
			b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}), chromedp.FullScreenshot(&picture, 100))
			require.NoError(b.t, os.MkdirAll(folder, 0o755))
			require.NoError(b.t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("portal-%s-%d-%s.png", name, width, scheme)), picture, 0o644))
		}
	}
}

// outline finds what screen readers miss on a page.
//
//go:embed outline.js
var outline string

func (b *tab) accessible() {
	b.t.Helper()
	var wrong string
	b.do(chromedp.Evaluate(outline, &wrong))
	require.Empty(b.t, wrong)
}

// submit clicks a button and waits for a text of the next page.
func (b *tab) submit(button, text string) {
	b.t.Helper()
	b.do(chromedp.Click(button), chromedp.WaitVisible(`//main//*[contains(text(), "`+text+`")]`))
}

func TestAPortalShowsEachPageInEachWidth(t *testing.T) {
	t.Parallel()
	c := newCustomers(t)
	b := newTab(t, c.url)
	look := func(path, name string) {
		t.Helper()
		b.open(path)
		b.accessible()
		b.shots(name)
	}
	look("/", "list-empty")
	look("/new", "new")
	hooks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"received": true, "note": "thank you"}`)
	}))
	t.Cleanup(hooks.Close)
	busy := c.create(t, webhooks.Settings{URL: "https://hooks.acme.example/orders", Description: "Orders for our warehouse", Types: []string{"order.*"}, When: `payload.total > 100 && payload.currency == "EUR"`, Headers: map[string]string{"Authorization": "Bearer x"}})
	c.create(t, webhooks.Settings{URL: hooks.URL + "/test", Description: "A test", Types: []string{"invoice.paid"}})
	long := c.create(t, webhooks.Settings{URL: "https://" + strings.Repeat("a-very-long-name.", 10) + "example/" + strings.Repeat("x", 300) + "?<script>alert(1)</script>", Description: "\u202e" + strings.Repeat("verylong", 50) + "<b>", Types: []string{"order.placed", "order.shipped", "invoice.*"}})
	failed := c.day(t, busy)
	off, err := c.endpoints.Disable(t.Context(), "acme", long.ID, "it has failed for 120h without a success")
	require.NoError(t, err)
	look("/", "list")
	look("/endpoints/"+busy.ID, "endpoint")
	look("/endpoints/"+busy.ID+"?outcome=failed", "endpoint-failed")
	look("/endpoints/"+off.ID, "endpoint-disabled")
	look("/endpoints/"+busy.ID+"/edit", "edit")
	look("/endpoints/"+long.ID+"/edit", "edit-long")
	look("/endpoints/"+busy.ID+"/delete", "delete")
	look("/attempts/"+failed.ID, "attempt")
	b.open("/endpoints/" + busy.ID)
	b.submit(`//button[text()="Show the secret"]`, "How to verify requests")
	b.accessible()
	b.shots("secret")
	b.open("/endpoints/" + busy.ID)
	b.submit(`//button[text()="Deliver again"]`, "No delivery has failed")
	b.shots("recovered")
	b.expected = "503"
	b.open("/")
	b.do(chromedp.Click(`//a[contains(text(), "`+hooks.URL+`")]`), chromedp.WaitVisible(`//button[text()="Send a test"]`))
	b.submit(`//button[text()="Send a test"]`, "succeeded")
	b.accessible()
	b.shots("test")
}

func TestAPortalNamesMistakesBesideTheFields(t *testing.T) {
	t.Parallel()
	c := newCustomers(t)
	b := newTab(t, c.url)
	b.expected = "422"
	b.open("/new")
	b.do(chromedp.SendKeys("#url", "https://user:pass@hooks.acme.example/"), chromedp.SendKeys("#when", "payload.total >"), chromedp.SendKeys("#headers", "Host: x"))
	b.submit(`//button[text()="Add"]`, "This cannot be saved")
	b.accessible()
	b.shots("mistakes")
}

func TestAPortalWorksWithoutScriptsAndWithTheKeyboard(t *testing.T) {
	t.Parallel()
	c := newCustomers(t)
	b := newTab(t, c.url)
	b.do(emulation.SetScriptExecutionDisabled(true), chromedp.Navigate(b.base+"/"))
	b.focus(`a.button`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.focus(`#url`)
	b.do(chromedp.KeyEvent("https://hooks.acme.example/orders"), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent("Orders"), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(" "))
	b.focus(`#rate`)
	b.do(chromedp.KeyEvent("5/s"), chromedp.KeyEvent(kb.Enter))
	b.has("whsec_", "The endpoint was added.")
	all, err := c.endpoints.List(t.Context(), webhooks.Query{Tenant: "acme"})
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "Orders", all[0].Description)
	require.Equal(t, []string{"invoice.paid"}, all[0].Types)
	require.Equal(t, "5/s", all[0].Rate.String())
	b.do(chromedp.Navigate(b.base + "/endpoints/" + all[0].ID))
	b.focus(`a[href$="/disable"]`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.focus(`button.danger`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.has(store.DisabledByPerson)
}
