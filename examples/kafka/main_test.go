package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
)

func TestEachOrdersRecordsAreStoredInTheirOrder(t *testing.T) {
	config, done, err := settings(func(string) string { return "" })
	require.NoError(t, err)
	defer done()
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), config, &out))

	statuses := make(map[string][]string)
	for line := range strings.Lines(out.String()) {
		require.Regexp(t, regexp.MustCompile(`^order-\d \w+ +kafka orders/[0-2]@\d\n$`), line)
		fields := strings.Fields(line)
		statuses[fields[0]] = append(statuses[fields[0]], fields[1])
	}
	assert.Equal(t, map[string][]string{
		"order-1": {"placed", "paid", "shipped"}, "order-2": {"placed", "cancelled"}, "order-3": {"placed"},
	}, statuses)
}

func TestTheEnvironmentNamesARealCluster(t *testing.T) {
	cluster := kfake.MustCluster(kfake.NumBrokers(2), kfake.SeedTopics(1, "shop"))
	defer cluster.Close()
	environ := map[string]string{"KAFKA_BROKERS": strings.Join(cluster.ListenAddrs(), ","), "KAFKA_TOPIC": "shop"}
	config, done, err := settings(func(name string) string { return environ[name] })
	require.NoError(t, err)
	defer done()
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), config, &out))
	assert.Contains(t, out.String(), "kafka shop/0@5")

	environ["KAFKA_USER"], environ["KAFKA_PASSWORD"] = "ada", "secret"
	config, _, err = settings(func(name string) string { return environ[name] })
	require.NoError(t, err)
	require.NoError(t, config.Validate())
	assert.True(t, config.TLS.Enabled)
	assert.Equal(t, "SCRAM-SHA-512", config.SASL.Mechanism)
}
