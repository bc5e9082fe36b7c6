package program

import (
	"bytes"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
)

// mailFiles has the templates of the preview's tests, by path.
var mailFiles = map[string]string{
	"layout.html.tmpl":                `<img src="cid:logo.png">{{template "content" .}}`,
	"default/logo.png":                "PNG",
	"default/list-unsubscribe.tmpl":   "https://example.com/u",
	"order.placed/to.tmpl":            `{{with index .Payload "email"}}{{.}}{{end}}`,
	"order.placed/bcc.tmpl":           "books@example.com",
	"order.placed/subject.tmpl":       "Order {{.Payload.order}} — {{.Key}}",
	"order.placed/text.tmpl":          "Thank you for {{.Payload.order}}, {{.Metadata.tenant}}.\n",
	"order.placed/html.tmpl":          "<p>Thank you for <b>{{.Payload.order}}</b>.</p>",
	"order.placed/text.de.tmpl":       "Danke für {{.Payload.order}}.\n",
	"order.placed/html.de.tmpl":       "<p>Danke für <b>{{.Payload.order}}</b>.</p>",
	"order.placed/attachments.tmpl":   "terms.txt",
	"order.placed/terms.txt":          "terms",
	"order.short/to.tmpl":             "{{.Payload.email}}",
	"order.short/subject.tmpl":        "{{.Payload.order}}",
	"order.short/text.tmpl":           "{{len .Payload}}",
	"customer.moved/to.tmpl":          "a@example.com",
	"customer.moved/subject.tmpl":     "s",
	"customer.moved/html.tmpl":        `<img src="cid:{{.Payload.image}}.png">`,
	"customer.moved/reply-to.tmpl":    "{{.Payload.reply}}",
	"customer.moved/attachments.tmpl": "",
}

