package webhooks_test

import (
	"database/sql"
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

func TestEndpointsAreManaged(t *testing.T) {
	onEachStore(t, webhooks.Config{}, func(t *testing.T, s *shop) {
		ctx, e := t.Context(), s.endpoints
		rate, err := settings.ParseRate("5/s, burst 2")
		require.NoError(t, err)
		like := webhooks.Settings{
			URL: "https://acme.example/hooks", Description: "Orders “of” <acme>\n", Types: []string{"order.*"}, When: `payload.total > 1`,
			Headers: map[string]string{"X-Token": "abc"}, Rate: rate,
		}
		made, secret := s.createLike("acme", like)
		require.True(t, strings.HasPrefix(secret, "whsec_"))
		require.True(t, made.Enabled())
		read, err := e.Get(ctx, "acme", made.ID)
		require.NoError(t, err)
		require.Equal(t, like, read.Settings)
		require.EqualValues(t, 1, read.Version)
		require.WithinDuration(t, time.Now(), read.CreatedAt, time.Minute)
		shown, err := e.Secret(ctx, "acme", made.ID)
		require.NoError(t, err)
		require.Equal(t, secret, shown)

		changed, err := e.Update(ctx, "acme", made.ID, func(e *webhooks.Endpoint) error {
			e.URL, e.Types, e.When, e.Tenant, e.ID = "https://acme.example/new", nil, "", "globex", "other"
			return nil
		})
		require.NoError(t, err)
		read, err = e.Get(ctx, "acme", made.ID)
		require.NoError(t, err)
		require.Equal(t, changed.Settings, read.Settings)
		require.Equal(t, "https://acme.example/new", read.URL)
		require.Equal(t, []string{"*"}, read.Types)
		require.Equal(t, map[string]string{"X-Token": "abc"}, read.Headers)
		require.EqualValues(t, 2, read.Version)

		off, err := e.Disable(ctx, "acme", made.ID, "")
		require.NoError(t, err)
		require.Equal(t, store.DisabledByPerson, off.DisabledReason)
		again, err := e.Disable(ctx, "acme", made.ID, "once more")
		require.NoError(t, err)
		require.Equal(t, store.DisabledByPerson, again.DisabledReason)
		require.Equal(t, off.Version, again.Version, "disabling it again does nothing")
		on, err := e.Enable(ctx, "acme", made.ID)
		require.NoError(t, err)
		require.True(t, on.Enabled())
		require.Zero(t, on.DisabledAt)
		enabled, err := e.Enable(ctx, "acme", made.ID)
		require.NoError(t, err)
		require.Equal(t, on.Version, enabled.Version, "enabling it again does nothing")

		second, _ := s.create("acme", "https://acme.example/second")
		s.create("globex", "https://globex.example/")
		all, err := e.List(ctx, webhooks.Query{Tenant: "acme"})
		require.NoError(t, err)
		require.Equal(t, []string{made.ID, second.ID}, ids(all))
		rest, err := e.List(ctx, webhooks.Query{After: store.EndpointPlace{Tenant: "acme", ID: made.ID}})
		require.NoError(t, err)
		require.Len(t, rest, 2)
		require.Equal(t, "globex", rest[1].Tenant)

		require.NoError(t, e.Delete(ctx, "acme", made.ID))
		_, err = e.Get(ctx, "acme", made.ID)
		require.ErrorIs(t, err, webhooks.ErrUnknown)
		require.ErrorIs(t, e.Delete(ctx, "acme", made.ID), webhooks.ErrUnknown)
	})
}

func ids(all []webhooks.Endpoint) (ids []string) {
	for _, e := range all {
		ids = append(ids, e.ID)
	}
	return ids
}

func TestAKeyMakesOneEndpointOfATenant(t *testing.T) {
	onEachStore(t, webhooks.Config{}, func(t *testing.T, s *shop) {
		n := webhooks.NewEndpoint{Tenant: "acme", Key: "setup", Settings: webhooks.Settings{URL: "https://acme.example/", Headers: map[string]string{"X-Token": "abc"}}}
		type made struct {
			webhooks.Endpoint
			secret string
			err    error
		}
		all := make(chan made, 8)
		for range cap(all) {
			go func() {
				e, secret, err := s.endpoints.Create(t.Context(), n)
				all <- made{e, secret, err}
			}()
		}
		first := <-all
		require.NoError(t, first.err)
		for range cap(all) - 1 {
			again := <-all
			require.NoError(t, again.err)
			require.Equal(t, first.ID, again.ID)
			require.Equal(t, first.secret, again.secret)
		}
		listed, err := s.endpoints.List(t.Context(), webhooks.Query{})
		require.NoError(t, err)
		require.Len(t, listed, 1)

		other := n
		other.URL = "https://acme.example/other"
		_, _, err = s.endpoints.Create(t.Context(), other)
		require.ErrorIs(t, err, webhooks.ErrKeyUsed)
		other = n
		other.Tenant = "globex"
		e, _, err := s.endpoints.Create(t.Context(), other)
		require.NoError(t, err)
		require.NotEqual(t, first.ID, e.ID)
		_, err = s.endpoints.Disable(t.Context(), "acme", first.ID, "")
		require.NoError(t, err)
		e, secret, err := s.endpoints.Create(t.Context(), n)
		require.NoError(t, err)
		require.False(t, e.Enabled(), "as it is now")
		require.Equal(t, first.secret, secret)
	})
}

func TestATenantReachesNoEndpointOfAnother(t *testing.T) {
	onEachStore(t, webhooks.Config{}, func(t *testing.T, s *shop) {
		ctx, e := t.Context(), s.endpoints
		made, _ := s.create("acme", "https://acme.example/")
		for _, tenant := range []string{"globex", "", "acme ", "ACME", "acm_", "%"} {
			_, err := e.Get(ctx, tenant, made.ID)
			require.ErrorIs(t, err, webhooks.ErrUnknown, tenant)
			_, err = e.Update(ctx, tenant, made.ID, func(e *webhooks.Endpoint) error { e.URL = "https://evil.example/"; return nil })
			require.ErrorIs(t, err, webhooks.ErrUnknown, tenant)
			_, _, err = e.Rotate(ctx, tenant, made.ID)
			require.ErrorIs(t, err, webhooks.ErrUnknown, tenant)
			_, err = e.Secret(ctx, tenant, made.ID)
			require.ErrorIs(t, err, webhooks.ErrUnknown, tenant)
			_, err = e.Disable(ctx, tenant, made.ID, "")
			require.ErrorIs(t, err, webhooks.ErrUnknown, tenant)
			_, err = e.Enable(ctx, tenant, made.ID)
			require.ErrorIs(t, err, webhooks.ErrUnknown, tenant)
			_, err = e.SendTest(ctx, tenant, made.ID)
			require.ErrorIs(t, err, webhooks.ErrUnknown, tenant)
			_, err = e.Waiting(ctx, tenant, made.ID)
			require.ErrorIs(t, err, webhooks.ErrUnknown, tenant)
			_, err = e.Recover(ctx, tenant, made.ID, time.Now().Add(-time.Hour))
			require.ErrorIs(t, err, webhooks.ErrUnknown, tenant)
			require.ErrorIs(t, e.Delete(ctx, tenant, made.ID), webhooks.ErrUnknown, tenant)
			require.ErrorIs(t, e.Resend(ctx, tenant, "a"), webhooks.ErrUnknown, tenant)
			if tenant != "" {
				all, err := e.List(ctx, webhooks.Query{Tenant: tenant})
				require.NoError(t, err)
				require.Empty(t, all, tenant)
			}
		}
		read, err := e.Get(ctx, "acme", made.ID)
		require.NoError(t, err)
		require.EqualValues(t, 1, read.Version)
	})
}

func TestWrongEndpointsAreRefusedBeforeAnythingIsWritten(t *testing.T) {
	types := registry.New()
	require.NoError(t, registry.Register[struct{ A int }](types, "order.placed", registry.Aliases("order.created")))
	onEachStore(t, webhooks.Config{}, func(t *testing.T, s *shop) {
		e, err := webhooks.NewEndpoints(s.store, sinks.Instance{Name: "customers", Types: types}, webhooks.Config{EndpointsPerTenant: 2})
		require.NoError(t, err)
		const url = "https://acme.example/hooks"
		for _, wrong := range []struct {
			field, says string
			n           webhooks.NewEndpoint
		}{
			{"tenant", "is missing", webhooks.NewEndpoint{Settings: webhooks.Settings{URL: url}}},
			{"tenant", "256 bytes long, more than 255", webhooks.NewEndpoint{Tenant: strings.Repeat("ä", 128), Settings: webhooks.Settings{URL: url}}},
			{"url", "is missing", webhooks.NewEndpoint{Tenant: "acme"}},
			{"url", "https", webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: "http://acme.example/"}}},
			{"url", "", webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: "https://127.0.0.1/"}}},
			{"url", "", webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: "https://[::ffff:10.0.0.1]/"}}},
			{"url", "", webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: "https://localhost/"}}},
			{"url", "", webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: "https://user:password@acme.example/"}}},
			{"url", "", webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: "acme.example/hooks"}}},
			{"url", "2000", webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: url + strings.Repeat("a", 2000)}}},
			{"description", "2002 bytes long, more than 2000", webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: url, Description: strings.Repeat("ä", 1001)}}},
			{"description", "NUL", webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: url, Description: "a\x00"}}},
			{"types", "are 101 with 303 bytes, more than 100", webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: url, Types: slices.Repeat([]string{"a.*"}, 101)}}},
			{"types", "are 50 with 10000 bytes, more than 100 or 8192 bytes", webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: url, Types: slices.Repeat([]string{strings.Repeat("a", 200)}, 50)}}},
			{"types", `"bill.*" matches no type`, webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: url, Types: []string{"bill.*"}}}},
			{"types", "pattern", webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: url, Types: []string{"*.placed"}}}},
			{"types", "reserved", webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: url, Types: []string{"_webhooks"}}}},
			{"when", "", webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: url, When: "payload.total >"}}},
			{"when", "", webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: url, When: "1 + 1"}}},
			{"when", "2015 bytes long, more than 2000", webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: url, When: `payload.a == "` + strings.Repeat("ä", 1000) + `"`}}},
			{"headers", "", webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: url, Headers: map[string]string{"Webhook-Id": "1"}}}},
			{"headers", "", webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: url, Headers: map[string]string{"X-A": "a\r\nB: c"}}}},
			{"rate", "", webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: url, Rate: settings.Rate{Events: -1, Per: time.Second}}}},
			{"secret", "", webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: url}, Secret: "whsec_c2hvcnQ="}},
			{"asymmetric", "leave out the secret", webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: url}, Secret: "whsec_" + strings.Repeat("A", 32), Asymmetric: true}},
			{"secret", "base64", webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: url}, Secret: "not base64 but secret"}},
		} {
			_, _, err := e.Create(t.Context(), wrong.n)
			require.ErrorIs(t, err, webhooks.ErrInvalid, "%+v", wrong.n)
			mistakes := webhooks.FieldErrors(err)
			require.Len(t, mistakes, 1, "%v", err)
			require.Equal(t, wrong.field, mistakes[0].Field, "%v", err)
			require.ErrorContains(t, err, wrong.says)
			require.NotContains(t, err.Error(), "not base64 but secret")
			require.NotContains(t, err.Error(), "user:password")
		}
		_, _, err = e.Create(t.Context(), webhooks.NewEndpoint{Secret: "x", Settings: webhooks.Settings{Types: []string{"bill"}}})
		require.Len(t, webhooks.FieldErrors(err), 4, "all mistakes together: %v", err)
		all, err := e.List(t.Context(), webhooks.Query{})
		require.NoError(t, err)
		require.Empty(t, all)

		longest := webhooks.Settings{URL: url, Description: strings.Repeat("ä", 1000), When: `payload.a == "` + strings.Repeat("ä", 992) + `"`, Types: slices.Repeat([]string{"order.*"}, 100)}
		_, _, err = e.Create(t.Context(), webhooks.NewEndpoint{Tenant: strings.Repeat("ä", 127), Settings: longest})
		require.NoError(t, err, "each database holds the longest texts")
		for range 2 {
			_, _, err = e.Create(t.Context(), webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: url, Types: []string{"order.created"}}})
			require.NoError(t, err)
		}
		_, _, err = e.Create(t.Context(), webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: url}})
		require.ErrorIs(t, err, webhooks.ErrTooMany)
		require.ErrorContains(t, err, "endpoints_per_tenant")
		made, _, err := e.Create(t.Context(), webhooks.NewEndpoint{Tenant: "globex", Settings: webhooks.Settings{URL: url}})
		require.NoError(t, err)

		// So are wrong changes, and those of someone who read an older version.
		_, err = e.Update(t.Context(), "globex", made.ID, func(e *webhooks.Endpoint) error { e.URL = "ftp://x"; return nil })
		require.ErrorIs(t, err, webhooks.ErrInvalid)
		_, err = e.Update(t.Context(), "globex", made.ID, func(*webhooks.Endpoint) error {
			_, _, err := e.Rotate(t.Context(), "globex", made.ID) // by someone else
			return err
		})
		require.ErrorIs(t, err, webhooks.ErrChanged)
		_, err = e.Disable(t.Context(), "globex", made.ID, "\xff")
		require.Error(t, err)
	})
}

