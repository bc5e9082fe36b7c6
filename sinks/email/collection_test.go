package email_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// comments returns a collection of comments for Jane, by Ann, Bob and so on.
func comments(authors ...string) *sinks.Collection {
	c := &sinks.Collection{Sink: "mail", ID: "0197f3c2-6f0e-7cc0-b2cf-9d8f0e6f3cff", Group: "jane", Attempt: 1}
	for n, author := range authors {
		d := delivery(fmt.Sprintf(`{"author": %q, "to": "Jane %d <jane@example.org>"}`, author, n))
		d.ID, d.Type, d.OccurredOn = fmt.Sprintf("comment-%d", n), "comment.posted", d.OccurredOn.Add(-time.Duration(n)*time.Hour)
		d.Metadata = notification.Metadata{"language": "en"}
		c.Members = append(c.Members, d)
	}
	return c
}

var commentFiles = map[string]string{
	"comment.posted/to.tmpl":               "{{.Payload.to}}",
	"comment.posted/locale.tmpl":           "{{.Metadata.language}}",
	"comment.posted/list-unsubscribe.tmpl": "https://shop.example/stop?id={{.ID}}",
	"comment.posted/subject.tmpl":          "{{.Count}} comments for {{.Group}}",
	"comment.posted/text.tmpl":             "{{.Type}} {{.ID}}{{range .Items}}|{{.Payload.author}} {{.ID}} {{.Count}} {{.Group}} {{.Metadata.language}}{{end}}",
	"comment.posted/subject.de.tmpl":       "{{.Count}} Kommentare",
	"comment.posted/text.de.tmpl":          "{{.Locale}}{{range .Items}} {{.Locale}}{{end}}",
}

func filesWith(more map[string]string) map[string]string {
	all := maps.Clone(commentFiles)
	maps.Copy(all, more)
	return all
}

func TestACollectionIsOneMail(t *testing.T) {
	server := startServer(t, smtptest.Config{})
	sink := newSink(t, email.Config{SMTP: server.URL(), FS: files(commentFiles)})
	c := comments("Ann", "Bob")

	receipt, err := sink.DeliverCollection(within(t), c)

	require.NoError(t, err)
	assert.Contains(t, receipt, "smtp 250")
	require.Len(t, server.Messages(), 1)
	m := server.Messages()[0]
	assert.Equal(t, []string{"jane@example.org"}, m.To)
	assert.Equal(t, `"Jane 0" <jane@example.org>`, m.Header.Get("To"))
	assert.Equal(t, "2 comments for jane", m.Subject())
	text, err := m.Text()
	require.NoError(t, err)
	assert.Equal(t, "comment.posted 0197f3c2-6f0e-7cc0-b2cf-9d8f0e6f3cff|Ann comment-0 2 jane en|Bob comment-1 2 jane en\n", text)
	assert.Equal(t, "<0197f3c2-6f0e-7cc0-b2cf-9d8f0e6f3cff.mail@example.com>", m.Header.Get("Message-Id"))
	assert.Equal(t, "Sun, 01 Mar 2026 12:30:00 +0000", m.Header.Get("Date"), "the latest of the members")
	assert.Equal(t, "<https://shop.example/stop?id=comment-1>", m.Header.Get("List-Unsubscribe"))
}

func TestTheLastMemberChoosesTheLocaleOfACollection(t *testing.T) {
	server := startServer(t, smtptest.Config{})
	sink := newSink(t, email.Config{SMTP: server.URL(), FS: files(commentFiles)})
	c := comments("Ann", "Bob")
	c.Members[1].Metadata = notification.Metadata{"language": "de-AT"}
	_, err := sink.DeliverCollection(within(t), c)
	require.NoError(t, err)
	m := server.Messages()[0]
	assert.Equal(t, "2 Kommentare", m.Subject())
	text, err := m.Text()
	require.NoError(t, err)
	assert.Equal(t, "de de de\n", text)
}

func TestTemplatesOfACollectionServeANotificationAlone(t *testing.T) {
	server := startServer(t, smtptest.Config{})
	sink := newSink(t, email.Config{SMTP: server.URL(), FS: files(map[string]string{
		"comment.posted/to.tmpl": "{{.Payload.to}}", "comment.posted/subject.tmpl": "{{.Count}}{{.Group}}",
		"comment.posted/text.tmpl": "{{.Payload.author}}:{{range .Items}} {{.Payload.author}}{{end}}",
	})})
	_, err := sink.Deliver(within(t), comments("Ann").Members[0])
	require.NoError(t, err)
	m := server.Messages()[0]
	assert.Equal(t, "1", m.Subject())
	text, err := m.Text()
	require.NoError(t, err)
	assert.Equal(t, "Ann: Ann\n", text)
}

func TestMembersOfACollectionHaveTheSameAddresses(t *testing.T) {
	for _, file := range []string{"to.tmpl", "cc.tmpl", "bcc.tmpl", "reply-to.tmpl"} {
		server := startServer(t, smtptest.Config{})
		sink := newSink(t, email.Config{SMTP: server.URL(), FS: files(filesWith(map[string]string{
			"comment.posted/" + file: "{{.Payload.author}}@example.org",
		}))})
		_, err := sink.DeliverCollection(within(t), comments("Ann", "Ann"))
		require.NoError(t, err)

		_, err = sink.DeliverCollection(within(t), comments("Ann", "Ann", "Bob"))
		require.Equal(t, sinks.ClassInvalid, sinktest.Class(err), "%v", err)
		differ := new(sinks.DifferError)
		require.ErrorAs(t, err, &differ)
		assert.Equal(t, &sinks.DifferError{Setting: "comment.posted/" + file, One: "comment-0", Other: "comment-2"}, differ)
		assert.Len(t, server.Messages(), 1)
	}
}

