package api_test

import (
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/registry"
)

const (
	lovelace = "lovelace@example.org"
	findHer  = `{"action": "erase", "erase": {"subject": "` + lovelace + `"}}`
)

// mastered returns a configuration with a master key, which is n repeated.
func mastered(t *testing.T, n byte) privacy.Config {
	t.Helper()
	master, err := privacy.LocalKeys(base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(n), 32))))
	require.NoError(t, err)
	return privacy.Config{Master: master, Cache: -1}
}

// publishOf publishes a notification whose payload has one encrypted value of a person, and returns it.
func (o *outbox) publishOf(t *testing.T, c privacy.Config, subject, id string) *notification.Envelope {
	t.Helper()
	keys, err := privacy.New(o.store, c)
	require.NoError(t, err)
	require.NoError(t, keys.Prepare(t.Context()))
	e := &notification.Envelope{ID: id, Type: "order.placed", Version: 1, Payload: []byte(`{"email": "secret", "total": 3}`), Metadata: notification.Metadata{}}
	at, err := registry.ParsePointer("/email")
	require.NoError(t, err)
	require.NoError(t, keys.Seal(t.Context(), nil, []privacy.Sealing{{Envelope: e, Values: []registry.PrivateValues{{Subject: subject, At: []registry.Pointer{at}}}}}))
	metadata, err := json.Marshal(e.Metadata)
	require.NoError(t, err)
	_, err = o.db.ExecContext(t.Context(), `INSERT INTO outbox (id, type, key, payload, metadata) VALUES ($1, $2, '', $3, $4)`, e.ID, e.Type, string(e.Payload), string(metadata))
	require.NoError(t, err)
	return e
}

// content returns what all tables of a database have.
func content(t *testing.T, db *sql.DB) string {
	t.Helper()
	list := func(query string) (all []string) {
		rows, err := db.QueryContext(t.Context(), query)
		require.NoError(t, err)
		defer func() { require.NoError(t, rows.Close()) }()
		for rows.Next() {
			columns, err := rows.Columns()
			require.NoError(t, err)
			values := make([]any, len(columns))
			for i := range values {
				values[i] = new(any)
			}
			require.NoError(t, rows.Scan(values...))
			var texts []string
			for _, v := range values {
				value := *v.(*any)
				if bytes, is := value.([]byte); is {
					value = string(bytes)
				}
				texts = append(texts, fmt.Sprint(value))
			}
			all = append(all, strings.Join(texts, " "))
		}
		require.NoError(t, rows.Err())
		return all
	}
	var all strings.Builder
	names := list(`SELECT name FROM sqlite_master WHERE type = 'table'`)
	require.NotEmpty(t, names)
	for _, name := range names {
		fmt.Fprintln(&all, name, strings.Join(list(`SELECT * FROM "`+name+`"`), "\n"))
	}
	return all.String()
}

func TestAPersonIsFoundAndErased(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		c := mastered(t, 'a')
		s := serve(t, &target.Target{Store: o.store, Privacy: c})
		hers, his := o.publishOf(t, c, lovelace, "n1"), o.publishOf(t, c, "babbage", "n2")
		o.publishOf(t, c, lovelace, "n3")
		plan := s.act(t, "/plans", findHer)
		require.Equal(t, http.StatusOK, plan.status, plan.text)
		require.EqualValues(t, 3, plan.body["count"], plan.text)
		found := plan.body["erase"].(map[string]any)
		require.EqualValues(t, 1, found["keys"])
		require.EqualValues(t, 2, found["counts"].([]any)[0].(map[string]any)["rows"])
		require.NotContains(t, plan.text, lovelace)

		begin := func(expect int) answer {
			return s.act(t, "/actions", fmt.Sprintf(`{"action": "erase", "erase": {"subject": %q}, "expect": %d, "reason": "OPS-7"}`, lovelace, expect), "Idempotency-Key", "k")
		}
		require.Equal(t, http.StatusConflict, begin(2).status)
		begun := begin(3)
		require.Equal(t, http.StatusAccepted, begun.status, begun.text)
		action := s.ended(t, begun.body["id"].(string))
		require.JSONEq(t, `{"keys": 1}`, string(action.Filter))
		require.EqualValues(t, 1, action.Count)
		require.EqualValues(t, 0, s.act(t, "/plans", findHer).body["erase"].(map[string]any)["keys"])
		require.Equal(t, begun.body["id"], begin(3).body["id"], "the same request")
		other := s.act(t, "/actions", `{"action": "erase", "erase": {"subject": "babbage"}, "expect": 3, "reason": "OPS-7"}`, "Idempotency-Key", "k")
		require.Equal(t, http.StatusUnprocessableEntity, other.status, other.text)

		keys, err := privacy.New(o.store, c)
		require.NoError(t, err)
		views := keys.Views(t.Context(), []*notification.Envelope{hers, his}, "reveal", true)
		require.ErrorIs(t, views[0].Err, privacy.ErrErased)
		require.NoError(t, views[1].Err)
		require.Contains(t, string(views[1].Envelope.Payload), "secret")
	})
}