// previewed writes a configuration, whose secrets are missing, and a payload.
func previewed(t *testing.T, payload string) (config, data string) {
	t.Helper()
	folder := t.TempDir()
	for name, text := range mailFiles {
		path := filepath.Join(folder, "mail", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	config = writeFile(t, `
database: "${DATABASE}"
sinks:
  mail:
    kind: email
    with:
      smtp: "smtps://shop:${PASSWORD}@smtp.example.com"
      from: "Shop <shop@example.com>"
      locale: en
      templates: `+filepath.Join(folder, "mail")+`
  events: {kind: kafka}
routes:
  order.placed:
    - {sink: mail, when: "payload.order != 0"}
    - {sink: events}
  order.short:
    - {sink: mail, payload: {order: payload.long.order, email: "'ada@example.com'"}}
`)
	data = filepath.Join(folder, "payload.json")
	require.NoError(t, os.WriteFile(data, []byte(payload), 0o600))
	return config, data
}

const order = `{"order": 17, "email": "ada@example.com"}`

func TestMailPreviewShowsHeaderTextAndFiles(t *testing.T) {
	t.Parallel()
	config, data := previewed(t, order)
	r := waybill(t, "mail", "preview", "order.placed", "-c", config, "--data", data, "--id", "preview", "--key", "k-1", "--metadata", "tenant=acme")
	require.Zero(t, r.code, r.stderr)
	require.Empty(t, r.stderr)
	for _, want := range []string{
		"From: \"Shop\" <shop@example.com>\n", "To: <ada@example.com>\n", "Subject: Order 17 — k-1\n", "Message-Id: <preview.mail@example.com>\n",
		"List-Unsubscribe: <https://example.com/u>\n", "\n\nThank you for 17, acme.\n\n",
		" image logo.png        image/png       3\n", " attachment terms.txt  text/plain      5\n", "\nto ada@example.com, books@example.com, in en\n",
	} {
		require.Contains(t, r.stdout, want)
	}
}

func TestMailPreviewEqualsTheSentMail(t *testing.T) {
	t.Parallel()
	config, data := previewed(t, order)
	r := waybill(t, "mail", "preview", "order.placed", "-c", config, "--data", data, "--metadata", "tenant=acme", "--id", "42", "--eml")
	require.Zero(t, r.code, r.stderr)
	shown, err := mail.ReadMessage(strings.NewReader(r.stdout))
	require.NoError(t, err)
	when, err := shown.Header.Date()
	require.NoError(t, err)

	server, err := smtptest.Start(smtptest.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	sink, err := email.New(sinks.Instance{Name: "mail"}, email.Config{
		SMTP: server.URL(), From: "Shop <shop@example.com>", Locale: "en", Templates: filepath.Join(filepath.Dir(data), "mail"),
	})
	require.NoError(t, err)
	_, err = sink.Deliver(t.Context(), &notification.Delivery{Envelope: &notification.Envelope{
		ID: "42", Type: "order.placed", Version: 1, OccurredOn: when, Payload: []byte(order), Metadata: notification.Metadata{"tenant": "acme"},
	}})
	require.NoError(t, err)
	require.NoError(t, sink.Close(t.Context()))
	require.Equal(t, string(server.Messages()[0].Raw), r.stdout)
}

func TestMailPreviewWritesEachFormat(t *testing.T) {
	t.Parallel()
	config, data := previewed(t, order)
	html := `<img src="data:image/png;base64,UE5H"><p>Danke für <b>17</b>.</p>`
	for flag, want := range map[string]string{"--html": html, "--text": "Danke für 17.\n"} {
		r := waybill(t, "mail", "preview", "order.placed", "-c", config, "--data", data, "--locale", "de", flag)
		require.Equal(t, result{stdout: want}, r)
	}
}

func TestMailPreviewAsJSON(t *testing.T) {
	t.Parallel()
	config, data := previewed(t, `{"image": "gone", "reply": "b@example.com"}`)
	r := waybill(t, "mail", "preview", "customer.moved", "-c", config, "--data", data, "--json")
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, `"html": "\u003cimg src=\"data:image/png;base64,UE5H\"\u003e`)
	for _, want := range []string{`"type": "customer.moved"`, `"sink": "mail"`, `"recipients": [`, `"name": "Reply-To"`, `"inline": true`, `"media_type": "image/png"`,
		`"the html shows cid:gone.png, but there is no file customer.moved/gone.png or default/gone.png"`} {
		require.Contains(t, r.stdout, want)
	}
}

func TestMailPreviewFollowsTheRoutes(t *testing.T) {
	t.Parallel()
	config, data := previewed(t, `{"order": 0, "email": "ada@example.com", "long": {"order": 18}}`)
	r := waybill(t, "mail", "preview", "order.placed", "-c", config, "--data", data, "--locale", "de", "--text")
	require.Equal(t, result{stdout: "Danke für 0.\n", stderr: "waybill: warning: no condition of the routes to mail holds, so this notification would not go there\n"}, r)

	r = waybill(t, "mail", "preview", "order.short", "-c", config, "--data", data)
	require.Zero(t, r.code, r.stderr)
	require.Empty(t, r.stderr)
	require.Contains(t, r.stdout, "Subject: 18\n")
	require.Contains(t, r.stdout, "To: <ada@example.com>\n")
}

func TestMailPreviewReadsTheStandardInput(t *testing.T) {
	t.Parallel()
	config, _ := previewed(t, order)
	var out, errs bytes.Buffer
	root := newRoot(&command.Invocation{Stdout: &out, Raw: &out, Stderr: &errs})
	root.SetIn(strings.NewReader(order))
	root.SetArgs([]string{"mail", "preview", "order.placed", "-c", config, "--data", "-", "--locale", "de", "--text"})
	require.NoError(t, root.ExecuteContext(t.Context()))
	require.Equal(t, "Danke für 17.\n", out.String())
}

func TestMailPreviewTakesTheVersionOfThePayload(t *testing.T) {
	t.Parallel()
	config, data := previewed(t, order)
	newer := filepath.Join(filepath.Dir(data), "mail", "order.placed", "subject.v2.tmpl")
	require.NoError(t, os.WriteFile(newer, []byte("Version {{.Version}}"), 0o600))
	r := waybill(t, "mail", "preview", "order.placed", "-c", config, "--data", data, "--metadata", "tenant=acme")
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "Subject: Version 2\n", "the newest one, unless a flag says otherwise")
	r = waybill(t, "mail", "preview", "order.placed", "-c", config, "--data", data, "--metadata", "tenant=acme", "--data-version", "1")
	require.Contains(t, r.stdout, "Subject: Order 17")
	r = waybill(t, "mail", "preview", "order.placed", "-c", config, "--data", data, "--metadata", "tenant=acme", "--data-version", "3")
	require.NotZero(t, r.code)
	require.Contains(t, r.stderr, "read versions up to 2, not 3")
}

func TestMailPreviewWarnsOfMissingParts(t *testing.T) {
	t.Parallel()
	config, data := previewed(t, `{"order": 17}`)
	r := waybill(t, "mail", "preview", "order.placed", "-c", config, "--data", data, "--locale", "de", "--text")
	require.Equal(t, result{stdout: "Danke für 17.\n", stderr: "waybill: warning: the result of order.placed/to.tmpl has no recipient, so the mail would not be sent\n"}, r)

	config, data = previewed(t, `{"image": "gone", "reply": "b@example.com"}`)
	r = waybill(t, "mail", "preview", "customer.moved", "-c", config, "--data", data, "--html")
	require.Zero(t, r.code)
	require.Contains(t, r.stderr, "warning: no route leads customer.moved to mail")
	require.Contains(t, r.stderr, "warning: the html shows cid:gone.png, but there is no file")
	require.Contains(t, r.stderr, "warning: there is no text version")
}

func TestMailPreviewReportsMistakes(t *testing.T) {
	t.Parallel()
	config, data := previewed(t, `{}`)
	several := writeFile(t, "sinks: {a: {kind: email}, b: {kind: email}, c: {kind: kafka}}\nroutes: {x: [a, b], y: [c]}\n")
	none := writeFile(t, "sinks: {c: {kind: kafka}}\nroutes: {y: [c]}\n")
	broken := writeFile(t, "sinks:\n  mail:\n    kind: email\n    with:\n      templates: nowhere\nroutes: {y: [mail]}\n")
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"unknown type":         {[]string{"order.plced", "-c", config, "--data", data}, exitFailed, "order.plced/to.tmpl, order.plced/subject.tmpl, order.plced/text.tmpl or html.tmpl is missing in"},
		"types with templates": {[]string{"order.plced", "-c", config, "--data", data}, exitFailed, "there are templates for customer.moved, order.placed, order.short\n"},
		"template's error":     {[]string{"order.placed", "-c", config, "--data", data}, exitFailed, `order.placed/subject.tmpl:1:16: executing`},
		"no payload":           {[]string{"order.placed", "-c", config}, exitUsage, "name a file with the payload: --data order.json"},
		"no such payload":      {[]string{"order.placed", "-c", config, "--data", "nowhere.json"}, exitFailed, "--data: open nowhere.json"},
		"not JSON":             {[]string{"order.placed", "-c", config, "--data", config}, exitFailed, "is not JSON"},
		"no type":              {[]string{"-c", config, "--data", data}, exitUsage, "name a notification type"},
		"two types":            {[]string{"a", "b", "-c", config, "--data", data}, exitUsage, `unexpected argument "b"`},
		"unknown sink":         {[]string{"order.placed", "-c", config, "--data", data, "--sink", "events"}, exitUsage, "--sink: there is no email sink events; there are mail"},
		"several sinks":        {[]string{"x", "-c", several, "--data", data}, exitUsage, "x is routed to several email sinks; choose one with --sink: a, b"},
		"no route":             {[]string{"y", "-c", several, "--data", data}, exitUsage, "y is routed to no email sink; choose one with --sink: a, b"},
		"no email sink":        {[]string{"y", "-c", none, "--data", data}, exitUsage, "has no sink of kind email"},
		"wrong locale":         {[]string{"order.placed", "-c", config, "--data", data, "--locale", "no such"}, exitFailed, `use a language tag like de or pt-BR: "no such"`},
		"two formats":          {[]string{"order.placed", "-c", config, "--data", data, "--html", "--eml"}, exitUsage, "--html and --eml contradict each other: leave one of them out"},
		"mistakes in file":     {[]string{"y", "-c", broken, "--data", data}, exitUsage, broken + ":4: sinks.mail.with.from: is missing"},
		"templates in file":    {[]string{"y", "-c", broken, "--data", data}, exitUsage, broken + ":5: sinks.mail.with.templates: nowhere: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := waybill(t, append([]string{"mail", "preview"}, c.args...)...)
			require.Contains(t, r.stderr, c.says)
			require.Equal(t, c.code, r.code, r.stderr)
			require.Empty(t, r.stdout)
		})
	}
}

