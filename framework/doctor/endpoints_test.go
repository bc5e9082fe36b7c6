package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/sinks"
)

// sell gives the outbox a sink for endpoints of customers, and adds one.
func (x *fixture) sell(c webhooks.Config) (*webhooks.Endpoints, webhooks.Endpoint) {
	x.Helper()
	sink, err := webhooks.New(sinks.Instance{Name: "customers"}, c)
	require.NoError(x, err)
	x.Forwarder.Sinks = map[string]forwarder.Sink{"customers": {Sink: sink}, "partner": {Sink: taking{}}}
	x.Forwarder.Routes = route.Routes{"order.*": route.To("customers"), webhooks.DisabledType: route.To("partner")}
	all, err := sink.Endpoints(x.examined.(webhooks.Store), "")
	require.NoError(x, err)
	made, _, err := all.Create(x.Context(), webhooks.NewEndpoint{Tenant: "acme", Settings: webhooks.Settings{URL: "https://acme.example"}})
	require.NoError(x, err)
	return all, made
}

const (
	firstKey  = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	secondKey = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
)

func TestEndpointsInTroubleAreFound(t *testing.T) {
	t.Parallel()
	mark := func(x *fixture, m store.EndpointMarks) {
		x.Helper()
		tx, err := x.DB.BeginTx(x.Context(), nil)
		require.NoError(x, err)
		defer tx.Rollback()
		_, err = x.examined.(webhooks.Store).MarkEndpoints(x.Context(), tx, m)
		require.NoError(x, err)
		require.NoError(x, tx.Commit())
	}
	for name, c := range map[string]struct {
		broken    func(x *fixture)
		want      Status
		text, fix string
	}{
		"none": {func(*fixture) {}, OK, "no sink is of kind webhooks", ""},
		"well": {func(x *fixture) { x.sell(webhooks.Config{}) }, OK, "^of 1 endpoint, 0 fail now$", ""},
		"disabled by a person": {func(x *fixture) {
			all, e := x.sell(webhooks.Config{})
			_, err := all.Disable(x.Context(), e.Tenant, e.ID, store.DisabledByPerson+": moving")
			require.NoError(x, err)
		}, OK, "^of 1 endpoint, 0 fail now$", ""},
		"failing": {func(x *fixture) {
			_, e := x.sell(webhooks.Config{})
			mark(x, store.EndpointMarks{Failing: []string{e.ID}})
		}, OK, "^of 1 endpoint, 1 fail now$", ""},
		"disabled": {func(x *fixture) {
			_, e := x.sell(webhooks.Config{})
			mark(x, store.EndpointMarks{Disable: []store.EndpointDisabling{{ID: e.ID, Reason: "it answered 410 Gone"}}})
		}, Warn, "1 were disabled because they failed", "waybill endpoints enable"},
		"trouble": {func(x *fixture) {
			_, e := x.sell(webhooks.Config{})
			mark(x, store.EndpointMarks{Trouble: map[string]string{e.ID: "when: no such\nkey"}})
		}, Warn, `in trouble: \S+ of tenant acme \(when: no such key\)`, "waybill endpoints update"},
		"locked": {func(x *fixture) {
			x.sell(webhooks.Config{EncryptionKeys: []string{firstKey}})
			x.sell(webhooks.Config{EncryptionKeys: []string{secondKey}})
		}, Fail, "of 2 endpoints, 0 fail now; no key decrypts the secrets of", "add the key with the digest [0-9a-f]{8} to encryption_keys"},
		"unrouted": {func(x *fixture) {
			x.sell(webhooks.Config{})
			x.Forwarder.Routes = route.Routes{"*": route.To("customers")}
		}, Warn, "no route takes webhooks.endpoint.disabled to the application", "route webhooks.endpoint.disabled to a sink"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(x *fixture) {
				c.broken(x)
				require.Regexp(x, c.fix, x.has("endpoints", c.want, c.text).Fix)
			})
		})
	}
}

func TestWhatASinkPublishesForItselfNeedsNoRegisteredType(t *testing.T) {
	t.Parallel()
	x := inSQLite(t)
	x.publish(webhooks.Type, time.Second)
	x.has("types", OK, "the program decodes all")
}
