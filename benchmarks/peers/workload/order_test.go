package workload_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/benchmarks/peers/workload"
)

func TestOrdersAreRecognizedByTheirNumber(t *testing.T) {
	t.Parallel()
	for _, number := range []int{0, 1, 999, 1000, 9_999_999} {
		payload := workload.New(number).JSON()
		got, ok := workload.Number(payload)
		require.True(t, ok)
		require.Equal(t, number, got)

		var spaced bytes.Buffer // as jsonb writes it
		require.NoError(t, json.Indent(&spaced, payload, "", " "))
		got, ok = workload.Number(spaced.Bytes())
		require.True(t, ok)
		require.Equal(t, number, got)
	}
	for _, other := range []string{``, `{}`, `{"id":7}`, `{"id":"7"}`, `{"id":"000000000x"}`, `{"id":"0000000001`} {
		_, ok := workload.Number([]byte(other))
		require.False(t, ok, other)
	}
}

func TestOrdersHaveTheSizeAndTheKeysThatTheReportNames(t *testing.T) {
	t.Parallel()
	keys := make(map[string]bool)
	for number := range 5 * workload.Keys {
		require.InDelta(t, 300, len(workload.New(number).JSON()), 20)
		keys[workload.Key(number)] = true
	}
	require.Len(t, keys, workload.Keys)
}
