package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/forwarder"
)

func TestATypeWinsOverPatternsAndALongerPatternOverAShorter(t *testing.T) {
	t.Parallel()
	c, err := config.LoadDeliveries(config.Source{File: write(t, `
sinks:
  a:
    kind: http
    with: {secret: "${NOT_AT_HAND}"}
    retry:
      max_attempts: 9
      max: 1h
      types:
        "*": {max_attempts: 2}
        "order.*": {initial: 2h}
        order.a: {max_attempts: 4, max_age: 3h}
routes: {"*": [a], "order.*": [a]}
`)}, config.Options{})
	require.NoError(t, err)
	for typ, want := range map[string]struct {
		policy forwarder.Retry
		from   string
	}{
		"order.a": {forwarder.Retry{MaxAttempts: 4, MaxAge: 3 * time.Hour, Initial: time.Second, Max: time.Hour}, "order.a"},
		"order.b": {forwarder.Retry{MaxAttempts: 9, Initial: 2 * time.Hour, Max: 2 * time.Hour}, "order.*"},
		"parcel":  {forwarder.Retry{MaxAttempts: 2, Initial: time.Second, Max: time.Hour}, "*"},
	} {
		got, from := c.Effective("a", typ)
		require.Equal(t, want.policy, got.Retry, typ)
		require.Equal(t, want.from, from, typ)
		require.Equal(t, want.policy.MaxAttempts, c.MaxAttempts("a", typ), typ)
	}
}

func TestASinkOrATypeMayHaveASchedule(t *testing.T) {
	t.Parallel()
	source := config.Source{
		File: write(t, `
database: sqlite:outbox.db
sinks:
  a: {kind: http, with: {url: "https://partner.example/"}, retry: {pauses: [5s, 5m], types: {"order.*": {max_attempts: 2}, "mail.*": {pauses: [1h]}}}}
routes: {"*": [a]}
`),
		Environ: []string{"WAYBILL_SINKS_A_RETRY_PAUSES=5s, 10m, 2h"},
	}
	c, err := load(t, source)
	require.NoError(t, err)
	for typ, want := range map[string]forwarder.Retry{
		"parcel":       {Pauses: []time.Duration{5 * time.Second, 10 * time.Minute, 2 * time.Hour}},
		"order.placed": forwarder.Retry{MaxAttempts: 2}.WithDefaults(),
		"mail.sent":    {Pauses: []time.Duration{time.Hour}},
	} {
		got, _ := c.Effective("a", typ)
		got.Retry.Types = nil
		require.Equal(t, want, got.Retry, typ)
		require.Equal(t, want.Attempts(), c.MaxAttempts("a", typ))
	}
	shown := show(t, source)
	require.Contains(t, shown, "    retry:\n      pauses: [5s, 10m, 2h]\n      types:\n")
	again, err := load(t, config.Source{File: write(t, shown)})
	require.NoError(t, err, shown)
	is, _ := again.Effective("a", "order.placed")
	require.Equal(t, forwarder.Retry{MaxAttempts: 2}.WithDefaults(), is.Retry)
}

func TestAnAdaptiveParallelismHasItsDefaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]forwarder.Parallelism{
		"{adaptive: {}}":        {Above: forwarder.AboveBounded, Adaptive: forwarder.Adaptive{Min: 1, Max: 512}},
		"{adaptive: {max: 8}}":  {Above: forwarder.AboveBounded, Adaptive: forwarder.Adaptive{Min: 1, Max: 8}},
		"{adaptive: {min: 20}}": {Above: forwarder.AboveBounded, Adaptive: forwarder.Adaptive{Min: 20, Max: 512}},
		"{}":                    {Threshold: 16, Above: forwarder.AboveBounded},
	} {
		c, err := config.LoadDeliveries(config.Source{File: write(t, "sinks: {a: {kind: http, parallelism: "+text+"}}\nroutes: {\"*\": [a]}\n")}, config.Options{})
		require.NoError(t, err)
		s, _ := c.Effective("a", "order.placed")
		require.Equal(t, want, s.Parallelism, text)
	}
}
