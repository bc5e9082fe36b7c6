package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/api"
	"github.com/waybill-go/waybill/framework/dashboard/internal/masks"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
)

func TestTheDescriptionHasExactlyTheRoutes(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	var document struct {
		OpenAPI string `json:"openapi"`
		Paths   map[string]map[string]any
	}
	require.NoError(t, json.Unmarshal(s.get(t, "/openapi.json"), &document))
	require.Equal(t, "3.1.0", document.OpenAPI)
	var described []string
	for path, methods := range document.Paths {
		for method := range methods {
			if method != "parameters" {
				described = append(described, strings.ToUpper(method)+" "+path)
			}
		}
	}
	require.ElementsMatch(t, append(api.Patterns(), "GET /openapi.json"), described)
}

func TestEachGETMatchesTheDescription(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		findings := []doctor.Finding{{ID: "primary", Status: doctor.OK, Text: "a primary", Why: "w", Link: "l"}}
		s := serve(t, &target.Target{
			Store: o.store, Routing: routing(t),
			Doctor:        func(context.Context, ...string) []doctor.Finding { return findings },
			Configuration: func() ([]byte, error) { return []byte("outbox:\n  retention: 72h\n"), nil },
		})
		looks := []string{"/status", "/sinks", "/parked", "/parked/counts", "/log", "/actions", "/schedules", "/forwarders", "/types", "/config", "/doctor", "/health/sinks"}
		for _, path := range looks {
			a := s.inspect(t, path)
			if path != "/health/sinks" { // this path returns 503, since no forwarder runs
				require.Equal(t, http.StatusOK, a.status, "%s: %s", path, a.text)
			}
		}

		o.publish(t, "n1", "order.placed", "k", `{"secret": 1}`)
		o.publish(t, "n2", "order.placed", `<script>alert(1)</script>`, `{}`)
		o.park(t, "mail", dead(1, "k"), dead(2, `"'<b>&`+strings.Repeat("x", 10_000)))
		require.NoError(t, o.store.AddSchedule(t.Context(), "daily"))
		_, err := admin.New(o.store, "ada").Pause(t.Context(), "mail")
		require.NoError(t, err)
		for _, path := range append(looks, "/sinks/mail", "/health/sinks/mail", "/notifications/n1", "/notifications/n1/trace", "/parked?state=dead&state=retrying&older_than=1m&type=order.*&error=BOOM&metadata=tenant=acme&metadata=a=b", "/doctor?only=primary") {
			a := s.inspect(t, path)
			if !strings.HasPrefix(path, "/health/") {
				require.Equal(t, http.StatusOK, a.status, "%s: %s", path, a.text)
			}
		}
		a := s.look(t, "/sinks/mail")
		require.EqualValues(t, 2, a.body["parked"].(map[string]any)["dead"])
		require.Equal(t, map[string]any{"retention": "72h"}, s.look(t, "/config").body["outbox"])
	})
}

func TestOnlyOperatorsGetPayloadsAndThatIsLogged(t *testing.T) {
	t.Parallel()
	o := onSQLite(t)
	s := serve(t, &target.Target{Store: o.store, Routing: routing(t)})
	o.publish(t, "n1", "order.placed", "k", `{"secret": 1}`)
	a := s.look(t, "/notifications/n1")
	require.NotContains(t, a.text, "secret")
	require.EqualValues(t, len(`{"secret": 1}`), a.body["payload_bytes"])
	require.Equal(t, http.StatusForbidden, s.look(t, "/notifications/n1?payload=1").status)
	require.NotContains(t, s.log.String(), "looked at")
	a = s.do(t, operator, http.MethodGet, "/notifications/n1?payload=1", "")
	require.Equal(t, map[string]any{"secret": 1.0}, a.body["payload"])
	require.Contains(t, s.log.String(), `msg="a payload was viewed" user=ada address=127.0.0.1 id=n1`)
}