func TestThePreviewOfASinkThatCollectsIsACollection(t *testing.T) {
	t.Parallel()
	file, data := previewed(t, `{"order": 17}`)
	folder := filepath.Join(filepath.Dir(data), "mail", "cart.changed")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	for name, text := range map[string]string{
		"to.tmpl": "a@example.com", "subject.tmpl": "{{.Count}} of {{.Group}}", "text.tmpl": "{{range .Items}}{{.Payload.order}}{{end}}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(text), "    kind: email\n", "    kind: email\n    collect: {by: metadata.cart, wait: 1m}\n", 1)), 0o600))

	r := waybill(t, "mail", "preview", "-c", file, "cart.changed", "--sink", "mail", "--data", data, "--metadata", "cart=c-1")
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "\nSubject: 1 of c-1\n")
	require.Contains(t, r.stdout, "\n17\n")

	r = waybill(t, "mail", "preview", "-c", file, "cart.changed", "--sink", "mail", "--data", data)
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stderr, "it is not collected but sent alone, since it has no group")
	require.Contains(t, r.stdout, "\nSubject: 1 of\n")

	r = waybill(t, "mail", "preview", "-c", file, "order.placed", "--data", data, "--metadata", "cart=c-1,tenant=acme")
	require.Equal(t, 1, r.code, "its templates are for single notifications")
	require.Contains(t, r.stderr, "Payload")
}
