package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/examples/internal/readmetest"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

func TestTheWarehouseReceivesEachOrderWhileThePartnerIsDown(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Fake(t)
	env := map[string]string{"KAFKA_BROKERS": strings.Join(broker.Brokers, ","), "KAFKA_TOPIC": broker.CreateTopic(t, 3, nil)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out strings.Builder
	require.NoError(t, run(ctx, &out, func(name string) string { return env[name] }))
	require.Equal(t, readmetest.Output(t, "go run ./examples/second-stage"), out.String())
}

func TestWithoutKafkaTheExampleStartsABroker(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out strings.Builder
	require.NoError(t, run(ctx, &out, func(string) string { return "" }))
	require.Equal(t, readmetest.Output(t, "go run ./examples/second-stage"), out.String())
}