func TestMasksApplyToTheAPI(t *testing.T) {
	t.Parallel()
	o := onSQLite(t)
	hidden := masks.Of(map[string][]string{"order.*": {"secret"}})
	s := serveMasked(t, &target.Target{Store: o.store}, hidden)
	o.publish(t, "masked", "order.placed", "", `{"secret": 4711, "n": 12345678901234567890}`)
	o.publish(t, "nothing", "order.placed", "", `{"n": 1}`)
	o.publish(t, "text", "order.placed", "", `secret=4711`)
	o.publish(t, "other", "parcel", "", `{"secret": 4711}`)
	for id, want := range map[string]struct{ payload, masked any }{
		"masked":  {map[string]any{"secret": "•••", "n": json.Number("12345678901234567890")}, true},
		"nothing": {map[string]any{"n": json.Number("1")}, nil},
		"text":    {nil, true},
		"other":   {map[string]any{"secret": json.Number("4711")}, nil},
	} {
		a := s.do(t, operator, http.MethodGet, "/notifications/"+id+"?payload=1", "")
		var body map[string]any
		d := json.NewDecoder(strings.NewReader(a.text))
		d.UseNumber()
		require.NoError(t, d.Decode(&body))
		require.Equal(t, want.payload, body["payload"], a.text)
		require.Equal(t, want.masked, body["masked"], a.text)
		require.Equal(t, id == "other", strings.Contains(a.text, "4711"), a.text)
	}
}

func TestANotificationIsFoundByItsOffset(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		s := serve(t, &target.Target{Store: o.store})
		o.publish(t, "twice", "order.placed", "", `{}`)
		o.publish(t, "twice", "order.moved", "", `{}`)
		require.Equal(t, "order.placed", s.look(t, "/notifications/twice?offset=1").body["type"])
		require.Equal(t, "order.moved", s.look(t, "/notifications/twice?offset=2").body["type"])
	})
}

