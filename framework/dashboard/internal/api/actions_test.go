package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/store"
)

// ended waits for the end of an action.
func (s *site) ended(t *testing.T, id string) (action store.Action) {
	t.Helper()
	require.Eventually(t, func() bool {
		a := s.look(t, "/actions/"+id)
		action = store.Action{}
		a.into(t, &action)
		return !action.EndedAt.IsZero()
	}, patience, 10*time.Millisecond)
	return action
}

func TestAnActionDoesAtMostWhatItsPlanCounted(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		s := serve(t, &target.Target{Store: o.store, Routing: routing(t)})
		o.park(t, "mail", deads(7)...)
		plan := s.act(t, "/plans", `{"action": "discard", "filter": {"sink": "mail", "states": ["dead"]}}`)
		require.Equal(t, http.StatusOK, plan.status, plan.text)
		require.EqualValues(t, 7, plan.body["count"])
		require.Len(t, plan.body["examples"], 5)
		o.park(t, "mail", dead(8, ""), dead(9, ""))

		body := func(more string) string {
			return `{"action": "discard", "filter": {"sink": "mail", "states": ["dead"]}, "expect": 7, "reason": "gone"` + more + `}`
		}
		refused := s.act(t, "/actions", body(""))
		require.Equal(t, http.StatusConflict, refused.status)
		require.EqualValues(t, 9, refused.body["count"])

		pinned := body(fmt.Sprintf(`, "planned_at": %q`, plan.body["planned_at"]))
		begun := s.act(t, "/actions", pinned, "Idempotency-Key", "k1")
		require.Equal(t, http.StatusAccepted, begun.status, begun.text)
		id := begun.body["id"].(string)
		require.Equal(t, prefix+"/api/v1/actions/"+id, begun.header.Get("Location"))
		action := s.ended(t, id)
		require.Equal(t, store.ActionDone, action.State)
		require.EqualValues(t, 7, action.Count)
		require.EqualValues(t, 7, action.Planned)
		require.Equal(t, []string{"ada", "127.0.0.1", "gone"}, []string{action.Who, action.Address, action.Reason})
		require.EqualValues(t, 2, s.look(t, "/parked/counts").body["counts"].([]any)[0].(map[string]any)["count"])

		other := serve(t, &target.Target{Store: o.store, Routing: routing(t)}) // another process
		again := other.act(t, "/actions", pinned, "Idempotency-Key", "k1")
		require.Equal(t, http.StatusAccepted, again.status)
		require.Equal(t, id, again.body["id"])
		require.Equal(t, http.StatusUnprocessableEntity, other.act(t, "/actions", body(""), "Idempotency-Key", "k1").status)
		require.Len(t, s.look(t, "/actions").body["actions"], 1)
	})
}

func TestAPurgeIsPlannedAndRecordsNoNames(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		s := serve(t, &target.Target{Store: o.store, Routing: routing(t)})
		for i := range 5 {
			o.publish(t, fmt.Sprint("n", i), "order.placed", fmt.Sprint("customer-", i%2), `{}`)
		}
		plan := s.act(t, "/plans", `{"action": "purge", "purge": {"keys": ["customer-1"], "ids": ["n0"]}}`)
		require.Equal(t, http.StatusOK, plan.status, plan.text)
		require.EqualValues(t, 3, plan.body["count"])
		table := plan.body["purge"].([]any)[0].(map[string]any)
		require.Equal(t, "log", table["table"])
		require.EqualValues(t, 3, table["undelivered"])

		begin := func(expect int) answer {
			return s.act(t, "/actions", fmt.Sprintf(`{"action": "purge", "purge": {"keys": ["customer-1"], "ids": ["n0"]}, "expect": %d, "reason": "customer-1 asked for it"}`, expect))
		}
		require.Equal(t, http.StatusConflict, begin(2).status)
		begun := begin(3)
		require.Equal(t, http.StatusAccepted, begun.status, begun.text)
		action := s.ended(t, begun.body["id"].(string))
		require.JSONEq(t, `{"keys": 1, "ids": 1}`, string(action.Filter))
		require.EqualValues(t, 3, action.Planned)
		left := s.act(t, "/plans", `{"action": "purge", "purge": {"keys": ["customer-1"], "ids": ["n0"]}}`)
		require.EqualValues(t, 0, left.body["count"], left.text)
		require.NotContains(t, s.look(t, "/actions").text, "customer-1")
	})
}

func TestSimultaneousRequestsWithTheSameKeyStartOneAction(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		s := serve(t, &target.Target{Store: o.store})
		o.park(t, "mail", deads(20)...)
		const body = `{"action": "requeue", "filter": {}, "expect": 20}`
		ids := make([]any, 4)
		var all sync.WaitGroup
		for i := range ids {
			all.Go(func() { ids[i] = s.act(t, "/actions", body, "Idempotency-Key", "k").body["id"] })
		}
		all.Wait()
		require.Len(t, slices.Compact(ids), 1)
		require.NotNil(t, ids[0])
		require.EqualValues(t, 20, s.ended(t, ids[0].(string)).Count)
	})
}

