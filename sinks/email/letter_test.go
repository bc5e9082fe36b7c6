package email_test

import (
	"maps"
	"mime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/mailserver"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// minimal returns the files that a type needs at least, and those in more.
func minimal(more map[string]string) fstest.MapFS {
	all := map[string]string{
		"customer.signed-up/to.tmpl": "a@example.org", "customer.signed-up/subject.tmpl": "s", "customer.signed-up/text.tmpl": "t",
	}
	maps.Copy(all, more)
	return files(all)
}

// sent returns the mail of a delivery.
func sent(t *testing.T, c email.Config, payload string) smtptest.Message {
	t.Helper()
	server := startServer(t, smtptest.Config{})
	c.SMTP = server.URL()
	_, err := newSink(t, c).Deliver(within(t), delivery(payload))
	require.NoError(t, err)
	require.Len(t, server.Messages(), 1)
	return server.Messages()[0]
}

// refused returns the error of a delivery that fails.
func refused(t *testing.T, c email.Config, payload string) error {
	t.Helper()
	c.SMTP = "smtp://127.0.0.1:1"
	_, err := newSink(t, c).Deliver(within(t), delivery(payload))
	require.Equal(t, sinks.ClassInvalid, sinktest.Class(err), "%v", err)
	return err
}

func text(t *testing.T, m smtptest.Message) string {
	t.Helper()
	got, err := m.Text()
	require.NoError(t, err)
	return strings.TrimSpace(got)
}

func TestTheLocaleOfThePayloadChoosesTheTemplates(t *testing.T) {
	templates := minimal(map[string]string{
		"default/locale.tmpl":                "{{with index .Payload \"locale\"}}{{.}}{{end}}",
		"layout.text.tmpl":                   "Hi [{{.Locale}}]: {{template \"content\" .}}",
		"layout.text.de.tmpl":                "Hallo [{{.Locale}}]: {{template \"content\" .}}",
		"customer.signed-up/subject.tmpl":    "Welcome",
		"customer.signed-up/subject.de.tmpl": "Willkommen",
		"customer.signed-up/text.tmpl":       "in English",
		"customer.signed-up/text.de.tmpl":    "auf Deutsch",
		"customer.signed-up/text.de-AT.tmpl": "auf Österreichisch",
		"customer.signed-up/text.fr.tmpl":    "en français",
		"customer.signed-up/html.tmpl":       "<p>in English",
		"customer.signed-up/html.de.tmpl":    "<p>auf Deutsch",
		"customer.signed-up/html.de-AT.tmpl": "<p>auf Österreichisch",
		"customer.signed-up/html.fr.tmpl":    "<p>en français",
	})
	for locale, want := range map[string]string{
		"":                        "Welcome/Hi [en]: in English",
		"en-GB":                   "Welcome/Hi [en]: in English",
		"de":                      "Willkommen/Hallo [de]: auf Deutsch",
		"de_CH":                   "Willkommen/Hallo [de]: auf Deutsch",
		"DE-at":                   "Willkommen/Hallo [de-AT]: auf Österreichisch",
		"fr-CA":                   "Welcome/Hi [fr]: en français",
		"sv":                      "Welcome/Hi [en]: in English",
		"sv, fr;q=0.5, de;q=0.8":  "Willkommen/Hallo [de]: auf Deutsch",
		"en-US,en;q=0.9,de;q=0.8": "Welcome/Hi [en]: in English",
	} {
		m := sent(t, email.Config{FS: templates, Locale: "en"}, `{"locale": "`+locale+`"}`)
		assert.Equal(t, want, m.Subject()+"/"+text(t, m), locale)
		html, err := m.HTML()
		require.NoError(t, err)
		_, content, _ := strings.Cut(want, ": ")
		assert.Equal(t, "<p>"+content, strings.TrimSpace(html), locale)
	}
	err := refused(t, email.Config{FS: templates}, `{"locale": "no locale at all"}`)
	require.ErrorIs(t, err, email.ErrLocale)
	assert.ErrorContains(t, err, `customer.signed-up/locale.tmpl: no valid locale: use a language tag like de or pt-BR: "no locale at all"`)
	assert.NotContains(t, sinks.Brief(err), "at all", "a value of the payload may be private")
}

func TestASubjectArrivesUnchanged(t *testing.T) {
	templates := minimal(map[string]string{"customer.signed-up/subject.tmpl": "{{.Payload.subject}}"})
	for _, subject := range []string{
		"plain", "Grüße", strings.Repeat("ü ", 200) + "end", "=?utf-8?q?=0D=0ABcc:_x?=", "=?x-unknown?q?a?= " + strings.Repeat("äöü", 40),
	} {
		m := sent(t, email.Config{FS: templates}, `{"subject": "`+subject+`"}`)
		decoded, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
		require.NoError(t, err)
		assert.Equal(t, subject, decoded)
		for word := range strings.FieldsSeq(m.Header.Get("Subject")) {
			decoded, err := new(mime.WordDecoder).DecodeHeader(word)
			require.NoError(t, err)
			assert.True(t, utf8.ValidString(decoded), "each word has whole letters (RFC 2047, section 5): %q", word)
		}
	}
}

func TestImagesInHTMLAreInTheMail(t *testing.T) {
	templates := files(map[string]string{
		"layout.html.tmpl":                    `<img src="cid:logo.png">{{template "content" .}}`,
		"default/logo.png":                    "the shop's logo",
		"default/unused.png":                  "not shown",
		"customer.signed-up/to.tmpl":          "a@example.org",
		"customer.signed-up/subject.tmpl":     "s",
		"customer.signed-up/locale.tmpl":      "{{.Payload.locale}}",
		"customer.signed-up/text.tmpl":        "t",
		"customer.signed-up/html.tmpl":        `<img src="cid:badge-{{.Payload.level}}.png"><b style="background: url(cid:logo.png)">{{.Payload.name}}</b>`,
		"customer.signed-up/badge-1.png":      "gold",
		"customer.signed-up/badge-1.de.png":   "Gold",
		"customer.signed-up/attachments.tmpl": "",
	})
	m := sent(t, email.Config{FS: templates}, `{"level": 1, "name": "cid:unknown.png", "locale": "de"}`)
	parts, err := m.Parts()
	require.NoError(t, err)
	require.Len(t, parts, 4)
	assert.Equal(t, []string{"alternative"}, parts[0].Within)
	for i, want := range []struct{ name, body string }{{"logo.png", "the shop's logo"}, {"badge-1.png", "Gold"}} {
		p := parts[2+i]
		assert.Equal(t, []string{"alternative", "related"}, p.Within)
		assert.Equal(t, "image/png", p.ContentType)
		assert.Equal(t, "inline", p.Disposition)
		assert.Equal(t, want.name, p.Name)
		assert.Equal(t, want.body, string(p.Body))
		assert.Regexp(t, `^[0-9a-f]{24}@example\.com$`, p.ContentID)
	}
	html := string(parts[1].Body)
	assert.Equal(t, `<img src="cid:`+parts[2].ContentID+`"><img src="cid:`+parts[3].ContentID+`">`+
		`<b style="background: url(cid:`+parts[2].ContentID+`)">cid:unknown.png</b>`, strings.TrimSpace(html))

	// A payload can only name files next to the templates.
	m = sent(t, email.Config{FS: templates}, `{"level": "../../../etc/passwd", "name": "x", "locale": ""}`)
	parts, err = m.Parts()
	require.NoError(t, err)
	assert.Len(t, parts, 3, "text, html and the logo")
}

func TestAttachmentsComeFromTheTemplatesAndFromThePayload(t *testing.T) {
	templates := minimal(map[string]string{
		"customer.signed-up/html.tmpl":        "<p>h",
		"customer.signed-up/attachments.tmpl": "terms.pdf\n{{with .Payload.invoice}}{{attachment .name .type .data}}{{end}}\n",
		"default/terms.pdf":                   "%PDF-",
	})
	m := sent(t, email.Config{FS: templates}, `{"invoice": {"name": "Rechnung №7 \"x\".csv", "type": "Text/CSV; charset=utf-8", "data": "YSxiCg=="}}`)
	parts, err := m.Parts()
	require.NoError(t, err)
	require.Len(t, parts, 4)
	assert.Equal(t, []string{"mixed", "alternative"}, parts[0].Within)
	assert.Equal(t, smtptest.Part{Within: []string{"mixed"}, ContentType: "application/pdf", Disposition: "attachment", Name: "terms.pdf", Body: []byte("%PDF-")}, parts[2])
	assert.Equal(t, smtptest.Part{Within: []string{"mixed"}, ContentType: "text/csv", Disposition: "attachment", Name: `Rechnung №7 "x".csv`, Body: []byte("a,b\n")}, parts[3])

	m = sent(t, email.Config{FS: templates}, `{"invoice": null}`)
	parts, err = m.Parts()
	require.NoError(t, err)
	assert.Len(t, parts, 3)
}

func TestMailsWithTheSamePartsAreByteForByteTheSame(t *testing.T) {
	templates := minimal(map[string]string{
		"customer.signed-up/html.tmpl":             `<img src="cid:a.png"><img src="cid:b.png">`,
		"customer.signed-up/a.png":                 "a",
		"customer.signed-up/b.png":                 "b",
		"customer.signed-up/attachments.tmpl":      "a.png\nb.png",
		"customer.signed-up/list-unsubscribe.tmpl": "https://example.com/u",
	})
	first := sent(t, email.Config{FS: templates}, `{}`)
	for range 10 {
		assert.Equal(t, string(first.Raw), string(sent(t, email.Config{FS: templates}, `{}`).Raw))
	}
}

func TestAnInvalidAttachmentIsNotSent(t *testing.T) {
	templates := minimal(map[string]string{
		"customer.signed-up/attachments.tmpl": "{{.Payload.line}}{{with index .Payload \"f\"}}{{attachment .name .type .data}}{{end}}",
	})
	for payload, want := range map[string]string{
		`{"line": "../../etc/passwd"}`: `no such file next to the templates: "../../etc/passwd"`,
		`{"line": "{}x"}`:              "a line is not a result of the function attachment",
		`{"line": "", "f": {"name": "a/b", "type": "text/csv", "data": ""}}`:                              `the name of a file is empty or a path: "a/b"`,
		`{"line": "", "f": {"name": "..", "type": "text/csv", "data": ""}}`:                               `the name of a file is empty or a path: ".."`,
		`{"line": "", "f": {"name": "\n", "type": "text/csv", "data": ""}}`:                               `the name of a file is empty`,
		`{"line": "", "f": {"name": "a", "type": "csv", "data": ""}}`:                                     `use a media type like application/pdf: "a: csv"`,
		`{"line": "", "f": {"name": "a", "type": "text/csv\r\nBcc: x", "data": ""}}`:                      "use a media type",
		`{"line": "", "f": {"name": "a", "type": "multipart/mixed", "data": ""}}`:                         "cannot be attached as base64",
		`{"line": "", "f": {"name": "a", "type": "text/csv", "data": "no base64"}}`:                       "its data is not base64",
		`{"line": "", "f": {"name": "` + strings.Repeat("a", 201) + `", "type": "text/csv", "data": ""}}`: "201 bytes is too long",
	} {
		err := refused(t, email.Config{FS: templates}, payload)
		require.ErrorIs(t, err, email.ErrAttachment, payload)
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, "customer.signed-up/attachments.tmpl")
		assert.NotContains(t, sinks.Brief(err), "etc/passwd")
	}
	err := refused(t, email.Config{FS: templates, MaxSizeMB: 1},
		`{"line": "", "f": {"name": "a", "type": "text/csv", "data": "`+strings.Repeat("AAAA", 300_000)+`"}}`)
	require.ErrorIs(t, err, mailserver.ErrTooLarge)
	assert.ErrorContains(t, err, "max_size_mb allows 1048576")
}