func TestTheLogIsPagedFromTheNewestRow(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		s := serve(t, &target.Target{Store: o.store})
		type page struct {
			Rows     []admin.RowView
			Searched *store.Row
			Next     string
		}
		all := func(query string) (ids []string, last page) {
			t.Helper()
			for next := ""; ; next = last.Next {
				last = page{}
				s.look(t, "/log?limit=2&"+query+"&cursor="+next).into(t, &last)
				for _, row := range last.Rows {
					ids = append(ids, row.ID)
				}
				if last.Next == "" {
					return ids, last
				}
			}
		}
		ids, last := all("")
		require.Empty(t, ids)
		require.Nil(t, last.Searched)

		for i := range 5 {
			o.publish(t, fmt.Sprint("n", i+1), []string{"order.placed", "order.moved"}[i%2], "<k>", `{"secret": 1}`)
		}
		_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (id, type, payload, occurred_on, deliver_at) VALUES ('old', 'parcel', '{}', '2026-01-02T03:04:05.000000Z', '2126-01-02T03:04:05.000000Z')`)
		require.NoError(t, err)
		ids, last = all("")
		require.Equal(t, []string{"old", "n5", "n4", "n3", "n2", "n1"}, ids)
		require.EqualValues(t, 1, last.Searched.Offset)
		for query, want := range map[string][]string{
			"type=order.placed":                          {"n5", "n3", "n1"},
			"type=order.*&key=" + url.QueryEscape("<k>"): {"n5", "n4", "n3", "n2", "n1"},
			"key=none": nil,
			"id=n2":    {"n2"},
			"since=2026-01-03T00:00:00Z&type=order.moved":              {"n4", "n2"},
			"until=2026-01-02T05:04:06%2b02:00":                        {"old"},
			"since=0001-01-01T00:00:01Z&until=9999-12-31T23:59:59.99Z": {"old", "n5", "n4", "n3", "n2", "n1"},
		} {
			ids, _ = all(query)
			require.Equal(t, want, ids, query)
		}
		a := s.look(t, "/log?limit=1")
		require.NotContains(t, a.text, "secret")
		require.Equal(t, "2126-01-02T03:04:05Z", a.body["rows"].([]any)[0].(map[string]any)["deliver_at"])
		require.EqualValues(t, 6, a.body["searched"].(map[string]any)["offset"])
	})
}

func TestForwardersHaveTheSameFormInTheStatus(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		s := serve(t, &target.Target{Store: o.store})
		o.park(t, "mail")
		o.park(t, store.SinkUnrouted)
		require.NoError(t, o.store.Heartbeat(t.Context(), store.Member{Owner: "f0"}, time.Hour))
		require.NoError(t, o.store.Heartbeat(t.Context(), store.Member{
			Owner: "f1", Sinks: []string{"mail", "web"},
			States:  map[string]store.SinkState{"mail": {BreakerOpen: true, OpenSince: time.Now(), Cause: "refused", Destinations: []store.DestinationState{{Destination: "a"}}, AllDestinations: 1}},
			Running: store.Running{Version: "v1", Settings: "abc", Checkpoint: 1500 * time.Millisecond, Sinks: []store.SinkRunning{{Sink: "mail", Delivered: 7, PerSecond: 0.5, Threshold: 8, BreakerOpen: true, Cause: "refused"}}},
		}, time.Hour))
		a := s.look(t, "/forwarders")
		require.Equal(t, s.look(t, "/status").body["forwarders"], a.body["forwarders"])
		var living struct{ Forwarders []admin.ForwarderStatus }
		a.into(t, &living)
		require.Len(t, living.Forwarders, 2)
		f := living.Forwarders[1]
		require.Equal(t, "f1", f.Forwarder)
		require.WithinDuration(t, time.Now(), f.SeenAt, time.Hour)
		require.False(t, f.Since.After(f.SeenAt))
		require.Equal(t, map[string]int{"mail": 1, store.SinkUnrouted: 1}, f.Lanes)
		require.Equal(t, []string{"mail", "web"}, f.Sinks)
		require.InDelta(t, 1.5, f.CheckpointSeconds, 0)
		require.EqualValues(t, 7, f.Running[0].Delivered)
		require.True(t, f.States["mail"].BreakerOpen)
		require.Equal(t, []string{"v1", "abc"}, []string{f.Version, f.Settings})
		require.Contains(t, a.text, `"running": [],`, "f0 has done nothing yet")
	})
}

type orderPaid struct{ Order string }

func TestTypesHaveTheirRoutesAndRegistrations(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		types := registry.New()
		require.NoError(t, registry.Register[orderPaid](types, "order.paid", registry.Version(2), registry.Oldest(2), registry.Aliases("order.settled")))
		routes, err := route.New(route.Routes{"order.paid": {{Sink: "mail", When: "payload.n > 1", Payload: map[string]string{"n": "payload.n"}}}}, []string{"mail"}, types)
		require.NoError(t, err)
		how := admin.Routing{Routes: routes, Unrouted: "park"}
		s := serve(t, &target.Target{Store: o.store, Routing: how, Types: types})
		o.publish(t, "n1", "order.settled", "", `{}`)
		o.publish(t, "n2", "parcel", "", `{}`)
		counts, err := admin.New(o.store, "").Types(t.Context(), 100)
		require.NoError(t, err)
		want, err := json.Marshal(map[string]any{"types": admin.Types(counts, how, types)})
		require.NoError(t, err)
		a := s.look(t, "/types")
		require.JSONEq(t, string(want), a.text)
		for _, text := range []string{`"unrouted": "park"`, `"decodes": false`, `"aliases": [`, `"when": "payload.n \u003e 1"`} {
			require.Contains(t, a.text, text)
		}
	})
}

func TestTheSchemaOfAVersionIsServed(t *testing.T) {
	t.Parallel()
	set := new(contract.Set)
	const odd = `<b>"a/b"</b>`
	for _, name := range []string{"order.paid", odd} {
		require.NoError(t, set.Add(contract.About{Type: name, Version: 2, Aliases: []string{name + ".old"}}, []byte(`{"title": "<b>", "properties": {"z": {}, "a": {}}}`)))
	}
	s := serve(t, &target.Target{Store: onSQLite(t).store, Contracts: func() (*contract.Set, error) { return set, nil }})
	for _, name := range []string{"order.paid", "order.paid.old", odd} {
		a := s.inspect(t, "/types/"+url.PathEscape(name)+"/2/schema")
		require.Equal(t, http.StatusOK, a.status, a.text)
		require.JSONEq(t, `{"title": "<b>", "properties": {"z": {}, "a": {}}}`, a.text)
		require.Less(t, strings.Index(a.text, `"z"`), strings.Index(a.text, `"a"`), "the order of the schema")
	}
	for path, status := range map[string]int{"/types/order.paid/1/schema": 404, "/types/order.shipped/2/schema": 404, "/types/order.paid/x/schema": 400, "/types/order.paid/0/schema": 400} {
		require.Equal(t, status, s.look(t, path).status, path)
	}
	s = serve(t, &target.Target{Store: onSQLite(t).store})
	require.Equal(t, http.StatusNotFound, s.look(t, "/types/order.paid/2/schema").status, "a program without contracts")
}

func TestTheSearchOfOnePageOfParkedDeliveriesIsLimited(t *testing.T) {
	t.Parallel()
	o := onSQLite(t)
	s := serve(t, &target.Target{Store: o.store})
	o.park(t, "mail", dead(1, ""), dead(100_000, "last"))
	_, err := o.db.ExecContext(t.Context(), `WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
		INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, "key", occurred_on, metadata, payload, state, attempt)
		SELECT sink, i, slot, 'm' || i, type, version, "key", occurred_on, metadata, payload, state, attempt FROM n, outbox_parked WHERE id = 'n1'`)
	require.NoError(t, err)
	page, pages := s.look(t, "/parked?key=last"), 1
	for ; len(page.body["parked"].([]any)) == 0; pages++ {
		page = s.look(t, "/parked?key=last&cursor="+page.body["next"].(string))
	}
	require.Equal(t, "n100000", page.body["parked"].([]any)[0].(map[string]any)["id"])
	require.NotContains(t, page.body, "next")
	require.Greater(t, pages, 1)
}

func TestParkedDeliveriesComeInPagesEachOnce(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		s := serve(t, &target.Target{Store: o.store})
		o.park(t, "mail", deads(5)...)
		var got []string
		next := ""
		for {
			a := s.look(t, "/parked?sink=mail&limit=2&cursor="+url.QueryEscape(next))
			var page struct {
				Parked []admin.ParkedView
				Next   string
			}
			a.into(t, &page)
			for _, p := range page.Parked {
				got = append(got, p.ID)
			}
			if next = page.Next; next == "" {
				break
			}
		}
		require.Equal(t, []string{"n1", "n2", "n3", "n4", "n5"}, got)
		a := s.look(t, "/parked/counts?sink=mail")
		require.Equal(t, []any{map[string]any{"sink": "mail", "state": "dead", "count": 5.0}}, a.body["counts"])
	})
}

func TestAHealthySinkIs200AndAnUnhealthyOne503WithReasons(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		s := serve(t, &target.Target{Store: o.store, Routing: routing(t)})
		o.park(t, "mail", deads(2)...)
		require.NoError(t, o.store.Heartbeat(t.Context(), store.Member{Owner: "f1", Sinks: []string{"mail"}}, time.Hour))
		for query, want := range map[string]int{"": http.StatusServiceUnavailable, "?max_dead=2": http.StatusOK} {
			a := s.look(t, "/health/sinks/mail"+query)
			require.Equal(t, want, a.status, a.text)
			require.Equal(t, want, s.look(t, "/health/sinks"+query).status)
			reasons := a.body["sinks"].([]any)[0].(map[string]any)["reasons"].([]any)
			require.Equal(t, want == http.StatusOK, len(reasons) == 0)
			if len(reasons) > 0 {
				require.Equal(t, []any{map[string]any{"reason": "dead", "text": "2 deliveries dead: an error"}}, reasons)
			}
		}
	})
}

func TestASinkThatIsResumedHasTimeToBeTaken(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		s := serve(t, &target.Target{Store: o.store, Routing: routing(t)})
		o.park(t, "mail")
		require.NoError(t, o.store.Heartbeat(t.Context(), store.Member{Owner: "f1", Sinks: []string{"mail"}}, time.Hour))
		s.act(t, "/sinks/mail/pause", "")
		require.Equal(t, http.StatusServiceUnavailable, s.look(t, "/health/sinks").status)
		_, err := o.db.ExecContext(t.Context(), `UPDATE outbox_cursors SET owner = NULL, lease_until = NULL, updated_at = '2026-01-02T03:04:05.000000Z' WHERE sink = 'mail'`)
		require.NoError(t, err)
		s.act(t, "/sinks/mail/resume", "")
		require.NoError(t, o.store.Heartbeat(t.Context(), store.Member{Owner: "f1", Sinks: []string{"mail"}}, time.Hour))
		a := s.look(t, "/health/sinks")
		require.Equal(t, http.StatusOK, a.status, a.text)
	})
}

func TestEachInvalidRequestIsAProblem(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		s := serve(t, &target.Target{Store: o.store, Routing: routing(t)})
		o.park(t, "mail", deads(1)...)
		for _, wrong := range []struct {
			method, path, body string
			want               int
		}{
			{"GET", "/nothing", "", 404},
			{"GET", "/", "", 404},
			{"GET", "//sinks", "", 404},
			{"GET", "/sinks/", "", 404},
			{"GET", "/sinks/mial", "", 404},
			{"GET", "/sinks/..%2f..%2fetc", "", 404},
			{"GET", "/health/sinks/mial", "", 404},
			{"DELETE", "/actions", "", 405},
			{"PUT", "/sinks/mail", "{}", 405},
			{"POST", "/status", "{}", 405},
			{"GET", "/plans", "", 405},
			{"GET", "/actions/none", "", 404},
			{"GET", "/actions/%00", "", 400},
			{"GET", "/notifications/none", "", 404},
			{"GET", "/notifications/%00", "", 400},
			{"GET", "/notifications/%ff", "", 400},
			{"GET", "/notifications/n1?payload=2", "", 400},
			{"GET", "/notifications/n1/trace?from=-1", "", 400},
			{"GET", "/notifications/n1/trace?from=99999999999999999999", "", 400},
			{"GET", "/parked?limit=0", "", 400},
			{"GET", "/parked?limit=1&limit=2", "", 400},
			{"GET", "/parked?limit=1e9", "", 400},
			{"GET", "/parked?stat=dead", "", 400},
			{"GET", "/parked?state=alive", "", 400},
			{"GET", "/parked?key=%00", "", 400},
			{"GET", "/parked?key=%ff", "", 400},
			{"GET", "/parked?key=%zz", "", 400},
			{"GET", "/parked?cursor=x", "", 400},
			{"GET", "/parked?cursor=WzEsMiwzXQ", "", 400},
			{"GET", "/parked?metadata=tenant", "", 400},
			{"GET", "/parked?metadata==acme", "", 400},
			{"GET", "/parked?metadata=a=b&metadata=a=c", "", 400},
			{"GET", "/parked?older_than=-1h", "", 400},
			{"GET", "/parked?older_than=9999999999h", "", 400},
			{"GET", "/parked?type=order.*.x", "", 400},
			{"GET", "/parked/counts?sink=mial", "", 404},
			{"GET", "/types?rows=0", "", 400},
			{"GET", "/notifications/n1?offset=-1", "", 400},
			{"GET", "/notifications/n1?offset=x", "", 400},
			{"GET", "/log?type=order.*.x", "", 400},
			{"GET", "/log?key=%00", "", 400},
			{"GET", "/log?id=%ff", "", 400},
			{"GET", "/log?since=6h", "", 400},
			{"GET", "/log?since=0000-01-01T00:00:00Z", "", 400},
			{"GET", "/log?until=9999-12-31T23:59:59-23:59", "", 400},
			{"GET", "/log?since=2026-01-02T00:00:00Z&until=2026-01-02T00:00:00Z", "", 400},
			{"GET", "/log?cursor=-1", "", 400},
			{"GET", "/log?cursor=WzEsMiwzXQ", "", 400},
			{"GET", "/log?limit=501", "", 400},
			{"GET", "/log?sink=mail", "", 400},
			{"GET", "/config", "", 404},
			{"GET", "/doctor", "", 404},
			{"GET", "/doctor?only=nothing", "", 400},
			{"GET", "/health/sinks?max_lag=soon", "", 400},
			{"GET", "/health/sinks?max_dead=-1", "", 400},
			{"GET", "/health/sinks?max_dead=10000", "", 400},
			{"POST", "/plans", "", 415},
			{"POST", "/plans", "{", 400},
			{"POST", "/plans", "null", 400},
			{"POST", "/plans", "[]", 400},
			{"POST", "/plans", `{"action": "discard", "filter": {}} {}`, 400},
			{"POST", "/plans", `{"action": "discard", "filter": {"sinks": ["mail"]}}`, 400},
			{"POST", "/plans", `{"action": "discard", "filter": {}, "expect": 1}`, 400},
			{"POST", "/plans", `{"action": "discard"}`, 400},
			{"POST", "/plans", `{"action": "forget", "filter": {}}`, 400},
			{"POST", "/plans", `{"action": "skip", "filter": {"states": ["dead"]}}`, 400},
			{"POST", "/plans", `{"action": "requeue", "filter": {"states": ["blocked"]}}`, 400},
			{"POST", "/plans", `{"action": "discard", "filter": {"key": "\u0000"}}`, 400},
			{"POST", "/plans", `{"action": "discard", "filter": {"metadata": {"": "x"}}}`, 400},
			{"POST", "/plans", `{"action": "discard", "filter": {"older_than": "soon"}}`, 400},
			{"POST", "/plans", `{"action": "discard", "filter": {"type": "\u0000"}}`, 400},
			{"POST", "/plans", `{"action": "discard", "filter": {"sink": "mial"}}`, 404},
			{"POST", "/plans", `{"action": "replay", "filter": {}}`, 400},
			{"POST", "/plans", `{"action": "replay", "replay": {"sink": "none"}}`, 400},
			{"POST", "/plans", `{"action": "replay", "replay": {"sink": "mail", "rate": -1}}`, 400},
			{"POST", "/plans", `{"action": "replay", "replay": {"sink": "mail", "up_to": -1}}`, 400},
			{"POST", "/plans", `{"action": "replay", "replay": {"sink": "mail", "routed": {}}}`, 400},
			{"POST", "/plans", `{"action": "purge", "filter": {}}`, 400},
			{"POST", "/plans", `{"action": "purge", "purge": {}}`, 400},
			{"POST", "/plans", `{"action": "purge", "purge": {"keys": [""]}}`, 400},
			{"POST", "/plans", `{"action": "purge", "purge": {"ids": ["\u0000"]}}`, 400},
			{"POST", "/plans", `{"action": "discard", "filter": {}, "purge": {"keys": ["k"]}}`, 400},
			{"POST", "/plans", strings.Repeat(" ", 70_000), 413},
			{"POST", "/actions", `{"action": "discard", "filter": {}}`, 400},
			{"POST", "/actions", `{"action": "discard", "filter": {}, "expect": -1}`, 400},
			{"POST", "/actions", `{"action": "discard", "filter": {}, "expect": 0}`, 409},
			{"POST", "/actions", `{"action": "discard", "filter": {}, "expect": 9, "reason": "\u0000"}`, 400},
			{"POST", "/actions", `{"action": "discard", "filter": {}, "expect": 9, "planned_at": "now"}`, 400},
			{"POST", "/actions/none/cancel", "", 404},
			{"POST", "/actions/none/cancel", `{"x": 1}`, 400},
			{"POST", "/actions/none/continue", "", 404},
			{"POST", "/sinks/mail/pause", `{"because": 1}`, 400},
			{"POST", "/sinks/mail/pause?reason=x", "", 400},
		} {
			a := s.do(t, operator, wrong.method, wrong.path, wrong.body)
			require.Equal(t, wrong.want, a.status, "%s %s %.80s: %s", wrong.method, wrong.path, wrong.body, a.text)
			require.NotEmpty(t, a.body["detail"])
			if wrong.want == http.StatusMethodNotAllowed {
				require.NotEmpty(t, a.header.Get("Allow"))
			}
		}
		long := s.act(t, "/actions", `{"action": "discard", "filter": {}, "expect": 9}`, "Idempotency-Key", strings.Repeat("k", 300))
		require.Equal(t, http.StatusBadRequest, long.status)
		form := s.act(t, "/actions", `action=discard`, "Content-Type", "application/x-www-form-urlencoded")
		require.Equal(t, http.StatusUnsupportedMediaType, form.status)
		require.Empty(t, s.look(t, "/actions").body["actions"])
		require.NotContains(t, s.log.String(), "level=ERROR")
	})
}

func TestTheRoleIsCheckedFirst(t *testing.T) {
	t.Parallel()
	o := onSQLite(t)
	s := serve(t, &target.Target{Store: o.store, Routing: routing(t)})
	for _, pattern := range api.Patterns() {
		method, path, _ := strings.Cut(pattern, " ")
		path = strings.NewReplacer("{sink}", "mail", "{id}", "n1").Replace(path)
		require.Equal(t, http.StatusForbidden, s.do(t, access.User{}, method, path, "").status, pattern)
		if method == http.MethodPost {
			require.Equal(t, http.StatusForbidden, s.do(t, viewer, method, path, "").status, pattern)
		}
	}
}

func TestWithoutADatabaseEachRequestIs503(t *testing.T) {
	t.Parallel()
	none := serve(t, nil)
	for _, pattern := range api.Patterns() {
		method, path, _ := strings.Cut(pattern, " ")
		path = strings.NewReplacer("{sink}", "mail", "{id}", "n1").Replace(path)
		a := none.do(t, operator, method, path, "")
		require.Equal(t, http.StatusServiceUnavailable, a.status, pattern)
		require.Equal(t, "5", a.header.Get("Retry-After"))
	}
}

func TestTheChecksRunForOneRequestAtATimeAndForOperatorsOnly(t *testing.T) {
	t.Parallel()
	o := onSQLite(t)
	runs := 0
	begun, end := make(chan struct{}), make(chan struct{})
	s := serve(t, &target.Target{Store: o.store, Doctor: func(context.Context, ...string) []doctor.Finding {
		if runs++; runs == 1 {
			close(begun)
			<-end
		}
		return []doctor.Finding{{ID: "primary", Status: doctor.OK, Text: fmt.Sprint("run ", runs), Why: "w", Link: "l"}}
	}})
	require.Equal(t, http.StatusForbidden, s.look(t, "/doctor").status)
	require.Equal(t, http.StatusForbidden, s.look(t, "/doctor?only=primary").status)
	var first sync.WaitGroup
	first.Go(func() { s.inspect(t, "/doctor") })
	<-begun
	require.Equal(t, http.StatusTooManyRequests, s.inspect(t, "/doctor").status)
	close(end)
	first.Wait()
	require.Contains(t, s.inspect(t, "/doctor?only=primary").text, "run 2", "other checks are another run")
	require.Equal(t, http.StatusOK, s.inspect(t, "/doctor?only=primary").status)
}
