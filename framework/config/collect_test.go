package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/settings"
)

func TestDeliveriesCanBeReadOfSinksThatCollect(t *testing.T) {
	t.Parallel()
	c, err := config.LoadDeliveries(config.Source{File: write(t, `
sinks: {partner: {kind: http, collect: {wait: 10s}}}
routes: {"*": [partner]}
`)}, config.Options{})
	require.NoError(t, err)
	require.Equal(t, settings.Collect{Wait: 10 * time.Second}, c.Sinks["partner"].Collect)
}

func TestAMistakeElsewhereIsNoMistakeOfCollect(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`
database: sqlite:x.db
sinks: {partner: {kind: http, with: {url: "https://partner.example"}, collect: {wait: 10s}}}
routes: {"*": [partner, events]}`: `:4: routes.* names the unknown sink "events"; known are partner`,
		`
database: sqlite:x.db
sinks: {partner: {kind: http, with: {url_: "https://partner.example"}, collect: {wait: 10s}}}
routes: {"*": [partner]}`: `:3: sinks.partner.with: unknown key "url_"; did you mean url?`,
		`
database: sqlite:x.db
sinks: {partner: {kind: http, with: {url: "https://partner.example"}, collect: {wait: 0s}}}
routes: {"*": [partner]}`: `:3: sinks.partner.collect.wait is 0: use more than 0`,
	} {
		file := write(t, text)
		_, err := load(t, config.Source{File: file})
		require.EqualError(t, err, file+want)
	}
}
