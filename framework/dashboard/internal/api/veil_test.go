package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/dashboard/internal/masks"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// answered is what a receiver answers: it repeats a part of the payload that is masked, and says more.
const answered = `permanent: POST http://127.0.0.1: 422 Unprocessable Entity: {"received":"{\"Email\":\"ada@example.org\"}","said":"ada@example.org is no customer of ours"}`

// readers are all GETs that show something of a notification or a sink.
var readers = []string{
	"/status", "/sinks", "/sinks/mail", "/parked", "/parked/counts", "/parked/causes", "/notifications/n1", "/notifications/n1/trace", "/forwarders", "/health/sinks", "/health/sinks/mail", "/log", "/actions", "/types",
}

// echoing is an outbox whose receivers repeat what they get, wherever their answers are kept.
func echoing(t *testing.T, o *outbox) *site {
	t.Helper()
	hidden := masks.Of(map[string][]string{"order.*": {"email"}})
	o.publish(t, "n1", "order.placed", "k", `{"email":"ada@example.org"}`)
	o.publish(t, "n2", "order.placed", "k", `{"email":"ada@example.org"}`)
	failed := func(offset int, state store.State) store.Parked {
		p := dead(offset, "k")
		p.State, p.LastError, p.Envelope.Payload = state, answered, []byte(`{"email":"ada@example.org"}`)
		p.Attempts = []store.PastAttempt{{Class: "permanent", Error: strings.TrimPrefix(answered, "permanent: ")}, {Class: "timeout", Error: `"Email":"ada@example.org" does not answer`}}
		return p
	}
	settling := failed(1, store.StateDead)
	settling.HookError, settling.DueAt = answered, time.Now().Add(time.Hour)
	o.park(t, "mail", settling, failed(2, store.StateBlocked))
	states := map[string]store.SinkState{"mail": {
		BreakerOpen: true, OpenSince: time.Now(), Cause: answered,
		Destinations: []store.DestinationState{{Destination: "a", OpenSince: time.Now(), Cause: answered}, {Destination: "b", ThrottledUntil: time.Now().Add(time.Hour), Cause: answered}}, AllDestinations: 2,
	}}
	running := store.Running{Sinks: []store.SinkRunning{{Sink: "mail", BreakerOpen: true, Cause: answered}}}
	require.NoError(t, o.store.Heartbeat(t.Context(), store.Member{Owner: "f1", Sinks: []string{"mail"}, States: states, Running: running}, time.Hour))
	return serveMasked(t, &target.Target{Store: o.store, Routing: routing(t)}, hidden)
}

func TestViewersGetTheClassesOfReceiversErrorsOnly(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		s := echoing(t, o)
		classes := 0
		for _, path := range readers {
			a := s.look(t, path)
			require.NotContains(t, a.text, "ada@example.org", path)
			require.NotContains(t, a.text, "is no customer", path)
			classes += strings.Count(a.text, "permanent, http 422")
		}
		require.NotZero(t, classes)
		parked := s.look(t, "/parked").text
		require.Contains(t, parked, `"class": "permanent",
      "last_error": "http 422",
      "attempts": [`)
		require.Regexp(t, `"class": "permanent",\s+"error": "http 422",\s+"forwarder":`, parked)
		require.Regexp(t, `"class": "timeout",\s+"forwarder":`, parked)
	})
}

func TestViewersCannotGuessTheTextsOfErrorsByAFilter(t *testing.T) {
	t.Parallel()
	s := echoing(t, onSQLite(t))
	for _, path := range []string{"/parked?error=ada@example.org", "/parked/counts?error=customer", "/parked?error=nothing"} {
		require.Equal(t, http.StatusForbidden, s.look(t, path).status, path)
		require.Equal(t, http.StatusOK, s.inspect(t, path).status, path)
	}
}

func TestNobodyCanGuessMaskedMetadataByAFilter(t *testing.T) {
	t.Parallel()
	o := onSQLite(t)
	acme := dead(1, "k")
	acme.Envelope.Metadata = notification.Metadata{"tenant": "acme", "email": "ada@example.org"}
	o.park(t, "mail", acme, dead(2, "k"))
	s := serveMasked(t, &target.Target{Store: o.store, Routing: routing(t)}, masks.Of(map[string][]string{"order.*": {"customer.email"}}))
	for _, path := range []string{"/parked", "/parked/counts"} {
		require.Equal(t, http.StatusBadRequest, s.inspect(t, path+"?metadata=Email=ada@example.org").status)
		require.Equal(t, http.StatusOK, s.look(t, path+"?metadata=tenant=acme").status)
	}
	require.Len(t, s.look(t, "/parked?metadata=tenant=acme").body["parked"], 1)
	for _, action := range []string{"discard", "reroute"} {
		body := `{"action": "` + action + `", "filter": {"metadata": {"email": "ada@example.org"}}}`
		require.Equal(t, http.StatusBadRequest, s.act(t, "/plans", body).status, action)
	}
}

func TestOperatorsGetReceiversErrorsWithMasks(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		s := echoing(t, o)
		for _, path := range readers {
			require.NotContains(t, s.inspect(t, path).text, `Email\\\":\\\"ada@example.org`, path)
		}
		for _, path := range []string{"/parked", "/notifications/n1", "/notifications/n1/trace", "/status", "/health/sinks"} {
			require.Contains(t, s.inspect(t, path).text, "is no customer", path)
		}
		for _, path := range []string{"/notifications/n1", "/notifications/n1/trace"} {
			require.NotContains(t, s.inspect(t, path).text, "ada@example.org", path)
		}
	})
}

func TestFindingsOfTheDoctorAreMasked(t *testing.T) {
	t.Parallel()
	o := onSQLite(t)
	check := func(context.Context, ...string) []doctor.Finding {
		return []doctor.Finding{{ID: "hooks", Status: doctor.Warn, Text: `a hook fails, such as: Key (email)=(ada@example.org) exists`}}
	}
	s := serveMasked(t, &target.Target{Store: o.store, Routing: routing(t), Doctor: check}, masks.Of(map[string][]string{"order.*": {"email"}}))
	for range 2 { // the second one is of a cached run
		a := s.inspect(t, "/doctor")
		require.Contains(t, a.text, "a hook fails, such as: Key (email)=•••")
		require.NotContains(t, a.text, "ada@example.org")
	}
}

func TestReceiptsAndMetadataAreMasked(t *testing.T) {
	t.Parallel()
	o := onSQLite(t)
	hidden := masks.Of(map[string][]string{"order.*": {"email"}})
	_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (id, type, metadata, payload) VALUES ('n1', 'order.placed', '{"EMAIL":"ada@example.org"}', '{"email":"ada@example.org"}')`)
	require.NoError(t, err)
	receipt := store.Receipt{Offset: 1, ID: "n1", Receipt: notification.Receipt("http 202 ada@example.org"), Attempt: 1, DeliveredAt: time.Now()}
	o.settle(t, "mail", []store.Receipt{receipt}, nil)
	s := serveMasked(t, &target.Target{Store: o.store, Routing: routing(t)}, hidden)
	for _, a := range []answer{s.look(t, "/notifications/n1"), s.inspect(t, "/notifications/n1"), s.inspect(t, "/notifications/n1?payload=1"), s.look(t, "/notifications/n1/trace"), s.inspect(t, "/notifications/n1/trace")} {
		require.Contains(t, a.text, "http 202")
		require.NotContains(t, a.text, "ada@example.org")
	}
}
