package config_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
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
		policy config.Policy
		from   string
	}{
		"order.a": {config.Policy{MaxAttempts: 4, MaxAge: 3 * time.Hour, Initial: time.Second, Max: time.Hour}, "order.a"},
		"order.b": {config.Policy{MaxAttempts: 9, Initial: 2 * time.Hour, Max: 2 * time.Hour}, "order.*"},
		"parcel":  {config.Policy{MaxAttempts: 2, Initial: time.Second, Max: time.Hour}, "*"},
	} {
		got := c.Effective("a", typ)
		require.Equal(t, want.policy, got.Retry, typ)
		require.Equal(t, want.from, got.RetryFrom, typ)
		require.Equal(t, want.policy.MaxAttempts, c.MaxAttempts("a", typ), typ)
	}
}

// dead is a sink that gets no deliveries.
type dead struct{}

func (dead) Deliver(context.Context, *notification.Delivery) (notification.Receipt, error) {
	return "", nil
}

// TestDefaultsAreTheForwarders compares the documented defaults with those of a forwarder.
func TestDefaultsAreTheForwarders(t *testing.T) {
	t.Parallel()
	set := setOf(t, sinks.NewKind("dead", "", func(sinks.Instance, struct{}) (sinks.Sink, error) { return dead{}, nil }))
	source := config.Source{File: write(t, "database: sqlite:a.db\nsinks: {a: {kind: dead}}\nroutes: {\"*\": [a]}\n")}
	c, err := config.Load(source, config.Options{Kinds: set})
	require.NoError(t, err)
	f, err := forwarder.New(c.ForwarderConfig(struct{ forwarder.Store }{}))
	require.NoError(t, err)
	var its forwarder.Sink
	require.NoError(t, f.Adjust("a", func(s *forwarder.Sink) { its = *s }))

	e := c.Effective("a", "order.placed")
	require.Equal(t, its.Parallelism, forwarder.Parallelism{Threshold: e.Parallelism.Threshold, Above: e.Parallelism.Above})
	require.Equal(t, its.Retry, forwarder.Retry{
		MaxAttempts: e.Retry.MaxAttempts, MaxAge: e.Retry.MaxAge, Initial: e.Retry.Initial,
		Max: e.Retry.Max,
	})
	require.Equal(t, its.OnDead, e.OnDead)
	require.Equal(t, its.Timeout, e.Timeout)
	require.Equal(t, its.Rate, e.Rate)
}

func TestAnAdaptiveParallelismHasItsDefaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]config.Parallelism{
		"{adaptive: {}}":        {Adaptive: &config.Adaptive{Min: 1, Max: 512}},
		"{adaptive: {max: 8}}":  {Adaptive: &config.Adaptive{Min: 1, Max: 8}},
		"{adaptive: {min: 20}}": {Adaptive: &config.Adaptive{Min: 20, Max: 512}},
		"{}":                    {Threshold: 16, Above: forwarder.AboveBounded},
	} {
		c, err := config.LoadDeliveries(config.Source{File: write(t, "sinks: {a: {kind: http, parallelism: "+text+"}}\nroutes: {\"*\": [a]}\n")}, config.Options{})
		require.NoError(t, err)
		require.Equal(t, want, c.Effective("a", "order.placed").Parallelism, text)
	}
}
