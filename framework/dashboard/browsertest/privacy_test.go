package browsertest

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/dashboard"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/registry"
)

func TestAPersonIsErasedWithTwoForms(t *testing.T) {
	t.Parallel()
	master, err := privacy.LocalKeys(base64.StdEncoding.EncodeToString([]byte(strings.Repeat("a", 32))))
	require.NoError(t, err)
	c := privacy.Config{Master: master}
	s := newSite(t, func(_ *site, target *dashboard.Target) { target.Privacy = c })
	keys, err := privacy.New(s.store, c)
	require.NoError(t, err)
	require.NoError(t, keys.Prepare(t.Context()))
	at, err := registry.ParsePointer("/email")
	require.NoError(t, err)
	var all []privacy.Sealing
	for range 12 {
		e := &notification.Envelope{ID: notification.NewID(), Type: "customer.moved", Version: 1, Payload: []byte(`{"email": "ada@example.org"}`), Metadata: notification.Metadata{}}
		all = append(all, privacy.Sealing{Envelope: e, Values: []registry.PrivateValues{{Subject: "customer-42", At: []registry.Pointer{at}}}})
	}
	require.NoError(t, keys.Seal(t.Context(), nil, all))
	for i, sealed := range all {
		e := sealed.Envelope
		metadata, err := json.Marshal(e.Metadata)
		require.NoError(t, err)
		s.exec(t, `INSERT INTO outbox (id, type, key, payload, metadata, occurred_on) VALUES ($1, $2, '', $3, $4, now() - $5 * interval '1 hour')`, e.ID, e.Type, e.Payload, string(metadata), i)
	}

	b := newTab(t, s.url)
	b.open("/")
	b.do(chromedp.Click(`nav a[href="/privacy"]`, chromedp.ByQuery), chromedp.WaitVisible(`input[name=subject]`, chromedp.ByQuery))
	b.shoot("privacy")
	b.do(chromedp.SendKeys(`input[name=subject]`, "customer-42", chromedp.ByQuery), chromedp.Click(`main button.primary`, chromedp.ByQuery), chromedp.WaitVisible(`button.danger`, chromedp.ByQuery))
	b.sees("What the outbox has of customer-42", "log", "12")
	b.shoot("privacy-found")
	var address string
	b.do(chromedp.Click(`button.danger`, chromedp.ByQuery), chromedp.WaitVisible(`main dd.mono`, chromedp.ByQuery), chromedp.Location(&address))
	require.Contains(t, address, "/actions/")
	s.eventually(t, 1, `SELECT count(*) FROM outbox_actions WHERE ended_at IS NOT NULL AND filter = '{"keys":1}'`)
	s.eventually(t, 1, `SELECT count(*) FROM outbox_keys WHERE wrapped = ''`)
	b.open(strings.TrimPrefix(address, s.url))
	b.sees("erase", "keys 1", "done")
	b.shoot("privacy-action")

	without := newTab(t, s.serve(t, dashboard.Operator, dashboard.Target{}))
	require.Contains(t, without.open("/privacy"), "privacy.keys or privacy.master is not configured")
	without.shoot("privacy-missing")
	viewer := newTab(t, s.viewer)
	viewer.open("/")
	var links string
	viewer.do(chromedp.Text("nav", &links, chromedp.ByQuery))
	require.NotContains(t, links, "Privacy")
	require.NotContains(t, s.log.String(), "customer-42")
}
