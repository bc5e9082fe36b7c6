package api_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
)

// JSON may contain texts with characters that databases refuse, and numbers and times out of range.
func TestInvalidValuesInBodiesAndCursorsAreRefused(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.publish(t, "n1", "order.placed", "k", `{"secret": 1}`)
		o.park(t, "mail", deads(3)...)
		s := serve(t, &target.Target{Store: o.store, Routing: routing(t)})
		for _, member := range []string{
			`"sink": "a\u0000"`, `"id": "a\u0000"`, `"type": "a\u0000"`, `"key": "a\u0000"`, `"states": ["a\u0000"]`, `"error": "\u0000"`, `"older_than": "-1h"`, `"older_than": "9e99h"`,
			`"selected": [{"sink": "a\u0000", "offset": 1, "id": "b"}]`, `"selected": [{"sink": "a", "offset": 1, "id": "b\u0000"}]`, `"selected": [{"sink": "a", "offset": 1e30, "id": "b"}]`,
			`"planned_at": "0000-01-01T00:00:00Z"`, `"planned_at": "0000-01-01T00:00:00+23:59"`, `"error": "%"`, `"error": "\\"`, `"newer_than": "2562047h"`,
		} {
			for _, action := range []string{"requeue", "discard", "skip", "reroute"} {
				task := fmt.Sprintf(`{"action": %q, "filter": {%s}`, action, member)
				for path, body := range map[string]string{"/plans": task + "}", "/actions": task + `, "expect": 0}`} {
					a := s.act(t, path, body)
					require.Less(t, a.status, 500, "%s %s: %s", path, body, a.text)
				}
			}
		}
		for _, member := range []string{
			`"sink": "mail", "since": "0000-01-01T00:00:00Z"`, `"sink": "mail", "until": "9999-12-31T23:59:59-23:59"`, `"sink": "mail", "up_to": 9223372036854775807`, `"sink": "mail", "up_to": -1`,
			`"sink": "mail", "rate": -1`, `"sink": "mail", "rate": 9223372036854775807`, `"sink": "mail", "type": "\u0000"`, `"sink": "\ud800"`, `"sink": ""`,
		} {
			a := s.act(t, "/plans", `{"action": "replay", "replay": {`+member+`}}`)
			require.Less(t, a.status, 500, "%s: %s", member, a.text)
		}
		for _, place := range []any{[]any{"a\x00", 1, "b"}, []any{"a", 1, "b\x00"}, []any{"a", json.Number("9223372036854775807"), "b"}, []any{nil, nil, nil}, nil, []any{"a", 1}, map[string]any{}} {
			text, err := json.Marshal(place)
			require.NoError(t, err)
			a := s.look(t, "/parked?cursor="+base64.RawURLEncoding.EncodeToString(text))
			require.Less(t, a.status, 500, "%s: %s", text, a.text)
		}
		const most = "9223372036854775807"
		for _, path := range []string{
			"/notifications/n1/trace?from=" + most, "/parked?older_than=2562047h", "/parked?error=" + url.QueryEscape(`%\_`), "/parked?state=%27", "/actions?limit=" + most, "/types?rows=" + most, "/doctor?only=%27",
		} {
			a := s.look(t, path)
			require.Less(t, a.status, 500, "%s: %s", path, a.text)
		}
		a := s.act(t, "/actions", `{"action": "discard", "filter": {}, "expect": 1000, "planned_at": "0001-01-02T00:00:00Z"}`)
		require.Less(t, a.status, 500, a.text)
		a = s.look(t, "/parked")
		require.Equal(t, http.StatusOK, a.status)
	})
}

func TestOnlyOperatorsSeeErrorsOfTheDatabase(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		s := serve(t, &target.Target{Store: o.store, Routing: routing(t)})
		_, err := o.db.ExecContext(t.Context(), `DROP TABLE outbox_parked`)
		require.NoError(t, err)
		a := s.look(t, "/parked")
		require.Equal(t, http.StatusInternalServerError, a.status)
		require.NotContains(t, a.text, "outbox_parked")
		require.Contains(t, s.log.String(), "outbox_parked")
		a = s.do(t, operator, http.MethodGet, "/parked", "")
		require.Contains(t, a.text, "outbox_parked")
	})
}