func TestTheHeaderHasTheURLsToUnsubscribe(t *testing.T) {
	for template, want := range map[string][2]string{
		"https://example.com/u?t={{urlquery .Payload.t}}\nmailto:u@example.com\n": {"<https://example.com/u?t=a%0D%0Ab>, <mailto:u@example.com>", "List-Unsubscribe=One-Click"},
		"mailto:u@example.com": {"<mailto:u@example.com>", ""},
		"\n":                   {"", ""},
	} {
		m := sent(t, email.Config{FS: minimal(map[string]string{"default/list-unsubscribe.tmpl": template})}, `{"t": "a\r\nb"}`)
		assert.Equal(t, want, [2]string{m.Header.Get("List-Unsubscribe"), m.Header.Get("List-Unsubscribe-Post")})
	}
	for template, want := range map[string]string{
		"http://example.com/u":                            "use an https:// or a mailto: URL",
		"https:///u":                                      "use an https://",
		"https://example.com/{{.Payload.t}}>":             "must escape",
		"https://example.com/ü":                           "must escape",
		"https://example.com/" + strings.Repeat("a", 900): "too long",
	} {
		err := refused(t, email.Config{FS: minimal(map[string]string{"default/list-unsubscribe.tmpl": template})}, `{"t": "x"}`)
		require.ErrorIs(t, err, email.ErrUnsubscribe)
		assert.NotContains(t, sinks.Brief(err), "example.com")
		assert.ErrorContains(t, err, want)
	}
}

