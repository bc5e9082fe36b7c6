package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/examples/internal/readmetest"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// TestMain is also the main function of the consumer, since the shop starts its own executable.
func TestMain(m *testing.M) {
	if os.Getenv(variableDatabase) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestAConsumerThatIsKilledPaysForEachOrderOnce(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out strings.Builder
	require.NoError(t, run(ctx, &out, os.Getenv))
	require.Equal(t, readmetest.Output(t, "go run ./examples/consumer"), out.String())
}

func TestAConsumerOfKafkaThatIsKilledPaysForEachOrderOnce(t *testing.T) {
	broker := kafkatest.Fake(t)
	t.Setenv("KAFKA_BROKERS", strings.Join(broker.Brokers, ","))
	t.Setenv("KAFKA_TOPIC", broker.CreateTopic(t, 1, nil))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out strings.Builder
	require.NoError(t, run(ctx, &out, os.Getenv))
	var paid []string
	for line := range strings.Lines(out.String()) {
		if order, found := strings.CutPrefix(line, "paid "); found {
			paid = append(paid, strings.TrimSpace(order))
		}
	}
	require.Equal(t, []string{"o-1", "o-2", "o-3", "o-4", "o-5"}, paid, "each once, in the order of the key")
	require.Contains(t, out.String(), "paid o-3\nthe consumer died: signal: killed\n")
}