func TestACollectionOfSeveralTypesHasItsOwnTemplates(t *testing.T) {
	server := startServer(t, smtptest.Config{})
	c := comments("Ann", "Bob")
	c.Members[1].Type = "like.given"
	deliver := func(all map[string]string) error {
		_, err := newSink(t, email.Config{SMTP: server.URL(), FS: files(filesWith(all))}).DeliverCollection(within(t), c)
		return err
	}
	err := deliver(nil)
	require.ErrorIs(t, err, email.ErrNoTemplate)
	require.Equal(t, sinks.ClassUnknown, sinktest.Class(err))
	require.ErrorContains(t, err, "no template for a collection of several types: collection/to.tmpl, collection/subject.tmpl, collection/text.tmpl or html.tmpl is missing")

	require.NoError(t, deliver(map[string]string{
		"collection/to.tmpl": "{{.Payload.to}}", "collection/subject.tmpl": "{{.Count}} news{{.Type}}",
		"collection/text.tmpl": "{{range .Items}}{{.Type}} by {{.Payload.author}}\n{{end}}",
	}))
	m := server.Messages()[0]
	assert.Equal(t, "2 news", m.Subject())
	text, err := m.Text()
	require.NoError(t, err)
	assert.Equal(t, "comment.posted by Ann\nlike.given by Bob\n", text)
}

func TestATemplateForOneNotificationFailsForACollection(t *testing.T) {
	sink := newSink(t, email.Config{SMTP: "smtp://127.0.0.1:1", FS: files(filesWith(map[string]string{
		"comment.posted/subject.tmpl": "a comment by {{.Payload.author}}",
	}))})
	for _, c := range []*sinks.Collection{comments("Ann"), comments("Ann", "Bob")} {
		_, err := sink.DeliverCollection(within(t), c)
		require.ErrorIs(t, err, email.ErrRender)
		require.ErrorContains(t, err, "in each of .Items")
		require.Equal(t, sinks.ClassInvalid, sinktest.Class(err))
	}
}

func TestACollectionHasTheTemplatesOfItsNewestVersion(t *testing.T) {
	numbered := map[string]string{
		"customer.signed-up/to.tmpl": "{{.Payload.mail}}", "customer.signed-up/to.v2.tmpl": "{{.Payload.email}}", "customer.signed-up/subject.tmpl": "s",
		"customer.signed-up/text.tmpl": "one", "customer.signed-up/text.v2.tmpl": "two{{range .Items}} {{.Payload.name}}{{end}}",
	}
	c := func(versions ...int) *sinks.Collection {
		all := &sinks.Collection{ID: "c", Group: "g", Attempt: 1}
		for _, version := range versions {
			d := delivery(`{"mail": "a@example.org"}`)
			if version == 2 {
				d = delivery(`{"email": "a@example.org", "name": "Jane"}`)
			}
			d.Version = version
			all.Members = append(all.Members, d)
		}
		return all
	}
	server := startServer(t, smtptest.Config{})
	sinkOf := func(all map[string]string, types *registry.Registry) *email.Sink {
		sink, err := email.New(sinks.Instance{Name: "mail", Types: types}, email.Config{SMTP: server.URL(), From: "shop@example.com", FS: files(all)})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, sink.Close(t.Context())) })
		return sink
	}
	for _, all := range []*sinks.Collection{c(1, 2), c(2, 1)} {
		_, err := sinkOf(numbered, known(t)).DeliverCollection(within(t), all)
		require.NoError(t, err)
	}
	text, err := server.Messages()[0].Text()
	require.NoError(t, err)
	assert.Equal(t, "two you Jane\n", text)

	_, err = sinkOf(numbered, nil).DeliverCollection(within(t), c(1, 1, 3))
	require.ErrorIs(t, err, email.ErrVersion)
	require.Equal(t, sinks.ClassUnknown, sinktest.Class(err))

	plain := map[string]string{"customer.signed-up/to.tmpl": "{{.Payload.mail}}", "customer.signed-up/subject.tmpl": "s", "customer.signed-up/text.tmpl": "t"}
	_, err = sinkOf(plain, nil).DeliverCollection(within(t), c(1, 2))
	require.ErrorIs(t, err, email.ErrVersion, "newer templates may read the second")
	require.Equal(t, sinks.ClassUnknown, sinktest.Class(err))
}

func TestTheFolderOfCollectionsIsNotAType(t *testing.T) {
	c := email.Config{From: "shop@example.com", FS: files(filesWith(map[string]string{
		"collection/to.tmpl": "a@example.org", "collection/subject.tmpl": "s", "collection/text.tmpl": "t",
	}))}
	composer, err := email.NewComposer(sinks.Instance{}, c)
	require.NoError(t, err)
	assert.Equal(t, []string{"comment.posted"}, composer.Types())

	c.FS = files(filesWith(map[string]string{"collection/text.v2.tmpl": "t"}))
	_, err = email.NewComposer(sinks.Instance{}, c)
	require.ErrorContains(t, err, "collection/text.v2.tmpl: only the templates of a type can have a version")
}

func TestAPreviewShowsTheMailOfACollection(t *testing.T) {
	composer, err := email.NewComposer(sinks.Instance{Name: "mail"}, email.Config{From: "shop@example.com", FS: files(commentFiles)})
	require.NoError(t, err)
	preview, err := composer.PreviewCollection(comments("Ann", "Bob"), "de")
	require.NoError(t, err)
	assert.Equal(t, []string{"jane@example.org"}, preview.Recipients)
	assert.Equal(t, "de de de", preview.Text)
	assert.Empty(t, preview.Warnings)

	_, err = composer.PreviewCollection(comments("Ann", "Bob"), "!")
	require.Error(t, err)
}
