package config_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
)

func show(t testing.TB, source config.Source) string {
	t.Helper()
	text, err := config.Show(source, config.Options{Kinds: kinds(t)})
	require.NoError(t, err)
	return string(text)
}

// The output of Show, loaded again, is the same configuration.
func TestShowPrintsTheSameConfiguration(t *testing.T) {
	t.Parallel()
	environ := []string{"PASSWORD=" + password, "N=7"}
	source := config.Source{File: write(t, whole), Environ: environ}
	before, err := load(t, source)
	require.NoError(t, err)
	shown := show(t, source)
	again := config.Source{File: write(t, shown), Environ: environ}
	after, err := load(t, again)
	require.NoError(t, err, shown)
	require.Equal(t, shown, show(t, again))
	require.Equal(t, before.Database, after.Database, "a reference stays a reference")
	require.Equal(t, before.Routes, after.Routes)
	for name := range before.Sinks {
		for _, typ := range []string{"order.placed", "customer.moved", "else"} {
			was, from := before.Effective(name, typ)
			is, same := after.Effective(name, typ)
			was.Sink, is.Sink, was.Retry.Types, is.Retry.Types = nil, nil, nil, nil
			require.Equal(t, was, is)
			require.Equal(t, from, same)
		}
	}
}

func TestNoSecretIsShown(t *testing.T) {
	t.Parallel()
	const key = "whsec_aHVudGVyMmh1bnRlcjJodW50ZXIyaHVudGVyMg==" // base64 of hunter2hunter2…
	for name, address := range map[string]string{
		"URL":          "postgres://app:hunter2@localhost/app?sslmode=disable",
		"with @ in it": "postgres://app:a@hunter2@localhost/app",
		"in the query": "postgres://localhost/app?user=app&password=hunter2",
		"list":         "host=localhost user=app password=hunter2",
		"quoted list":  `host=localhost password='my \'hunter2\' x'`,
		"from outside": "${DATABASE_URL:-postgres://app:hunter2@localhost/app}",
		"half outside": "postgres://app:${PASSWORD:-hunter2}@${HOST}/app",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shown := show(t, config.Source{File: write(t, `
database: `+strconv.Quote(address)+`
sinks:
  plain:
    kind: http
    with:
      url: "https://partner.example/${KEY}?token=hunter2&shop=1"
      bearer: hunter2
      headers: {X-Api-Key: hunter2, X-Shop: kites, X-Sum: "${PASSWORD}"}
      proxy: http://user:hunter2@proxy.example
  signed:
    kind: http
    with: {url: "https://user:hunter2@partner.example/", secret: "`+key+`", secrets: ["`+key+`", "${SECOND}"]}
  basic:
    kind: http
    with: {url: "https://partner.example/", user: me, password: hunter2}
routes: {"*": [plain, signed, basic]}
`), Environ: []string{"KEY=hunter2", "PASSWORD=hunter2", "HOST=localhost", "SECOND=" + key, "WAYBILL_SINKS_BASIC_WITH_PASSWORD=hunter2"}})
			require.NotContains(t, shown, "hunter2")
			require.NotContains(t, shown, key)
			for _, visible := range []string{"X-Shop: '***'", "X-Sum: ${PASSWORD}", "user: me", "partner.example/${KEY}***", "${SECOND}", "user:***@proxy.example"} {
				require.Contains(t, shown, visible)
			}
		})
	}
}