func TestTheEndpointBeyondTheLimitIsRefusedAndNotRecorded(t *testing.T) {
	onEachStore(t, webhooks.Config{}, func(t *testing.T, s *shop) {
		_, err := s.db.ExecContext(t.Context(), `INSERT INTO outbox_endpoints (id, tenant, url, description, types, only_if, private, rate)
			WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9999) SELECT 'e' || i, 'acme', 'https://acme.example', '', '["*"]', '', '{}', '' FROM n`)
		require.NoError(t, err)
		s.create("acme", "https://acme.example/last")
		operators := s.endpoints.As(admin.New(s.store, "operator"))
		few, err := webhooks.NewEndpoints(s.store, sinks.Instance{Name: "customers"}, webhooks.Config{EndpointsPerTenant: 7})
		require.NoError(t, err)
		for e, says := range map[*webhooks.Endpoints]string{
			s.endpoints: `too many endpoints: tenant "acme" has the 10000 that endpoints_per_tenant allows: delete one`,
			operators:   `too many endpoints: tenant "acme" has the 10000 that endpoints_per_tenant allows: delete one`,
			few:         `too many endpoints: tenant "acme" has the 7 that endpoints_per_tenant allows: delete one, or raise that to at most 10000`,
		} {
			_, _, err = e.Create(t.Context(), webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: "https://acme.example/more"}})
			require.ErrorIs(t, err, webhooks.ErrTooMany)
			require.EqualError(t, err, says)
		}
		actions, err := admin.New(s.store, "operator").Actions(t.Context(), 10)
		require.NoError(t, err)
		require.Empty(t, actions)
		require.NoError(t, operators.Delete(t.Context(), "acme", "e7"))
		s.create("acme", "https://acme.example/more")
	})
}

