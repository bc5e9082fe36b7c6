package browsertest

import (
	"bytes"
	"cmp"
	"context"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/dashboard"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/registry"
)

// pictureBytes limits the size of a picture of the documentation.
const pictureBytes = 150 << 10

const shopConfiguration = `database: postgres://shop:***@db.internal/shop
sinks:
  billing: {kind: http, with: {url: https://billing.internal/hooks}}
  mail: {kind: email, with: {server: mail.internal:587, password: '***'}}
  partner: {kind: http, with: {url: https://partner.example/orders}}
  stock: {kind: kafka, with: {brokers: [kafka-1:9092], topic: stock}}
routes:
  "*": [billing, mail, partner, stock]
schedules:
  daily-report: {type: report.due, spec: 0 9 * * MON-FRI Europe/Berlin}
observe: {address: "127.0.0.1:8090"}
`

// TestPicturesOfTheDocumentation saves pictures of each page, light and dark, in the folder
// WAYBILL_PICTURES. `make screenshots` runs it.
func TestPicturesOfTheDocumentation(t *testing.T) {
	folder := os.Getenv("WAYBILL_PICTURES")
	if folder == "" {
		t.Skip("WAYBILL_PICTURES names no folder")
	}
	types := registry.New()
	require.NoError(t, registry.Register[struct{ Total int }](types, "order.placed"))
	require.NoError(t, registry.Register[struct{ Parcel string }](types, "order.shipped"))
	s := newSite(t, withShop(t), func(s *site, target *dashboard.Target) {
		target.Types = types
		target.Configuration = func() ([]byte, error) { return []byte(shopConfiguration), nil }
		target.Doctor = func(ctx context.Context, only ...string) []doctor.Finding {
			return doctor.Run(ctx, doctor.Subject{DB: s.db, PostgreSQL: &postgres.Config{Receipts: true}}, doctor.Options{Only: only})
		}
	})
	s.exec(t, `INSERT INTO outbox_schedules (name, id, spec, missed, last_tick, next_tick, paused) VALUES
		('daily-report', 'a', '0 9 * * MON-FRI Europe/Berlin', 'one', now() - interval '3 hours', now() + interval '21 hours', false),
		('hourly-sync', 'b', 'every 1h', 'all', now() - interval '20 minutes', now() + interval '40 minutes', false),
		('newsletter', 'c', '@weekly UTC', 'skip', NULL, now() + interval '4 days', true)`)
	b := newTab(t, s.url)
	b.open("/")
	b.sees("mail", "0/s")
	s.shop(t, "order.placed", 1000, 400)
	s.shop(t, "order.shipped", 1000, 250)
	s.shop(t, "order.wrong", 1396, 4)
	s.eventually(t, 8, `SELECT count(*) FROM outbox_parked`)
	s.eventually(t, 654, `SELECT count(*) FROM outbox_receipts WHERE sink = 'mail'`)
	b.open("/")
	b.sees("654", "4 dead", "4 retrying", "/s")
	keep := func(name string) { b.picture(filepath.Join(folder, name)) }
	keep("overview")
	b.open("/sinks/partner")
	keep("sink")
	b.open("/parked")
	keep("parked")
	b.do(chromedp.Click(`.acts button[name=all][value=requeue]`), chromedp.WaitVisible(`form[action="/parked/act"]`))
	keep("plan")
	b.do(chromedp.Click(`form[action="/parked/act"] button`), chromedp.WaitVisible(`main dl`))
	s.eventually(t, 1, `SELECT count(*) FROM outbox_actions WHERE ended_at IS NOT NULL`)
	s.eventually(t, 4, `SELECT count(*) FROM outbox_parked WHERE state = 'dead'`)
	b.open("/sinks/mail")
	b.do(chromedp.SendKeys(`#reason`, "OPS-1042: the mail server moves", chromedp.ByQuery), chromedp.Click(`//button[text()="Pause …"]`), chromedp.WaitVisible(`//button[text()="Pause"]`),
		chromedp.Click(`//button[text()="Pause"]`), chromedp.WaitVisible(`//button[text()="Resume …"]`))
	b.open("/actions")
	keep("actions")
	var id string
	require.NoError(t, s.db.QueryRowContext(t.Context(), `SELECT id FROM outbox_parked WHERE state = 'dead' LIMIT 1`).Scan(&id))
	b.open("/notifications/" + id)
	b.do(chromedp.Click(`form[action^="/notifications/"] button`), chromedp.WaitVisible(`pre.payload`))
	keep("notification")
	b.open("/doctor")
	b.do(chromedp.Click("main button.primary", chromedp.ByQuery), chromedp.WaitVisible(".statuses", chromedp.ByQuery))
	b.sees("Run them again")
	for _, page := range []string{"log", "schedules", "forwarders", "types", "config", "doctor"} {
		b.open("/" + page)
		keep(page)
	}

	c := newCustomers(t)
	hooks := c.create(t, webhooks.Settings{URL: "https://hooks.acme.example/orders", Description: "Orders for our warehouse", Types: []string{"order.*"}, When: `payload.total > 100`})
	c.day(t, hooks)
	b = newTab(t, c.url)
	b.open("/endpoints/" + hooks.ID)
	keep("portal")
}

// shop publishes orders of a type, from a number on.
func (s *site) shop(t *testing.T, typ string, from, n int) {
	t.Helper()
	s.exec(t, `INSERT INTO outbox (type, key, payload) SELECT $1::text, 'order-' || i, json_build_object('order', 'order-' || i, 'total', i * 7 % 190 + 9.9, 'currency', 'EUR')
		FROM generate_series($2::int, $2::int + $3::int - 1) i`, typ, from, n)
}

// picture saves a window in light and dark.
func (b *tab) picture(file string) {
	b.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		var shot []byte
		b.do(
			emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
			chromedp.EmulateViewport(1280, 800), chromedp.CaptureScreenshot(&shot),
		)
		full, err := png.Decode(bytes.NewReader(shot))
		require.NoError(b.t, err)
		var small bytes.Buffer
		require.NoError(b.t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, paletted(full)))
		require.Less(b.t, small.Len(), pictureBytes, file)
		require.NoError(b.t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(b.t, os.WriteFile(file+"-"+scheme+".png", small.Bytes(), 0o644))
	}
}

// paletted returns a picture with its 256 most frequent colours.
func paletted(full image.Image) *image.Paletted {
	counts := make(map[color.Color]int)
	bounds := full.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[full.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return cmp.Compare(counts[b], counts[a]) })
	small := image.NewPaletted(bounds, colours[:min(len(colours), 256)])
	nearest := make(map[color.Color]uint8)
	for _, c := range colours {
		nearest[c] = uint8(small.Palette.Index(c)) //nolint:gosec // there are 256 at most
	}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			small.SetColorIndex(x, y, nearest[full.At(x, y)])
		}
	}
	return small
}
