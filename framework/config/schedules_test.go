package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/schedule"
	"github.com/waybill-go/waybill/registry"
)

const scheduled = `
database: sqlite:outbox.db
sinks: {partner: {kind: http, with: {url: "https://partner.example/"}}}
routes: {"*": [partner]}
schedules:
  cleanup: {every: 15m, type: cleanup.due, missed: skip}
  daily-report:
    cron: 0 9 * * MON-FRI
    zone: Europe/Berlin
    type: report.due
    key: "{{tick}}"
    payload: {tenant: "${TENANT}", at: "{{tick}}", pages: 3, to: [ada, "17", null]}
`

func TestSchedulesOfTheFileMakeNotifications(t *testing.T) {
	t.Parallel()
	c, err := load(t, config.Source{File: write(t, scheduled), Environ: []string{"TENANT=acme"}})
	require.NoError(t, err)
	timetable := c.Timetable()
	require.Len(t, timetable, 2)
	cleanup, report := timetable[0], timetable[1]
	require.Equal(t, "cleanup", cleanup.Name)
	require.Equal(t, "every 15m", cleanup.When.String())
	require.Equal(t, schedule.Skip, cleanup.Missed)
	made, err := cleanup.Make(t.Context(), time.Time{})
	require.NoError(t, err)
	require.Equal(t, notification.Envelope{Type: "cleanup.due", Version: 1, Payload: []byte(`{}`)}, made)

	require.Equal(t, "0 9 * * MON-FRI Europe/Berlin", report.When.String())
	made, err = report.Make(t.Context(), time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC))
	require.NoError(t, err)
	e := made.(notification.Envelope)
	require.Equal(t, "2026-03-02T08:00:00Z", e.Key)
	require.JSONEq(t, `{"tenant": "acme", "at": "2026-03-02T08:00:00Z", "pages": 3, "to": ["ada", "17", null]}`, string(e.Payload))
}

type reportDue struct{ Pages int }

func TestTypesOfSchedulesMustBeRegistered(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[reportDue](types, "report.due", registry.Aliases("ReportDue"), registry.Version(3),
		registry.Upcast(1, func(r reportDue) (reportDue, error) { return r, nil }), registry.Upcast(2, func(r reportDue) (reportDue, error) { return r, nil })))
	_, err := config.Load(config.Source{File: write(t, `
database: sqlite:outbox.db
sinks: {partner: {kind: http, with: {url: "https://partner.example/"}}}
routes: {"report.due": [partner]}
schedules:
  known: {every: 15m, type: report.due, payload: {Pages: 3}}
  alias: {every: 15m, type: ReportDue}
  unknown: {every: 15m, type: report.deu}
  wrong: {every: 15m, type: report.due, payload: {Pages: many}}
`)}, config.Options{Kinds: kinds(t), Types: types})
	var mistakes *config.Error
	require.ErrorAs(t, err, &mistakes)
	require.Len(t, mistakes.Mistakes, 2)
	require.ErrorContains(t, err, `:8: schedules.unknown.type: the program has no type "report.deu"; did you mean report.due?`)
	require.ErrorContains(t, err, ":9: schedules.wrong.payload: ")

	c, err := config.Load(config.Source{File: write(t, `
database: sqlite:outbox.db
sinks: {partner: {kind: http, with: {url: "https://partner.example/"}}}
routes: {"report.due": [partner]}
schedules: {known: {every: 15m, type: report.due}}
`)}, config.Options{Kinds: kinds(t), Types: types})
	require.NoError(t, err)
	made, err := c.Timetable()[0].Make(t.Context(), time.Now())
	require.NoError(t, err)
	require.Equal(t, 3, made.(notification.Envelope).Version)
}

func TestSchedulesDoNotPreventOtherCommands(t *testing.T) {
	t.Parallel()
	source := config.Source{File: write(t, scheduled)} // TENANT is not set
	_, err := config.LoadTables(source)
	require.NoError(t, err)
	_, err = config.LoadRoutes(source, config.Options{Kinds: kinds(t)})
	require.NoError(t, err)
	_, err = config.LoadDeliveries(source, config.Options{Kinds: kinds(t)})
	require.NoError(t, err)
}

func TestSchedulesThatDifferAreAChange(t *testing.T) {
	t.Parallel()
	a, err := load(t, config.Source{File: write(t, scheduled), Environ: []string{"TENANT=acme"}})
	require.NoError(t, err)
	b, err := load(t, config.Source{File: write(t, scheduled), Environ: []string{"TENANT=other"}})
	require.NoError(t, err)
	require.Equal(t, config.Changes{Schedules: true}, a.ChangesTo(b))
	require.True(t, a.ChangesTo(a).None())
}

func TestCommandsReadTheRoutesWithoutTheVariablesOfForwarders(t *testing.T) {
	t.Parallel()
	source := config.Source{File: write(t, `
database: sqlite:outbox.db
forwarder: {name: "shop-${PORT}", lease: "${LEASE}", unrouted: ignore}
observe: {address: "127.0.0.1:${PORT}"}
sinks: {partner: {kind: http, with: {url: "${PARTNER_URL}"}}}
routes: {"*": [partner]}
`)}
	c, err := config.LoadRoutes(source, config.Options{Kinds: kinds(t)})
	require.NoError(t, err)
	require.Equal(t, forwarder.UnroutedIgnore, c.Forwarder.Unrouted)
}
