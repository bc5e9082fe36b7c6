package email_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

type (
	signedUpV1 struct {
		Mail string `json:"mail"`
	}
	signedUpV2 struct {
		Name  string `json:"name"`
		Email string `json:"email"`
	}
)

// known returns a registry with version 2 of the type.
func known(t *testing.T) *registry.Registry {
	t.Helper()
	types := registry.New()
	require.NoError(t, registry.Register[signedUpV2](types, "customer.signed-up", registry.Version(2),
		registry.Upcast(1, func(old signedUpV1) (signedUpV2, error) {
			if old.Mail == "" {
				return signedUpV2{}, errors.New("no mail")
			}
			return signedUpV2{"you", old.Mail}, nil
		})))
	return types
}

func TestAMailIsMadeForTheVersionOfItsPayload(t *testing.T) {
	const v1, v2, v3 = `{"mail": "a@example.org"}`, `{"email": "a@example.org", "name": "Jane"}`, `{"to": {"email": "a@example.org"}}`
	plain := map[string]string{"to.tmpl": "{{.Payload.email}}", "subject.tmpl": "s", "text.tmpl": "{{.Version}} {{.Payload.name}}"}
	numbered := map[string]string{
		"to.tmpl": "{{.Payload.mail}}", "to.v2.tmpl": "{{.Payload.email}}", "subject.tmpl": "s",
		"text.tmpl": "one", "text.v2.tmpl": "two {{.Payload.name}}", "html.v2.tmpl": "two",
	}
	withV3 := maps.Clone(numbered)
	withV3["to.v3.tmpl"] = "{{.Payload.to.email}}"
	fromV2 := maps.Clone(plain)
	delete(fromV2, "text.tmpl")
	fromV2["text.v2.tmpl"] = "{{.Version}} {{.Payload.name}}"
	for _, c := range []struct {
		name      string
		templates map[string]string
		types     *registry.Registry
		version   int
		payload   string
		text      string // of the mail; "": there is none
		class     sinks.Class
		is        error
	}{
		{"a known type in an older version", plain, known(t), 1, v1, "2 you", 0, nil},
		{"a known type in its version", plain, known(t), 2, v2, "2 Jane", 0, nil},
		{"a known type in a newer version", plain, known(t), 3, v2, "", sinks.ClassUnknown, registry.ErrNewerVersion},
		{"a known type, an upcaster fails", plain, known(t), 1, `{}`, "", sinks.ClassInvalid, registry.ErrDecode},
		{"a known type, a field is missing", plain, known(t), 2, `{}`, "", sinks.ClassInvalid, email.ErrRender},
		{"a known type, the templates read version 1", numbered, known(t), 1, v1, "one", 0, nil},
		{"a known type, the templates read version 3", withV3, known(t), 3, strings.Replace(v3, "}}", `}, "name": "Jim"}`, 1), "two Jim", 0, nil},

		{"version 1", numbered, nil, 1, v1, "one", 0, nil},
		{"version 2", numbered, nil, 2, v2, "two Jane", 0, nil},
		{"version 2, a field is missing", numbered, nil, 2, `{"email": "a@example.org"}`, "", sinks.ClassInvalid, email.ErrRender},
		{"version 3", numbered, nil, 3, v2, "", sinks.ClassUnknown, email.ErrVersion},
		{"the templates begin with version 2", fromV2, nil, 2, v2, "2 Jane", 0, nil},
		{"a version before the templates", fromV2, nil, 1, v1, "", sinks.ClassUnknown, email.ErrNoTemplate},

		{"no versions, version 1, a field is missing", plain, nil, 1, v1, "", sinks.ClassInvalid, email.ErrRender},
		{"no versions, version 2", plain, nil, 2, v2, "2 Jane", 0, nil},
		{"no versions, version 3, a field is missing", plain, nil, 3, v3, "", sinks.ClassUnknown, email.ErrVersion},
		{"no versions, version 3, no address", plain, nil, 3, `{"email": "nobody", "name": "x"}`, "", sinks.ClassInvalid, email.ErrAddress},
		{"no versions, version 3, no object", plain, nil, 3, `"text"`, "", sinks.ClassInvalid, email.ErrRender},
		{"another type is known", plain, registry.New(), 3, v3, "", sinks.ClassUnknown, email.ErrVersion},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := startServer(t, smtptest.Config{})
			sink, err := email.New(sinks.Instance{Types: c.types}, email.Config{SMTP: server.URL(), From: "shop@example.com", FS: folder("customer.signed-up", c.templates)})
			require.NoError(t, err)
			d := delivery(c.payload)
			d.Version = c.version
			_, err = sink.Deliver(within(t), d)
			require.NoError(t, sink.Close(within(t)))
			if c.text == "" {
				assert.Equal(t, c.class, sinktest.Class(err))
				require.ErrorIs(t, err, c.is)
				assert.Zero(t, server.Count())
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.text, strings.TrimSpace(text(t, server.Messages()[0])))
			_, err = server.Messages()[0].HTML()
			assert.Equal(t, strings.HasPrefix(c.text, "two"), err == nil)
		})
	}
}

