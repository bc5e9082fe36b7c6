package email_test

import (
	"encoding/json"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
)

// alert is the delivery of an alert.
func alert(t *testing.T, typ string) *notification.Delivery {
	t.Helper()
	payload, err := json.Marshal(map[string]any{
		"cause": "dead", "sink": "partner", "text": "partner: 3 deliveries dead", "since": "2026-03-01T12:00:00Z", "forwarder": "f1",
		"command": "waybill parked list --sink partner --state dead", "dashboard": "https://waybill.example/",
	})
	require.NoError(t, err)
	d := delivery(string(payload))
	d.Type = typ
	return d
}

func TestAlertsAreMailedWithoutTemplates(t *testing.T) {
	t.Parallel()
	server := startServer(t, smtptest.Config{})
	sink, err := email.New(sinks.Instance{Name: "ops-mail"}, email.Config{SMTP: server.URL(), From: "Waybill <waybill@example.com>", AlertsTo: "ops@example.com, Ada <ada@example.com>"})
	require.NoError(t, err)
	defer func() { require.NoError(t, sink.Close(t.Context())) }()
	_, err = sink.Deliver(t.Context(), alert(t, notification.AlertRaised))
	require.NoError(t, err)
	require.Equal(t, 1, server.Count())
	mail := server.Messages()[0]
	require.Equal(t, []string{"ops@example.com", "ada@example.com"}, mail.To)
	require.Equal(t, "[waybill] partner: 3 deliveries dead", mail.Subject())
	text, err := mail.Text()
	require.NoError(t, err)
	require.Contains(t, text, "waybill parked list --sink partner --state dead")
	require.Contains(t, text, "https://waybill.example/")
	_, err = sink.Deliver(t.Context(), delivery(jane))
	require.ErrorIs(t, err, email.ErrNoTemplate, "other types")
}

func TestBuiltInTemplatesUseNothingOfTheFolder(t *testing.T) {
	t.Parallel()
	server := startServer(t, smtptest.Config{})
	files := fstest.MapFS{
		"layout.text.tmpl":     {Data: []byte(`{{.Payload.customer}} {{template "content" .}}`)},
		"default/cc.tmpl":      {Data: []byte(`{{.Payload.email}}`)},
		"default/to.tmpl":      {Data: []byte(`{{.Payload.email}}`)},
		"default/subject.tmpl": {Data: []byte(`hello`)}, "default/text.tmpl": {Data: []byte(`hello`)},
	}
	sink, err := email.New(sinks.Instance{Name: "mail"}, email.Config{SMTP: server.URL(), From: "Shop <shop@example.com>", FS: files})
	require.NoError(t, err)
	defer func() { require.NoError(t, sink.Close(t.Context())) }()
	_, err = sink.Deliver(t.Context(), alert(t, notification.AlertCleared))
	require.NoError(t, err)
	require.Equal(t, []string{"shop@example.com"}, server.Messages()[0].To, "the sender, without alerts_to")
}

func TestAFolderForAlertsReplacesTheBuiltInTemplates(t *testing.T) {
	t.Parallel()
	server := startServer(t, smtptest.Config{})
	files := folder(notification.AlertRaised, map[string]string{"to.tmpl": "night@example.com", "subject.tmpl": "Wake up: {{.Payload.text}}", "text.tmpl": "{{.Payload.command}}"})
	sink, err := email.New(sinks.Instance{Name: "mail"}, email.Config{SMTP: server.URL(), From: "Shop <shop@example.com>", AlertsTo: "ops@example.com", FS: files})
	require.NoError(t, err)
	defer func() { require.NoError(t, sink.Close(t.Context())) }()
	_, err = sink.Deliver(t.Context(), alert(t, notification.AlertRaised))
	require.NoError(t, err)
	require.Equal(t, "Wake up: partner: 3 deliveries dead", server.Messages()[0].Subject())
}

func TestWrongRecipientsOfAlertsAreReported(t *testing.T) {
	t.Parallel()
	_, err := email.New(sinks.Instance{Name: "mail"}, email.Config{SMTP: "smtp://localhost", From: "shop@example.com", AlertsTo: "ops"})
	require.ErrorContains(t, err, "alerts_to: ")
	_, err = email.New(sinks.Instance{Name: "mail"}, email.Config{SMTP: "smtp://localhost", From: "shop@example.com"})
	require.ErrorContains(t, err, "templates: is missing; name the directory with the templates, or set alerts_to")
}
