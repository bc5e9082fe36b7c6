package config_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

const alerting = `
database: sqlite:outbox.db
sinks:
  partner: {kind: http, with: {url: "https://partner.example/"}}
  chat: {kind: http, with: {url: "https://chat.example/"}}
routes: {"order.placed": [partner]}
alerts: {to: [partner, {sink: chat, payload: {text: payload.text}, when: payload.cause == "dead"}], every: 24h}
`

func TestAlertsAreRoutedToTheirSinksButNotAboutThemselves(t *testing.T) {
	t.Parallel()
	c, err := load(t, config.Source{File: write(t, alerting)})
	require.NoError(t, err)
	require.Equal(t, []string{"order.placed", `waybill.alert.cleared when payload.sink != "partner"`, `waybill.alert.raised when payload.sink != "partner"`}, c.RoutesTo("partner"))
	table, err := c.Table()
	require.NoError(t, err)
	require.Equal(t, []string{"chat", "partner"}, table.Sinks(notification.AlertRaised))
	for payload, want := range map[string]string{
		`{"sink": "partner", "cause": "dead", "text": "hello"}`:    `{"text":"hello"}`,
		`{"sink": "partner", "cause": "stalled", "text": "hello"}`: "",
		`{"sink": "chat", "cause": "dead", "text": "hello"}`:       "",
	} {
		shaped, err := table.To("chat").Shape(t.Context(), &notification.Envelope{Type: notification.AlertRaised, Version: 1, Payload: []byte(payload)})
		require.NoError(t, err)
		if want == "" {
			require.Nil(t, shaped, payload)
			continue
		}
		require.JSONEq(t, want, string(shaped.Payload))
	}
	require.Contains(t, c.ForwarderConfig(nil).Routes, notification.AlertCleared)
	require.Equal(t, []string{"order.placed"}, func() (own []string) {
		for pattern := range c.Routes {
			own = append(own, pattern)
		}
		return own
	}())
}

func TestAlertsWithoutACauseAreOfAllCauses(t *testing.T) {
	t.Parallel()
	c, err := load(t, config.Source{File: write(t, alerting)})
	require.NoError(t, err)
	filled := c.Alerts.WithDefaults()
	require.True(t, filled.Dead && filled.DisabledEndpoint)
	require.Equal(t, []time.Duration{settings.DefaultAlertBreakerOpen, settings.DefaultAlertStalled, settings.DefaultAlertHeldTransaction},
		[]time.Duration{filled.BreakerOpen, filled.Stalled, filled.HeldTransaction})
	text, err := c.Show()
	require.NoError(t, err)
	require.Contains(t, string(text), "breaker_open: 5m")

	c, err = load(t, config.Source{File: write(t, strings.Replace(alerting, "every: 24h", "stalled: 2m", 1))})
	require.NoError(t, err)
	require.Equal(t, c.Alerts, c.Alerts.WithDefaults())
}

func TestAllMistakesOfAlertsAreReported(t *testing.T) {
	t.Parallel()
	_, err := load(t, config.Source{File: write(t, strings.Replace(alerting, "alerts: {to: [partner, ", "alerts: {stalled: 1s, held_transaction: 0s, dashboard: waybill, to: [ops, {sink: partner, when: payload.},", 1))})
	for _, text := range []string{
		`alerts.to names the unknown sink "ops"; known are chat, partner`,
		"alerts.to[1].when: ", "alerts.stalled is 1s: use at least 15s", "alerts.held_transaction", "alerts.dashboard is not an address",
	} {
		require.ErrorContains(t, err, text)
	}
	_, err = load(t, config.Source{File: write(t, strings.Split(alerting, "alerts:")[0]+"alerts: {dead: true, every: 1s}\n")})
	require.ErrorContains(t, err, ":7: alerts.to is missing: name the sinks that get the alerts")
	require.ErrorContains(t, err, ":7: alerts.every is 1s: use at least 1m0s, or 0 for no reminders")
	_, err = load(t, config.Source{File: write(t, strings.Replace(alerting, "database: sqlite:outbox.db", `
database: sqlite:outbox.db
source: {kafka: {brokers: ["localhost:9092"], topics: [orders]}}`, 1))})
	require.ErrorContains(t, err, "alerts: nothing can be published to the log of source")
}

func TestAlertsOfNoCauseAreAMistake(t *testing.T) {
	t.Parallel()
	for _, off := range []string{"dead: false", "disabled_endpoint: false", "dead: false, every: 1h"} {
		_, err := load(t, config.Source{File: write(t, strings.Replace(alerting, "every: 24h", off, 1))})
		require.ErrorContains(t, err, ":7: alerts: all causes are switched off: set one of those that you want", off)
	}
	_, err := load(t, config.Source{File: write(t, strings.Replace(alerting, "every: 24h", "dead: false, stalled: 5m", 1))})
	require.NoError(t, err)
}

func TestAlertsThatDifferNeedANewForwarder(t *testing.T) {
	t.Parallel()
	a, err := load(t, config.Source{File: write(t, alerting)})
	require.NoError(t, err)
	b, err := load(t, config.Source{File: write(t, strings.Replace(alerting, "24h", "12h", 1))})
	require.NoError(t, err)
	require.Equal(t, config.Changes{More: true}, a.ChangesTo(b))
	require.True(t, a.ChangesTo(a).None())
}

// block is a block of YAML in docs/alerts.md.
var block = regexp.MustCompile("(?s)```yaml\n(.*?)```")

func TestTheExamplesOfTheDocumentationAreRight(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/alerts.md")
	require.NoError(t, err)
	blocks := block.FindAllStringSubmatch(string(page), -1)
	require.Len(t, blocks, 2)
	whole := blocks[0][1]
	for want, text := range map[string]string{
		`{"text": "hello"}`: whole,
		`{"type": "message", "attachments": [{"contentType": "application/vnd.microsoft.card.adaptive", "content": {"type": "AdaptiveCard", "version": "1.4",
			"body": [{"type": "TextBlock", "wrap": true, "text": "hello"}, {"type": "TextBlock", "text": "waybill status"}]}}]}`: strings.Split(whole, "alerts:\n")[0] + blocks[1][1],
	} {
		source := config.Source{File: write(t, text), Environ: []string{"CHAT_URL=https://chat.example/secret"}}
		c, err := config.Load(source, config.Options{Kinds: setOf(t, httpsink.Kind(), email.Kind())})
		require.NoError(t, err)
		table, err := c.Table()
		require.NoError(t, err)
		shaped, err := table.To("chat").Shape(t.Context(), &notification.Envelope{Type: notification.AlertRaised, Version: 1, Payload: []byte(`{"sink": "partner", "text": "hello", "command": "waybill status"}`)})
		require.NoError(t, err)
		require.JSONEq(t, want, string(shaped.Payload))
	}
}
