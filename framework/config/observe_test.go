package config_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/settings"
)

const observed = `
database: sqlite:outbox.db
sinks:
  events: {kind: http, with: {url: "https://partner.example/"}}
routes: {"*": [events]}
observe:
  address: "0.0.0.0:8090"
  hosts: [waybill.example, 10.1.2.3]
  auth:
    users:
      ada: {password: "${ADA}", role: operator}
      bob: {password: "$2a$10$yBC0KIQpMzMk0jcHM9Zm2.nGEBiyMHkmC8JYDxXkDDgKBBbOOxYdC"}
    tokens: {ci: {token: hunter2hunter2hunter2}}
    proxy: {networks: [10.0.0.0/8, "fd00::/8"], role: X-Forwarded-Groups}
  proxies: [192.0.2.1/32]
  masks: {"order.*": [card.number]}
  pprof: true
`

func TestUsersOfTheDashboardAreReadAndShownWithoutSecrets(t *testing.T) {
	t.Parallel()
	source := config.Source{File: write(t, observed), Environ: []string{"ADA=hunter2", "WAYBILL_OBSERVE_AUTH_USERS_BOB_ROLE=viewer"}}
	c, err := load(t, source)
	require.NoError(t, err)
	o := c.Observe
	require.Equal(t, settings.Login{Password: "hunter2", Role: settings.Operator}, o.Auth.Users["ada"])
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}, o.Auth.Proxy.Networks)
	require.True(t, o.Pprof)
	for range 2 { // once like the command, once like a page
		shown := show(t, source)
		again, err := c.Show()
		require.NoError(t, err)
		require.Equal(t, shown, string(again))
		require.NotContains(t, shown, "hunter2")
		require.NotContains(t, shown, "$2a")
		require.NotContains(t, shown, "$$2a")
		for _, visible := range []string{"ada:", "${ADA}", "role: operator", "role: viewer", "token: '***'", "password: '***'", "10.0.0.0/8", "user: X-Forwarded-User"} {
			require.Contains(t, shown, visible)
		}
	}
}

func TestTheAddressIsReadWithoutSecrets(t *testing.T) {
	t.Parallel()
	address, err := config.LoadAddress(config.Source{File: write(t, observed)})
	require.NoError(t, err)
	require.Equal(t, "0.0.0.0:8090", address)
}

func TestAChangeOfAUserIsAChangeOfObserve(t *testing.T) {
	t.Parallel()
	of := func(password string) *config.Config {
		c, err := load(t, config.Source{File: write(t, observed), Environ: []string{"ADA=" + password}})
		require.NoError(t, err)
		return c
	}
	require.True(t, of("hunter2").ChangesTo(of("hunter2")).None())
	require.Equal(t, config.Changes{Observe: true}, of("hunter2").ChangesTo(of("hunter3")))
}

func TestAnInvalidNetworkIsExplained(t *testing.T) {
	t.Parallel()
	_, err := load(t, config.Source{File: write(t, strings.Replace(observed, `10.0.0.0/8, "fd00::/8"`, `10.1.2.3, 10.0.0.300/8`, 1)), Environ: []string{"ADA=hunter2"}})
	require.ErrorContains(t, err, `observe.auth.proxy.networks[0] is "10.1.2.3": write a network, like 10.1.0.0/16, or 10.1.2.3/32 for one address`)
	require.ErrorContains(t, err, `observe.auth.proxy.networks[1] is "10.0.0.300/8": write a network`)
}