func TestATemplateOfAVersionReplacesAllLocalesOfTheEarlierOnes(t *testing.T) {
	templates := map[string]string{
		"to.tmpl": "a@example.org", "locale.tmpl": "de", "subject.tmpl": "s", "subject.de.tmpl": "S",
		"text.tmpl": "one", "text.de.tmpl": "eins", "text.v2.tmpl": "two", "text.v4.tmpl": "four", "text.v4.de.tmpl": "vier",
	}
	for version, want := range map[int]string{1: "eins", 2: "two", 3: "two", 4: "vier"} {
		server := startServer(t, smtptest.Config{})
		sink := newSink(t, email.Config{SMTP: server.URL(), FS: folder("customer.signed-up", templates)})
		d := delivery(`{}`)
		d.Version = version
		_, err := sink.Deliver(within(t), d)
		require.NoError(t, err)
		assert.Equal(t, want, strings.TrimSpace(text(t, server.Messages()[0])))
		assert.Equal(t, "S", server.Messages()[0].Subject())
	}
}

func TestMistakesInTheVersionsOfTemplatesAreReported(t *testing.T) {
	complete := map[string]string{"t/to.tmpl": "a@example.org", "t/subject.tmpl": "s", "t/text.tmpl": "x"}
	for name, want := range map[string]string{
		"default/text.v2.tmpl":    "default/text.v2.tmpl: only the templates of a type can have a version",
		"layout.html.v2.tmpl":     `"v2" is not a language tag`,
		"t/text.v0.tmpl":          `"v0" is not a language tag`,
		"t/text.v2.de.tmpl":       "version 2: t/text.tmpl or html.tmpl is missing",
		"t/to.v2.de.tmpl":         "only the names of subject.tmpl, text.tmpl, html.tmpl can have a locale",
		"t/html.v2.tmpl":          "version 2: t/html.tmpl shows cid:logo.png",
		"t/attachments.v3.tmpl":   "version 3: t/attachments.tmpl attaches logo.png",
		"t/texts.v2.tmpl":         "t/texts.v2.tmpl is unknown",
		"t/text.v2147483648.tmpl": "is not a language tag",
	} {
		t.Run(name, func(t *testing.T) {
			given := maps.Clone(complete)
			given[name] = "logo.png"
			if strings.Contains(name, "html") {
				given[name] = `<img src="cid:logo.png">`
			}
			_, err := email.New(sinks.Instance{}, email.Config{SMTP: "smtp://localhost", From: "a@example.com", FS: files(given)})
			require.ErrorIs(t, err, email.ErrTemplates)
			require.ErrorContains(t, err, want)
		})
	}
}

func TestAPreviewIsOfTheNewestVersion(t *testing.T) {
	plain := folder("customer.signed-up", map[string]string{"to.tmpl": "a@example.org", "subject.tmpl": "s", "text.tmpl": "x"})
	numbered := folder("customer.signed-up", map[string]string{"to.tmpl": "a@example.org", "subject.tmpl": "s", "text.v7.tmpl": "x"})
	for _, c := range []struct {
		config email.Config
		types  *registry.Registry
		want   int
	}{{email.Config{FS: plain}, nil, 1}, {email.Config{FS: plain}, known(t), 2}, {email.Config{FS: numbered}, known(t), 7}} {
		c.config.From = "a@example.com"
		composer, err := email.NewComposer(sinks.Instance{Types: c.types}, c.config)
		require.NoError(t, err)
		assert.Equal(t, c.want, composer.NewestVersion("customer.signed-up"), fmt.Sprint(c.want))
	}
}