// A role that only publishes cannot see which migrations were applied.
func TestErrorsOfAnOutboxWithoutEndpointsNameTheWayOut(t *testing.T) {
	onEachStore(t, webhooks.Config{}, func(t *testing.T, s *shop) {
		for _, table := range []string{"outbox_endpoints", "outbox_attempts"} {
			_, err := s.db.ExecContext(t.Context(), "DROP TABLE "+table)
			require.NoError(t, err)
		}
		e := s.endpoints
		for name, do := range map[string]func() error{
			"create": func() error {
				_, _, err := e.Create(t.Context(), webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: "https://acme.example/"}})
				return err
			},
			"get":      func() error { _, err := e.Get(t.Context(), "acme", "1"); return err },
			"list":     func() error { _, err := e.List(t.Context(), webhooks.Query{}); return err },
			"delete":   func() error { return e.Delete(t.Context(), "acme", "1") },
			"trouble":  func() error { _, err := e.InTrouble(t.Context(), 1); return err },
			"attempts": func() error { _, err := e.Attempts(t.Context(), store.AttemptQuery{Tenant: "acme"}); return err },
			"hours":    func() error { _, err := e.Hours(t.Context(), "acme", "1", time.Time{}); return err },
			"in a transaction": func() error {
				tx, err := s.db.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				defer func() { _ = tx.Rollback() }()
				_, err = e.In(tx).List(t.Context(), webhooks.Query{})
				return err
			},
		} {
			err := do()
			require.ErrorIs(t, err, store.ErrOtherDatabase, name)
			require.ErrorContains(t, err, "waybill migrate", name)
		}
	})
}

