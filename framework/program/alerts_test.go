package program

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
)

// refusing starts a destination that refuses everything for good.
func refusing(t testing.TB) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }))
	t.Cleanup(s.Close)
	return s
}

// got reports how often a receiver has received a body.
func (r *receiver) got(body string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[body]
}

// alertsIn counts the alerts in the log.
func (o outbox) alertsIn(t testing.TB) (n int) {
	t.Helper()
	require.NoError(t, o.db.QueryRow(`SELECT count(*) FROM outbox WHERE type LIKE 'waybill.alert.%'`).Scan(&n))
	return n
}

// judge makes a look due.
func (o outbox) judge(t testing.TB) {
	t.Helper()
	_, err := o.db.Exec(`UPDATE outbox_schedules SET next_tick = '2026-01-01T00:00:00.000000Z' WHERE name = '_alerts'`)
	require.NoError(t, err)
}

// lastLook returns the time of the last look, as text.
func (o outbox) lastLook(t testing.TB) (at string) {
	t.Helper()
	require.NoError(t, o.db.QueryRow(`SELECT coalesce(CAST(max(last_tick) AS text), '') FROM outbox_schedules WHERE name = '_alerts'`).Scan(&at))
	return at
}

// TestADeadDeliveryIsMailedAndPostedToAChatOnce runs two forwarders, kills both with SIGKILL, and starts a third.
func TestADeadDeliveryIsMailedAndPostedToAChatOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		mailbox, err := smtptest.Start(smtptest.Config{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, mailbox.Close()) })
		chat := newReceiver(t)
		file := writeFile(t, fmt.Sprintf(`
database: %q
forwarder: {lease: 1s}
sinks:
  partner: {kind: http, with: {url: %q}}
  ops-mail: {kind: email, with: {smtp: %q, from: waybill@example.com, alerts_to: ops@example.com}}
  chat: {kind: http, with: {url: %q}}
routes: {order.placed: [partner]}
alerts:
  to: [ops-mail, {sink: chat, payload: {text: payload.text}}]
  dead: true
`, o.address, refusing(t).URL, mailbox.URL(), chat.URL))
		first, second := start(t, "forward", "-c", file), start(t, "forward", "-c", file)
		require.Eventually(t, func() bool { return o.lastLook(t) != "" }, patience, 20*time.Millisecond)
		o.publish(t, 1, 1)
		require.Eventually(t, func() bool {
			var dead int
			require.NoError(t, o.db.QueryRow(`SELECT count(*) FROM outbox_parked WHERE state = 'dead'`).Scan(&dead))
			return dead == 1
		}, patience, 20*time.Millisecond)
		chat.await(t, 1)
		require.Eventually(t, func() bool { return mailbox.Count() == 1 }, patience, 20*time.Millisecond)
		require.Equal(t, 1, chat.got(`{"text":"partner: 1 delivery dead"}`))
		require.Equal(t, "[waybill] partner: 1 delivery dead", mailbox.Messages()[0].Subject())
		first.kill(t)
		second.kill(t)
		before := o.lastLook(t)
		o.judge(t)
		start(t, "forward", "-c", file)
		require.Eventually(t, func() bool { return o.lastLook(t) != before }, patience, 20*time.Millisecond)
		require.Equal(t, 1, o.alertsIn(t))
	})
}

func TestASinkGetsNoAlertAboutItself(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		file := writeFile(t, fmt.Sprintf(`
database: %q
sinks: {partner: {kind: http, with: {url: %q}}}
routes: {order.placed: [partner]}
alerts: {to: [partner], dead: true}
`, o.address, refusing(t).URL))
		o.publish(t, 1, 1)
		p := start(t, "forward", "-c", file)
		p.awaitLine(t, "an alert reaches no one: alerts.to names only the sink that it is about")
		require.Equal(t, 1, o.alertsIn(t))
		found := findings(t, waybill(t, "doctor", "-c", file, "--json", "--only", "alerts", "--timeout", "1m"))["alerts"]
		require.Equal(t, doctor.Warn, found.Status)
		require.Equal(t, "alerts.to names only the sink that the alert is about: partner: 1 delivery dead", found.Text)
		var dead int
		require.NoError(t, o.db.QueryRow(`SELECT count(*) FROM outbox_parked`).Scan(&dead))
		require.Equal(t, 1, dead, "the alert is not delivered, and so not dead")
		listed := waybill(t, "schedules", "-c", file, "--json")
		require.JSONEq(t, `[]`, listed.stdout, listed.stderr)
	})
}

func TestAFleetJudgesEachDatabase(t *testing.T) {
	t.Parallel()
	eu, us := databases["sqlite"](t), databases["postgres"](t)
	eu.migrate(t)
	us.migrate(t)
	chat := newReceiver(t)
	file := writeFile(t, fmt.Sprintf(`
databases: {eu: %q, us: %q}
sinks:
  partner: {kind: http, with: {url: %q}}
  chat: {kind: http, with: {url: %q}}
routes: {order.placed: [partner]}
alerts: {to: [{sink: chat, payload: {text: payload.text, command: payload.command}}], dead: true}
`, eu.address, us.address, refusing(t).URL, chat.URL))
	eu.publish(t, 1, 1)
	us.publish(t, 1, 1)
	start(t, "forward", "-c", file)
	chat.await(t, 2)
	require.Equal(t, 1, chat.got(`{"command":"waybill parked list --sink partner --state dead --in eu","text":"eu partner: 1 delivery dead"}`))
	require.Equal(t, 1, chat.got(`{"command":"waybill parked list --sink partner --state dead --in us","text":"us partner: 1 delivery dead"}`))
}
