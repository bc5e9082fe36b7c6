package email_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func files(named map[string]string) fstest.MapFS {
	made := make(fstest.MapFS)
	for name, content := range named {
		made[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return made
}

func TestLayoutsAndDefaultsCompleteATypesTemplates(t *testing.T) {
	server := startServer(t, smtptest.Config{})
	dir := t.TempDir()
	for name, content := range map[string]string{
		"README.md":                       "ignored",
		".git/HEAD.tmpl":                  "{{ignored",
		"layout.html.tmpl":                `<main>{{template "content" .}}</main>{{define "button"}}<a href="{{.}}">Go</a>{{end}}`,
		"layout.text.tmpl":                `{{template "content" .}} -- Shop`,
		"..data/default/to.tmpl":          `{{.Payload.email}}`,
		"default/subject.tmpl":            `News of {{.Type}}`,
		"default/text.tmpl":               `Something happened to {{.Key}}.`,
		"default/html.tmpl":               `default html`,
		"customer.signed-up/subject.tmpl": `Hello`,
		"customer.signed-up/html.tmpl":    `{{.Payload.name}} {{template "button" .Payload.url}}`,
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	// A mounted Kubernetes ConfigMap contains such links.
	require.NoError(t, os.Symlink(filepath.Join(dir, "..data", "default", "to.tmpl"), filepath.Join(dir, "default", "to.tmpl")))
	sink, err := email.New(sinks.Instance{}, email.Config{SMTP: server.URL(), From: "shop@example.com", Templates: dir})
	require.NoError(t, err)
	defer func() { assert.NoError(t, sink.Close(within(t))) }()

	d := delivery(`{"email": "a@example.org", "name": "<i>", "url": "javascript:alert(1)"}`)
	_, err = sink.Deliver(within(t), d)
	require.NoError(t, err)
	d.Type, d.Key = "order.placed", "42"
	_, err = sink.Deliver(within(t), d)
	require.NoError(t, err)

	own, fallback := server.Messages()[0], server.Messages()[1]
	assert.Equal(t, "Hello", own.Subject())
	html, err := own.HTML()
	require.NoError(t, err)
	assert.Equal(t, `<main>&lt;i&gt; <a href="#ZgotmplZ">Go</a></main>`, strings.TrimSpace(html))
	_, err = own.Text()
	require.ErrorIs(t, err, smtptest.ErrNoPart, "the default text is not combined with the type's html")
	assert.Equal(t, "News of order.placed", fallback.Subject())
	text, err := fallback.Text()
	require.NoError(t, err)
	assert.Equal(t, "Something happened to 42. -- Shop", strings.TrimSpace(text))
	assert.Equal(t, "<0197f3c2-6f0e-7cc0-b2cf-9d8f0e6f3c11@example.com>", own.Header.Get("Message-Id"))
}

func TestAllMistakesInTemplatesAreReportedTogether(t *testing.T) {
	_, err := email.New(sinks.Instance{}, email.Config{
		From:      "no address",
		SMTP:      "smtp://localhost:1025",
		Templates: "mail",
		FS: files(map[string]string{
			"mail/stray.tmpl":            "x",
			"mail/layout.html.tmpl":      "<main></main>",
			"mail/a.unparsed/to.tmpl":    "{{.Payload.",
			"mail/b.partial/to.tmpl":     "a@example.org",
			"mail/c.typo/subjct.tmpl":    "x",
			"mail/c.typo/to.tmpl":        "x",
			"mail/c.typo/subject.tmpl":   "x",
			"mail/c.typo/text.tmpl":      `{{template "nowhere"}}`,
			"mail/d.unescaped/to.tmpl":   "x",
			"mail/d.unescaped/html.tmpl": `<a href="{{if .Key}}x"{{end}}>`,
		}),
	})
	require.ErrorIs(t, err, email.ErrTemplates)
	for _, want := range []string{
		`from: "no address" is not an address`,
		"mail: stray.tmpl is not in the folder of a type",
		`layout.html.tmpl has no {{template "content" .}}`,
		"a.unparsed/to.tmpl:1: ",
		"a.unparsed/subject.tmpl is missing",
		"a.unparsed/text.tmpl or html.tmpl is missing",
		"b.partial/subject.tmpl is missing",
		"c.typo/subjct.tmpl is unknown",
		`c.typo/text.tmpl calls a template "nowhere"`,
		"d.unescaped/subject.tmpl is missing",
		"d.unescaped/html.tmpl:1",
	} {
		assert.ErrorContains(t, err, want)
	}
	assert.NotContains(t, err.Error(), "a.unparsed/to.tmpl is missing")
}

func TestAFolderWithoutTemplatesIsAMistake(t *testing.T) {
	valid := email.Config{SMTP: "smtp://localhost", From: "a@example.com"}
	for name, templates := range map[string]string{"nowhere": "no such file", t.TempDir(): "there are none"} {
		c := valid
		c.Templates = name
		_, err := email.New(sinks.Instance{}, c)
		require.ErrorContains(t, err, "templates: "+name+": "+templates)
	}
}

func TestErrorsOfAnEnvelopeOrItsTemplatesAreInvalid(t *testing.T) {
	for _, c := range []struct {
		name, payload string
		files         map[string]string
		is            error
		says          []string
	}{
		{name: "a missing field", payload: `{}`, files: map[string]string{"text.tmpl": "\n{{.Payload.name}}"},
			is: email.ErrRender, says: []string{"customer.signed-up/text.tmpl:2", `"name"`}},
		{name: "a missing field in html", payload: `{"a": {}}`, files: map[string]string{"html.tmpl": "{{.Payload.a.name}}"},
			is: email.ErrRender, says: []string{"customer.signed-up/html.tmpl:1", `"name"`}},
		{name: "missing metadata", payload: `{}`, files: map[string]string{"subject.tmpl": "{{.Metadata.tenant}}"},
			is: email.ErrRender, says: []string{"customer.signed-up/subject.tmpl:1", `"tenant"`}},
		{name: "no JSON", payload: "\x00\x01", is: email.ErrPayload},
		{name: "more than JSON", payload: "{} {}", is: email.ErrPayload},
		{name: "no address", payload: `{"to": "nobody"}`, files: map[string]string{"to.tmpl": "{{.Payload.to}}"},
			is: email.ErrAddress, says: []string{"customer.signed-up/to.tmpl"}},
		{name: "no recipient", payload: `{}`, files: map[string]string{"to.tmpl": " \n"},
			is: email.ErrAddress, says: []string{"customer.signed-up/to.tmpl gave no recipient"}},
		{name: "two addresses instead of one", payload: `{"to": "a@example.org, b@example.org"}`, files: map[string]string{"to.tmpl": "{{address .Payload.to}}"},
			is: email.ErrRender, says: []string{"not one email address"}},
		{name: "too many recipients", payload: `{}`, files: map[string]string{"bcc.tmpl": "{{range $i := 100}}b{{$i}}@example.org,{{end}}"},
			is: email.ErrAddress, says: []string{"101 recipients"}},
		{name: "too long an address", payload: `{}`, files: map[string]string{"to.tmpl": strings.Repeat("a", 300) + "@example.org"},
			is: email.ErrAddress, says: []string{"customer.signed-up/to.tmpl"}},
		{name: "no subject", payload: `{}`, files: map[string]string{"subject.tmpl": "\n"},
			is: email.ErrSubject, says: []string{"customer.signed-up/subject.tmpl"}},
		{name: "too long a subject", payload: `{}`, files: map[string]string{"subject.tmpl": strings.Repeat("x", 1000)},
			is: email.ErrSubject, says: []string{"1000 bytes"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := startServer(t, smtptest.Config{})
			all := map[string]string{"to.tmpl": "a@example.org", "subject.tmpl": "s", "text.tmpl": "t"}
			maps.Copy(all, c.files)
			sink := newSink(t, email.Config{SMTP: server.URL(), FS: folder("customer.signed-up", all)})
			_, err := sink.Deliver(within(t), delivery(c.payload))
			assert.Equal(t, sinks.ClassInvalid, sinktest.Class(err))
			require.ErrorIs(t, err, c.is)
			for _, want := range c.says {
				assert.ErrorContains(t, err, want)
			}
			assert.Zero(t, server.Connections(), "the server gets no command")
		})
	}
}

func TestATypeWithoutTemplatesIsUnknownAndNamesTheMissingFiles(t *testing.T) {
	server := startServer(t, smtptest.Config{})
	sink := newSink(t, email.Config{SMTP: server.URL()})
	d := delivery(jane)
	d.Type = "order.placed"
	_, err := sink.Deliver(within(t), d)
	assert.Equal(t, sinks.ClassUnknown, sinktest.Class(err))
	require.ErrorIs(t, err, email.ErrNoTemplate)
	assert.ErrorContains(t, err, "order.placed/to.tmpl, order.placed/subject.tmpl, order.placed/text.tmpl or html.tmpl")
}

func TestNumbersAndNullsInTemplates(t *testing.T) {
	server := startServer(t, smtptest.Config{})
	sink := newSink(t, email.Config{SMTP: server.URL(), FS: folder("customer.signed-up", map[string]string{
		"to.tmpl": "a@example.org", "subject.tmpl": "s",
		"text.tmpl": `{{.Payload.total}} {{printf "%.2f" (float .Payload.total)}} {{if gt (int .Payload.n) 2}}many{{end}} [{{.Payload.nick}}]{{if .Payload.nick}}!{{end}}{{range .Payload.nick}}!{{end}}{{with index .Payload "absent"}}!{{end}}`,
		"html.tmpl": `[{{.Payload.nick}}]<b title="{{.Payload.nick}}">{{.Payload.n}}</b>`,
	})})
	_, err := sink.Deliver(within(t), delivery(`{"total": 19.9, "n": 3, "nick": null}`))
	require.NoError(t, err)
	text, err := server.Messages()[0].Text()
	require.NoError(t, err)
	assert.Equal(t, "19.9 19.90 many []", strings.TrimSpace(text))
	html, err := server.Messages()[0].HTML()
	require.NoError(t, err)
	assert.Equal(t, `[]<b title="">3</b>`, strings.TrimSpace(html))
}

// After a type and its folder were renamed, the log still has notifications with the old name.
func TestAnAliasHasTheTemplatesOfItsType(t *testing.T) {
	server := startServer(t, smtptest.Config{})
	types := registry.New()
	require.NoError(t, registry.Register[struct{ A int }](types, "customer.signed-up", registry.Aliases("CustomerCreated")))
	for name, in := range map[string]sinks.Instance{"knows": {Types: types}, "knows not": {}} {
		sink, err := email.New(in, email.Config{SMTP: server.URL(), From: "shop@example.com", FS: signedUp})
		require.NoError(t, err)
		d := delivery(jane)
		d.Type = "CustomerCreated"
		_, err = sink.Deliver(within(t), d)
		if in.Types != nil {
			require.NoError(t, err, name)
		} else {
			require.ErrorIs(t, err, email.ErrNoTemplate, name)
		}
		require.NoError(t, sink.Close(within(t)))
	}
	require.Len(t, server.Messages(), 1)
}

func TestAFileOutsideTheFolderOfTheTemplatesIsNotRead(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret.pdf")
	require.NoError(t, os.WriteFile(outside, []byte("secret"), 0o600))
	for name, make := range map[string]func(own string) error{
		"an absolute link":   func(own string) error { return os.Symlink(outside, filepath.Join(own, "secret.pdf")) },
		"a link to a folder": func(own string) error { return os.Symlink(filepath.Dir(outside), filepath.Join(own, "more")) },
		"a link through ..":  func(own string) error { return os.Symlink("../../secret.pdf", filepath.Join(own, "secret.pdf")) },
		"a link through a link": func(own string) error {
			return errors.Join(os.Symlink("../..", filepath.Join(own, ".up")), os.Symlink(".up/secret.pdf", filepath.Join(own, "secret.pdf")))
		},
		"a template outside":       func(own string) error { return os.Symlink(outside, filepath.Join(own, "html.tmpl")) },
		"a link that stays inside": func(own string) error { return os.Symlink("../t/text.tmpl", filepath.Join(own, "inside.txt")) },
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(root, "secret.pdf"), []byte("secret"), 0o600))
			own := filepath.Join(root, "mail", "t")
			require.NoError(t, os.MkdirAll(own, 0o700))
			for file, content := range map[string]string{"to.tmpl": "a@example.org", "subject.tmpl": "s", "text.tmpl": "x"} {
				require.NoError(t, os.WriteFile(filepath.Join(own, file), []byte(content), 0o600))
			}
			require.NoError(t, make(own))
			_, err := email.New(sinks.Instance{}, email.Config{SMTP: "smtp://localhost", From: "a@example.com", Templates: filepath.Join(root, "mail")})
			if name == "a link that stays inside" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, email.ErrTemplates)
			require.ErrorContains(t, err, "leads out of the folder of the templates")
		})
	}
}