func TestAReplayIsPlannedCancelledAndNotContinued(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		s := serve(t, &target.Target{Store: o.store, Routing: routing(t)})
		for i := range 50 {
			o.publish(t, fmt.Sprint("n", i), "order.placed", "", `{}`)
		}
		o.park(t, "mail")
		plan := s.act(t, "/plans", `{"action": "replay", "replay": {"sink": "mail", "rate": 1}}`)
		require.EqualValues(t, 50, plan.body["count"], plan.text)
		replay, err := json.Marshal(plan.body["replay"])
		require.NoError(t, err)
		begun := s.act(t, "/actions", fmt.Sprintf(`{"action": "replay", "replay": %s, "expect": 50}`, replay))
		require.Equal(t, http.StatusAccepted, begun.status, begun.text)
		id := begun.body["id"].(string)
		require.Equal(t, http.StatusConflict, s.act(t, "/actions/"+id+"/continue", "").status, "it is running")

		other := serve(t, &target.Target{Store: o.store}) // another process
		cancelled := other.act(t, "/actions/"+id+"/cancel", "")
		require.Equal(t, "cancelled", cancelled.body["state"], cancelled.text)
		require.Equal(t, "ada", cancelled.body["cancelled_by"])
		require.Less(t, s.ended(t, id).Count, int64(50))
		require.Equal(t, http.StatusConflict, s.act(t, "/actions/"+id+"/cancel", "").status)
		require.Equal(t, http.StatusConflict, s.act(t, "/actions/"+id+"/continue", "").status)
	})
}

func TestAReplayOfAProcessThatDiedIsContinued(t *testing.T) {
	t.Parallel()
	o := onSQLite(t)
	s := serve(t, &target.Target{Store: o.store, Routing: routing(t)})
	o.publish(t, "n1", "order.placed", "", `{}`)
	o.park(t, "mail")
	filter, err := json.Marshal(admin.ReplayRequest{Sink: "mail", Routed: routing(t).Routes.Filter("mail"), UpTo: 1})
	require.NoError(t, err)
	require.NoError(t, o.store.Begin(t.Context(), store.Action{ID: "a", Who: "ada", Name: "replay", Filter: filter, Planned: 1}))
	_, err = o.db.ExecContext(t.Context(), `UPDATE outbox_actions SET updated_at = '2026-01-02T03:04:05.000000Z'`)
	require.NoError(t, err)
	require.Equal(t, "interrupted", s.look(t, "/actions/a").body["state"])
	require.Equal(t, http.StatusAccepted, s.act(t, "/actions/a/continue", "").status)
	require.EqualValues(t, 1, s.ended(t, "a").Count)
}

func TestAReroutePlanNamesTypesAndSinks(t *testing.T) {
	t.Parallel()
	o := onSQLite(t)
	s := serve(t, &target.Target{Store: o.store, Routing: routing(t)})
	o.park(t, "mail")
	o.park(t, store.SinkUnrouted, deads(2)...)
	plan := s.act(t, "/plans", `{"action": "reroute", "filter": {}}`)
	require.Equal(t, []any{map[string]any{"type": "order.placed", "state": "dead", "count": 2.0, "sinks": []any{"mail"}}}, plan.body["types"], plan.text)
	begun := s.act(t, "/actions", fmt.Sprintf(`{"action": "reroute", "filter": {}, "expect": 2, "planned_at": %q}`, plan.body["planned_at"]))
	require.Equal(t, http.StatusAccepted, begun.status, begun.text)
	require.EqualValues(t, 2, s.ended(t, begun.body["id"].(string)).Count)
}

func TestFiguresAreSampledAfterTheLastAct(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		s := serve(t, &target.Target{Store: o.store})
		o.park(t, "mail")
		for _, c := range []struct {
			act    string
			paused bool
		}{{"pause", true}, {"resume", false}} {
			began := time.Now()
			require.Equal(t, http.StatusOK, s.act(t, "/sinks/mail/"+c.act, "").status)
			for _, path := range []string{"/sinks/mail", "/status", "/health/sinks"} {
				a := s.do(t, viewer, http.MethodGet, path, "")
				at, err := time.Parse(time.RFC3339Nano, a.body["sampled_at"].(string))
				require.NoError(t, err)
				require.True(t, at.After(began), path)
				require.Equal(t, c.paused, strings.Contains(a.text, `"paused": true`) || strings.Contains(a.text, `"reason": "paused"`), a.text)
			}
		}
	})
}

func TestASinkIsPausedWithAReason(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		s := serve(t, &target.Target{Store: o.store})
		o.park(t, "mail")
		require.Equal(t, map[string]any{"sink": "mail", "paused": true, "changed": true}, s.act(t, "/sinks/mail/pause", `{"reason": "their <release>"}`).body)
		require.Equal(t, false, s.act(t, "/sinks/mail/pause", "").body["changed"])
		require.Equal(t, true, s.look(t, "/sinks/mail").body["paused"])
		require.Contains(t, s.look(t, "/actions").text, `"reason": "their \u003crelease\u003e"`)
		require.Equal(t, true, s.act(t, "/sinks/mail/resume", "").body["changed"])
		require.Equal(t, http.StatusNotFound, s.act(t, "/sinks/mial/pause", "").status)
	})
}