func TestWithoutATransactionNothingIsWrittenInIt(t *testing.T) {
	onEachStore(t, local, func(t *testing.T, s *shop) {
		for _, tx := range []outbox.Tx{nil, (*sql.Tx)(nil), s.db} {
			e := s.endpoints.In(tx)
			_, _, err := e.Create(t.Context(), webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: "https://acme.example/"}})
			require.ErrorIs(t, err, outbox.ErrNotTransaction)
			_, err = e.List(t.Context(), webhooks.Query{})
			require.ErrorIs(t, err, outbox.ErrNotTransaction)
		}
		all, err := s.endpoints.List(t.Context(), webhooks.Query{})
		require.NoError(t, err)
		require.Empty(t, all)
	})
}

func TestSecretsAreEncryptedWhereAKeyIsConfigured(t *testing.T) {
	key, next := base64.StdEncoding.EncodeToString(make([]byte, 32)), base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	onEachStore(t, webhooks.Config{EncryptionKeys: []string{key}}, func(t *testing.T, s *shop) {
		made, secret := s.createLike("acme", webhooks.Settings{URL: "https://acme.example", Headers: map[string]string{"X-Token": "topsecret"}})
		stored := func(id string) string {
			rows, err := s.store.Endpoints(t.Context(), nil, store.EndpointQuery{IDs: []string{id}})
			require.NoError(t, err)
			return rows[0].Private
		}
		text := stored(made.ID)
		require.NotContains(t, text, "topsecret")
		require.NotContains(t, text, "whsec")
		with := func(keys ...string) *webhooks.Endpoints {
			e, err := webhooks.NewEndpoints(s.store, sinks.Instance{Name: "customers"}, webhooks.Config{EncryptionKeys: keys})
			require.NoError(t, err)
			return e
		}
		shown, err := with(next, key).Secret(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		require.Equal(t, secret, shown)

		// Without the key nothing is shown, changed or lost.
		_, err = with(next).Secret(t.Context(), "acme", made.ID)
		require.ErrorIs(t, err, webhooks.ErrKey)
		require.ErrorContains(t, err, "encryption_keys")
		_, _, err = with().Rotate(t.Context(), "acme", made.ID)
		require.ErrorIs(t, err, webhooks.ErrKey)
		listed, err := with().List(t.Context(), webhooks.Query{Tenant: "acme"})
		require.NoError(t, err)
		require.Len(t, listed, 1)
		require.Equal(t, text, stored(made.ID))

		// A change encrypts with the first key; one endpoint's text opens no other.
		_, _, err = with(next, key).Rotate(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		_, err = with(next).Secret(t.Context(), "acme", made.ID)
		require.NoError(t, err)
		other, _ := s.create("globex", "https://globex.example")
		rows, err := s.store.Endpoints(t.Context(), nil, store.EndpointQuery{IDs: []string{other.ID}})
		require.NoError(t, err)
		rows[0].Private = text
		changed, err := s.store.ChangeEndpoint(t.Context(), nil, rows[0])
		require.NoError(t, err)
		require.True(t, changed)
		_, err = s.endpoints.Secret(t.Context(), "globex", other.ID)
		require.ErrorIs(t, err, webhooks.ErrKey)
	})
}

func TestWrongSettingsAreRefused(t *testing.T) {
	t.Parallel()
	for says, c := range map[string]webhooks.Config{
		"tenant: \"payload.x\"":    {Tenant: "payload.x"},
		"encryption_keys[0]":       {EncryptionKeys: []string{"c2hvcnQ="}},
		"endpoints_per_tenant: -1": {EndpointsPerTenant: -1},
		"10001 is outside":         {EndpointsPerTenant: 10_001},
		"disable_after":            {DisableAfter: -1},
		"secret_overlap":           {SecretOverlap: -1},
		"attempts_retention":       {AttemptsRetention: -1},
		"attempts: \"some\"":       {Attempts: "some"},
		"attempts_bytes: -1":       {AttemptsBytes: new(-1)},
		"attempts_bytes: 8193":     {AttemptsBytes: new(8193)},
	} {
		_, err := webhooks.New(sinks.Instance{}, c)
		require.ErrorContains(t, err, says)
		_, err = webhooks.NewEndpoints(nil, sinks.Instance{}, c)
		require.ErrorContains(t, err, says)
	}
}
