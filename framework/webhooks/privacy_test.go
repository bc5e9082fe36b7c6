package webhooks_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// orderMoved has a private value.
type orderMoved struct{ Order, Person, Email string }

// orderNoted is inserted with SQL, with a rule.
type orderNoted orderMoved

const email = "ada@person.example"

// secretive gives a shop keys of private values, and its customers what the setting says.
func (s *shop) secretive(set sinks.Private) *privacy.Keyring {
	s.t.Helper()
	master, err := privacy.LocalKeys("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
	require.NoError(s.t, err)
	s.forwarder.Privacy = privacy.Config{Master: master, Cache: -1, Rules: map[string]privacy.Rule{"order.noted": {Subject: "/Person", Fields: []string{"/Email"}}}}
	keys, err := privacy.New(s.store.(store.PrivateKeys), s.forwarder.Privacy)
	require.NoError(s.t, err)
	require.NoError(s.t, keys.Prepare(s.t.Context()))
	types := registry.New()
	require.NoError(s.t, registry.Register[orderMoved](types, "order.moved", registry.Private(func(n orderMoved) string { return n.Person }, "Email")))
	require.NoError(s.t, registry.Register[orderNoted](types, "order.noted"))
	s.publisher, err = outbox.New(types, s.store, outbox.Config{Announcer: outbox.Silent, Privacy: keys})
	require.NoError(s.t, err)
	to := s.forwarder.Sinks["customers"]
	to.Private = set
	s.forwarder.Sinks["customers"] = to
	return keys
}

// move publishes an order with a private value, and inserts one with SQL.
func (s *shop) move(id string) {
	s.t.Helper()
	moved := orderMoved{id, "ada", email}
	require.NoError(s.t, s.publisher.RunInTx(s.t.Context(), s.db, nil, func(ctx context.Context, tx *sql.Tx) error {
		return s.publisher.Publish(ctx, tx, outbox.With(moved, outbox.ID(id), outbox.Metadata("tenant", "acme")))
	}))
	noted := orderNoted{id + "-noted", "ada", email}
	payload, err := json.Marshal(noted)
	require.NoError(s.t, err)
	_, err = s.db.ExecContext(s.t.Context(), `INSERT INTO outbox (id, type, metadata, payload) VALUES ($1, 'order.noted', '{"tenant":"acme"}', $2)`, noted.Order, string(payload))
	require.NoError(s.t, err)
}

// erase destroys the keys of the person.
func (s *shop) erase(keys *privacy.Keyring) {
	s.t.Helper()
	hashes, err := keys.Subject(s.t.Context(), "ada")
	require.NoError(s.t, err)
	of := s.store.(store.PrivateKeys)
	found, err := of.PrivateKeysOf(s.t.Context(), hashes)
	require.NoError(s.t, err)
	for _, k := range found {
		_, err := of.ErasePrivateKeys(s.t.Context(), "", []string{k.ID})
		require.NoError(s.t, err)
	}
}

// requireSecret requires that no table has a private value, besides the log and the parked rows of what was inserted.
func (s *shop) requireSecret() {
	s.t.Helper()
	for _, from := range []string{`outbox WHERE type <> 'order.noted'`, `outbox_parked WHERE type <> 'order.noted'`, `outbox_receipts`, `outbox_attempts`, `outbox_endpoints`, `outbox_actions`} {
		s.requireSecretIn(from)
	}
}

func (s *shop) requireSecretIn(from string) {
	s.t.Helper()
	rows, err := s.db.QueryContext(s.t.Context(), `SELECT * FROM `+from)
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, rows.Close()) }()
	columns, err := rows.Columns()
	require.NoError(s.t, err)
	for rows.Next() {
		values, dest := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		require.NoError(s.t, rows.Scan(dest...))
		for i, v := range values {
			if raw, isBytes := v.([]byte); isBytes {
				v = string(raw)
			}
			require.NotContains(s.t, fmt.Sprint(v), email, "%s: %s", from, columns[i])
		}
	}
	require.NoError(s.t, rows.Err())
}

func TestAnEndpointGetsOfPrivateValuesWhatTheSettingSays(t *testing.T) {
	for set, want := range map[sinks.Private][2]string{ // before and after the erasure
		sinks.PrivateReveal: {`,"Email":"` + email + `"}`, `}`},
		sinks.PrivateDrop:   {`}`, `}`},
		sinks.PrivateMask:   {`,"Email":"***"}`, `,"Email":"***"}`},
		sinks.PrivateKeep:   {`,"Email":"waybill:1:`, `,"Email":"waybill:1:`},
	} {
		t.Run(string(set), func(t *testing.T) {
			onEachStore(t, local, func(t *testing.T, s *shop) {
				keys := s.secretive(set)
				customer := newCustomer(t)
				customer.answers(func(w http.ResponseWriter, r request) {
					w.Header().Set("X-Echo", r.Raw)
					w.WriteHeader(http.StatusInternalServerError)
					_, _ = io.WriteString(w, r.Raw)
				})
				made, secret := s.create("acme", customer.URL)
				customer.verify(secret)
				s.move("o-1")
				s.drain()
				requireBodies := func(end string, n int) {
					t.Helper()
					got := customer.take()
					require.Len(t, got, n)
					for _, r := range got {
						data := string(r.Body.Data)
						begin := `{"Order":"o-1","Person":"ada"`
						if strings.Contains(data, "noted") {
							begin = `{"Order":"o-1-noted","Person":"ada"`
						}
						if strings.HasSuffix(end, "}") {
							require.Equal(t, begin+end, data)
						} else {
							require.Contains(t, data, begin+end)
						}
					}
				}
				requireBodies(want[0], 2)
				s.requireSecret()
				attempts, err := s.endpoints.Attempts(t.Context(), store.AttemptQuery{Tenant: "acme", Endpoint: made.ID})
				require.NoError(t, err)
				require.Len(t, attempts, 2)
				for _, a := range attempts {
					require.Equal(t, http.StatusInternalServerError, a.Status)
					require.NotEmpty(t, a.Request.Header["Webhook-Id"])
					if set == sinks.PrivateReveal {
						require.Empty(t, a.Request.Body)
						require.Empty(t, a.Answer.Body)
						require.NotContains(t, a.Answer.Header, "X-Echo")
					}
				}
				s.erase(keys)
				customer.answers(nil)
				s.advance(time.Hour)
				requireBodies(want[1], 2)
				s.requireSecret()
				s.drain()
				require.Empty(t, customer.take())
			})
		})
	}
}

func TestAnEndpointGetsWhatSQLInsertedAboutANewPerson(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		s.secretive(sinks.PrivateReveal)
		customer := newCustomer(t)
		s.create("acme", customer.URL)
		_, err := s.db.ExecContext(t.Context(), `INSERT INTO outbox (id, type, metadata, payload) VALUES ('o-1', 'order.noted', '{"tenant":"acme"}', '{"Person":"bob","Email":"`+email+`"}')`)
		require.NoError(t, err)
		s.drain()
		got := customer.take()
		require.Len(t, got, 1)
		require.Equal(t, `{"Person":"bob","Email":"`+email+`"}`, string(got[0].Body.Data))
		s.requireSecret()
	})
}
