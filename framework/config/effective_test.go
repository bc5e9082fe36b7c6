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
