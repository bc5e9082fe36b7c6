package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEachOrderKeepsItsOrderAndWaitsForNoOther(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out))
	require.Contains(t, out.String(), "o-2 order.paid: attempt 2 fails\n")
	require.Equal(t, 9, strings.Count(out.String(), ": taken\n"))
	require.True(t, strings.HasSuffix(out.String(), "o-2 order.paid: taken\no-2 order.shipped: taken\n"), out.String())
}