func TestDataNamesOnlyFilesOfItsTypeAsAttachments(t *testing.T) {
	root := t.TempDir()
	for file, content := range map[string]string{
		"secret.pdf": "secret", "mail/secret.pdf": "secret", "mail/other/secret.pdf": "secret", "mail/other/to.tmpl": "a@example.org",
		"mail/other/subject.tmpl": "s", "mail/other/text.tmpl": "x", "mail/customer.signed-up/terms.pdf": "terms", "mail/default/logo.png": "logo",
		"mail/customer.signed-up/to.tmpl": "a@example.org", "mail/customer.signed-up/subject.tmpl": "s", "mail/customer.signed-up/text.tmpl": "x",
		"mail/customer.signed-up/attachments.tmpl": "{{.Payload.file}}", "mail/customer.signed-up/.hidden": "secret",
	} {
		file = filepath.Join(root, filepath.FromSlash(file))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	}
	server := startServer(t, smtptest.Config{})
	sink, err := email.New(sinks.Instance{}, email.Config{SMTP: server.URL(), From: "a@example.com", Templates: filepath.Join(root, "mail")})
	require.NoError(t, err)
	defer func() { assert.NoError(t, sink.Close(within(t))) }()
	for _, name := range []string{"terms.pdf", "logo.png"} {
		_, err := sink.Deliver(within(t), delivery(`{"file": "`+name+`"}`))
		require.NoError(t, err)
	}
	for _, name := range []string{
		"../secret.pdf", "../other/secret.pdf", "other/secret.pdf", "secret.pdf", "./terms.pdf", "../customer.signed-up/terms.pdf", "../../secret.pdf",
		filepath.ToSlash(filepath.Join(root, "secret.pdf")), "/etc/passwd", ".hidden", "to.tmpl", "..", ".", "/", `..\\secret.pdf`, "file:///etc/passwd",
	} {
		_, err := sink.Deliver(within(t), delivery(`{"file": "`+name+`"}`))
		assert.Equal(t, sinks.ClassInvalid, sinktest.Class(err), name)
		require.ErrorIs(t, err, email.ErrAttachment, name)
		assert.NotContains(t, err.Error(), root+"/mail")
	}
	assert.Equal(t, 2, server.Count())
}