func TestAnErasureLeavesNoTraceOfThePerson(t *testing.T) {
	t.Parallel()
	o, c := onSQLite(t), mastered(t, 'a')
	s := serve(t, &target.Target{Store: o.store, Privacy: c})
	o.publishOf(t, c, lovelace, "n1")
	body := `{"action":"erase","erase":{"subject":"` + lovelace + `"},"expect":2}`
	begun := s.act(t, "/actions", body, "Idempotency-Key", "k")
	require.Equal(t, http.StatusAccepted, begun.status, begun.text)
	s.ended(t, begun.body["id"].(string))
	s.act(t, "/actions", `{"action": "erase", "erase": {"subject": "`+lovelace+`"}, "expect": 0}`)
	s.act(t, "/actions", `{"action": "erase", "erase": {"subject": "`+lovelace+`"}, "planned_at": "2026-01-01T00:00:00Z", "expect": 0}`)
	require.NoError(t, o.db.Close()) // what fails is logged
	require.Equal(t, http.StatusInternalServerError, s.act(t, "/plans", findHer).status)
	require.Contains(t, s.log.String(), "a request of the admin API failed")
	require.NotContains(t, s.log.String(), "lovelace")
}

// A digest of a name can be compared with those of all names that come to mind.
func TestTheDigestOfARequestDoesNotConfirmWhomItWasAbout(t *testing.T) {
	t.Parallel()
	o, c := onSQLite(t), mastered(t, 'a')
	s := serve(t, &target.Target{Store: o.store, Privacy: c})
	o.publishOf(t, c, lovelace, "n1")
	body := `{"action":"erase","erase":{"subject":"` + lovelace + `"},"expect":2}`
	begun := s.act(t, "/actions", body, "Idempotency-Key", "k")
	require.Equal(t, http.StatusAccepted, begun.status, begun.text)
	s.ended(t, begun.body["id"].(string))
	all := content(t, o.db)
	require.Contains(t, all, begun.body["id"])
	require.NotContains(t, all, "lovelace")
	for _, text := range []string{body, lovelace} {
		digest := sha256.Sum256([]byte(text))
		require.NotContains(t, all, hex.EncodeToString(digest[:]))
	}
}

func TestRowsOfTypesWithRulesAreErased(t *testing.T) {
	t.Parallel()
	o, c := onSQLite(t), mastered(t, 'a')
	c.Rules = map[string]privacy.Rule{"order.placed": {Subject: "/customer", Fields: []string{"/email"}}}
	s := serve(t, &target.Target{Store: o.store, Privacy: c})
	o.publish(t, "n1", "order.placed", "", `{"customer": "`+lovelace+`", "email": "countess@example.org"}`)
	o.publish(t, "n2", "order.placed", "", `{"customer": "babbage", "email": "charles@example.org"}`)
	plan := s.act(t, "/plans", findHer)
	require.EqualValues(t, 1, plan.body["erase"].(map[string]any)["plain"], plan.text)
	begun := s.act(t, "/actions", `{"action": "erase", "erase": {"subject": "`+lovelace+`"}, "expect": 1}`)
	require.Equal(t, http.StatusAccepted, begun.status, begun.text)
	require.EqualValues(t, 1, s.ended(t, begun.body["id"].(string)).Count)
	all := content(t, o.db)
	require.NotContains(t, all, "countess@example.org")
	require.Contains(t, all, "charles@example.org")
}

func TestAPersonIsNotFoundWithoutTheMasterKey(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.publishOf(t, mastered(t, 'a'), lovelace, "n1")
		for _, c := range []struct {
			config privacy.Config
			detail string
		}{
			{privacy.Config{}, "privacy.keys or privacy.master is not configured"},
			{mastered(t, 'b'), "add the key with this digest to keys"},
		} {
			s := serve(t, &target.Target{Store: o.store, Privacy: c.config})
			for path, body := range map[string]string{"/plans": findHer, "/actions": `{"action": "erase", "erase": {"subject": "` + lovelace + `"}, "expect": 2}`} {
				a := s.act(t, path, body)
				require.Equal(t, http.StatusConflict, a.status, a.text)
				require.Contains(t, a.body["detail"], "the master key of private values is missing")
				require.Contains(t, a.body["detail"], c.detail)
			}
			require.Empty(t, s.look(t, "/actions").body["actions"])
		}
	})
}

func TestOnlyOperatorsFindPersons(t *testing.T) {
	t.Parallel()
	o, c := onSQLite(t), mastered(t, 'a')
	s := serve(t, &target.Target{Store: o.store, Privacy: c})
	o.publishOf(t, c, lovelace, "n1")
	require.Equal(t, http.StatusForbidden, s.do(t, viewer, http.MethodPost, "/plans", findHer).status)
	require.Equal(t, http.StatusForbidden, s.do(t, viewer, http.MethodPost, "/actions", `{"action": "erase", "erase": {"subject": "`+lovelace+`"}, "expect": 2}`).status)
	require.Empty(t, s.look(t, "/actions").body["actions"])
}

func TestMistakesOfAnErasureAreExplained(t *testing.T) {
	t.Parallel()
	o := onSQLite(t)
	s := serve(t, &target.Target{Store: o.store, Privacy: mastered(t, 'a')})
	for body, detail := range map[string]string{
		`{"action": "erase"}`:                                                      "an erase needs the member erase",
		`{"action": "erase", "filter": {}}`:                                        "an erase needs the member erase",
		`{"action": "erase", "erase": {"subject": "a"}, "filter": {}}`:             "must have no filter",
		`{"action": "erase", "erase": {"subject": ""}}`:                            "the subject is empty",
		`{"action": "erase", "erase": {"subject": "a", "all": true}}`:              "unknown field",
		`{"action": "purge", "purge": {"keys": ["k"]}, "erase": {"subject": "a"}}`: "a purge needs the member purge",
		`{"action": "requeue", "filter": {}, "erase": {"subject": "a"}}`:           "a requeue needs the member filter",
		`{"action": "forget", "erase": {"subject": "a"}}`:                          "purge or erase",
	} {
		a := s.act(t, "/plans", body)
		require.Equal(t, http.StatusBadRequest, a.status, a.text)
		require.Contains(t, a.body["detail"], detail, body)
	}
}
