package jsonlines_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks/jsonlines"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestTheKindPassesItsConformanceSuite(t *testing.T) {
	sinktest.RunKind(t, jsonlines.Kind(), jsonlines.Config{})
	sinktest.RunKind(t, jsonlines.Kind(), jsonlines.Config{Path: "orders.jsonl"})
	_, err := jsonlines.New(jsonlines.Config{})
	require.NoError(t, err)
}
