package email_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/mailserver"
)

// build makes a sink from YAML.
func build(t *testing.T, text string) (sinks.Sink, error) {
	t.Helper()
	return email.Kind().Build(sinks.Instance{Name: "mail"}, func(config any) error {
		return yaml.Unmarshal([]byte(text), config)
	})
}

func TestTheKindHasDefaults(t *testing.T) {
	config, ok := email.Kind().Config().(*email.Config)
	require.True(t, ok)
	assert.Equal(t, &email.Config{Auth: "auto", Timeout: 30 * time.Second, Connections: 4, MaxSizeMB: 25}, config)
}

func TestAllMistakesOfAConfigurationAreReportedTogether(t *testing.T) {
	_, err := build(t, `
smtp: ftp://shop:secret@:99999/inbox?tls=no
tls: maybe
from: shop
reply_to: a@example.com; b@example.com
timeout: -1s
connections: 0
hello: "two words"
`)
	for _, want := range []string{
		`smtp: starts with "ftp"`, "smtp: has no host", "smtp: port 99999", "smtp: has something after the port",
		`tls: "maybe" is unknown`, `from: "shop" is not an address`, "reply_to: ", "templates: is missing",
		"timeout: -1s", "connections: 0 is outside", `hello: "two words"`,
	} {
		assert.ErrorContains(t, err, want)
	}
	assert.NotContains(t, err.Error(), "secret")
}

func TestMistakesInTheServersURLAreNamedWithoutThePassword(t *testing.T) {
	for smtp, want := range map[string]string{
		"":                                  "smtp: is missing",
		"smtp://shop:secret%zz@localhost":   "smtp: is not a URL",
		"smtp://shop:sec#ret@localhost:123": "smtp: is not a URL",
		"smtp://shop@localhost":             "smtp: needs both user and password",
		"smtp://:secret@localhost":          "smtp: needs both user and password",
		"localhost:25":                      `smtp: starts with "localhost"`,
	} {
		c := email.Config{SMTP: smtp, From: "a@example.com", Templates: "x"}
		c.SetDefaults()
		err := c.Validate()
		require.ErrorContains(t, err, want, smtp)
		assert.NotContains(t, err.Error(), "sec")
	}
}

func TestNoTLSContradictsSMTPS(t *testing.T) {
	c := email.Config{SMTP: "smtps://localhost", TLS: mailserver.TLSNone, From: "a@example.com", Templates: "x"}
	c.SetDefaults()
	require.ErrorContains(t, c.Validate(), "tls: none contradicts smtps://")
}

func TestAPasswordThatMayBeSentInClearTextIsLogged(t *testing.T) {
	for _, c := range []struct{ smtp, tls, says string }{
		{"smtp://shop:secret@mail.example.com", "", ""},
		{"smtp://shop:secret@mail.example.com", mailserver.TLSMandatory, ""},
		{"smtps://shop:secret@mail.example.com", mailserver.TLSOpportunistic, ""},
		{"smtp://mail.example.com", mailserver.TLSNone, ""},
		{"smtp://shop:secret@127.0.0.1", mailserver.TLSNone, ""},
		{"smtp://shop:secret@mail.example.com", mailserver.TLSNone, "tls is none"},
		{"smtp://shop:secret@mail.example.com", mailserver.TLSOpportunistic, "tls is opportunistic"},
	} {
		var log strings.Builder
		sink, err := email.New(sinks.Instance{Name: "mail", Logger: slog.New(slog.NewTextHandler(&log, nil))},
			email.Config{SMTP: c.smtp, TLS: c.tls, From: "a@example.com", FS: signedUp})
		require.NoError(t, err)
		require.NoError(t, sink.Close(t.Context()))
		assert.NotContains(t, log.String(), "secret")
		if c.says == "" {
			assert.Empty(t, log.String(), "%s, tls %q", c.smtp, c.tls)
			continue
		}
		assert.Contains(t, log.String(), "level=WARN")
		assert.Contains(t, log.String(), c.says)
		assert.Contains(t, log.String(), "server=mail.example.com:587")
	}
}