func TestNewReportsMistakesInLocalesImagesAndAttachments(t *testing.T) {
	_, err := email.New(sinks.Instance{}, email.Config{SMTP: "smtp://localhost", From: "a@example.com", Templates: "mail", Locale: "no locale", FS: files(map[string]string{
		"mail/layout.html.tmpl":     `<img src="cid:nowhere.png">{{template "content" .}}`,
		"mail/layout.text.xy1.tmpl": "x",
		"mail/a/to.tmpl":            "x",
		"mail/a/to.de.tmpl":         "x",
		"mail/a/subject.tmpl":       "x",
		"mail/a/subject.de_at.tmpl": "x",
		"mail/a/text.tmpl":          "x",
		"mail/a/html.tmpl":          `<img src='cid:{{.Payload.x}}.png'><img src='cid:gone.png'>`,
		"mail/a/html.fr.tmpl":       `<img src='cid:gone.png'>`,
		"mail/a/gone.fr.png":        "",
		"mail/a/attachments.tmpl":   "gone.pdf\n{{.Payload.x}}\n",
		"mail/b/to.tmpl":            "x",
		"mail/b/subject.tmpl":       "x",
		"mail/b/text.de.tmpl":       "x",
		"mail/c/to.tmpl":            "x",
		"mail/c/subject.tmpl":       "x",
		"mail/c/html.tmpl":          "x",
		"mail/c/html.de.tmpl":       "x",
		"mail/c/text.de.tmpl":       "x",
	})})
	require.Error(t, err)
	lines := strings.Split(err.Error(), "\n")
	slices.Sort(lines)
	assert.Equal(t, []string{
		`locale: "no locale" is not a language tag like en or pt-BR`,
		"templates: mail: a/attachments.tmpl attaches gone.pdf, but there is no file a/gone.pdf or default/gone.pdf",
		"templates: mail: a/html.tmpl shows cid:gone.png, but there is no file a/gone.png or default/gone.png",
		"templates: mail: a/subject.de_at.tmpl: write the locale as de-AT",
		"templates: mail: a/text.fr.tmpl is missing: text.tmpl exists without a locale, and a mail is in one language",
		"templates: mail: a/to.de.tmpl: only the names of subject.tmpl, text.tmpl, html.tmpl can have a locale",
		"templates: mail: b/text.tmpl or html.tmpl is missing",
		"templates: mail: c/text.tmpl is missing, for mails in other locales than de",
		"templates: mail: layout.html.tmpl shows cid:nowhere.png, but there is no file a/nowhere.png or default/nowhere.png",
		"templates: mail: layout.html.tmpl shows cid:nowhere.png, but there is no file c/nowhere.png or default/nowhere.png",
		`templates: mail: layout.text.xy1.tmpl: "xy1" is not a language tag like en or pt-BR`,
	}, lines)
}
